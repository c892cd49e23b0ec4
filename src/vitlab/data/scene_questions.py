"""Questions about scenes with one answer each, from a closed vocabulary, for visual question answering.

A question is used only if its answer is unambiguous: "the circle" only if one circle is visible, "the largest" only by
a clear margin, "the leftmost" only if it is clearly left of all others. An object counts as visible if at least a
quarter of it is.

Shape legend: B scenes, K objects of a scene, n questions of each, L words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.scene_layout import QUESTION, uniform
from vitlab.data.scenes import COLOURS, SHAPES, TEXTURES, Scenes

__all__ = ["ANSWERS", "KINDS", "WORDS", "Questions", "questions"]

_MOST_OBJECTS = 8
ANSWERS = ("no", "yes", *map(str, range(_MOST_OBJECTS + 1)), *SHAPES, *TEXTURES, *COLOURS)

_SIDES = ("left", "right", "above", "below")
_EXTREMES = ("largest", "smallest")
_ENDS = ("leftmost", "rightmost", "highest", "lowest")
_GRAMMAR = ("is", "are", "there", "a", "the", "of", "how", "many", "what", "does", "have", "one")
_NOUNS = ("shape", "shapes", "texture", "colour")
#: Words of the questions; token 0 is padding.
WORDS = ("", *_GRAMMAR, *_NOUNS, *SHAPES, *TEXTURES, *_SIDES, *_EXTREMES, *_ENDS)

_LENGTH = 7  # words of the longest question
_SEEN = 0.25  # visible share of an object for it to count
_MARGIN = 1.25  # ratio of areas, for the largest and the smallest
_APART = 1 / 12  # distance over the shorter side, for positions


@dataclass(frozen=True)
class Questions:
    """n questions about each of B scenes.

    Args:
        tokens: (B, n, L) index into `WORDS`, 0 after the end.
        answers: (B, n) index into `ANSWERS`.
        kinds: (B, n) index into `KINDS`.
    """

    tokens: Tensor
    answers: Tensor
    kinds: Tensor

    def text(self, i: int) -> list[tuple[str, str]]:
        """Returns the questions about scene i in words, each with its answer."""
        asked = [" ".join(WORDS[token] for token in row if token) for row in self.tokens[i].tolist()]
        return list(zip(asked, (ANSWERS[answer] for answer in self.answers[i].tolist()), strict=True))


def questions(scenes: Scenes, count: int = 4) -> Questions:
    """Returns `count` questions about each scene, which depend on its (seed, index) and size only.

    The kind is drawn first; if the scene has no unambiguous question of that kind, it becomes "is there a …".

    Args:
        scenes: from `draw_scenes`; their instances, boxes and visibility are computed if necessary.
        count: questions about each scene, n.

    >>> from vitlab.data.scenes import draw_scenes
    >>> asked = questions(draw_scenes(2, size=64, objects=1, shape="star", texture="dotted"), count=6)
    >>> asked.tokens.shape, asked.answers.shape
    (torch.Size([2, 6, 7]), torch.Size([2, 6]))
    >>> set(asked.text(0)) <= {
    ...     ("is there a dotted star", "yes"),
    ...     *((f"is there a dotted {s}", "no") for s in SHAPES if s != "star"),
    ...     *((f"is there a {t} star", "no") for t in TEXTURES if t != "dotted"),
    ...     *((f"how many {t} shapes are there", str(int(t == "dotted"))) for t in TEXTURES),
    ...     *((f"how many {s} shapes are there", str(int(s == "star"))) for s in SHAPES),
    ...     *((f"what colour is the star", colour) for colour in COLOURS),
    ...     ("how many shapes are there", "1"),
    ...     ("what texture does the star have", "dotted"),
    ...     ("what shape is the dotted one", "star"),
    ... }
    True
    """
    if not isinstance(count, int) or not 1 <= count <= 1000:
        raise VitlabError(f"invalid count={count!r}; expected an integer from 1 to 1000, the questions per scene")
    view = _view_of(scenes, count)
    tokens, answers, _ = _exists(view)
    kinds = (view.randoms[..., 0] * len(KINDS)).long()
    for kind, ask in enumerate(_GENERATORS.values()):
        other_tokens, other_answers, valid = ask(view)
        here = (kinds == kind) & valid
        tokens[here], answers[here] = other_tokens[here], other_answers[here]
        kinds[(kinds == kind) & ~valid] = 0
    return Questions(tokens, answers, kinds)


@dataclass(frozen=True)
class _View:
    """The visible objects, (B, 1, K), and the random numbers of n questions, (B, n, 8 + 2K)."""

    seen: Tensor
    shapes: Tensor
    textures: Tensor
    colours: Tensor
    areas: Tensor
    radii: Tensor
    middles: Tensor
    randoms: Tensor
    unit: int


Candidates = tuple[Tensor, Tensor, Tensor]  # tokens (B, n, L), answers (B, n), whether the question is valid (B, n)


def _view_of(scenes: Scenes, count: int) -> _View:
    objects = scenes.objects
    index = np.arange(scenes.start, scenes.start + len(scenes), dtype=np.uint64)
    randoms = uniform(scenes.seed, index, range(QUESTION, QUESTION + count), 8 + 2 * _MOST_OBJECTS)
    return _View(
        (scenes.visibility >= _SEEN)[:, None],
        objects.shapes[:, None],
        objects.textures[:, None],
        objects.colours[:, None],
        scenes.instances.flatten(2).sum(2)[:, None],
        objects.radii[:, None],
        ((scenes.boxes[..., :2] + scenes.boxes[..., 2:]) / 2)[:, None],
        torch.from_numpy(randoms),
        min(scenes.size),
    )


def _exists(view: _View) -> Candidates:
    # Both words from one object, or one of them random: about half of the answers are yes.
    target, _ = _pick(view, view.seen)
    how = view.randoms[..., 1]
    shapes = torch.where(how < 0.7, _at(view.shapes, target), _any_of(view, SHAPES))
    textures = torch.where((how >= 0.4) & (how < 0.7), _any_of(view, TEXTURES), _at(view.textures, target))
    match = (view.shapes == shapes[..., None]) & (view.textures == textures[..., None]) & view.seen
    tokens = _sentence(view, "is there a", _word(TEXTURES) + textures, _word(SHAPES) + shapes)
    return tokens, match.any(2).long(), torch.ones_like(match[..., 0])


def _count(view: _View) -> Candidates:
    target, _ = _pick(view, view.seen)
    # More than half of the names are random, so that 0 and 1 are about as frequent.
    how, known = view.randoms[..., 1] * 3, view.randoms[..., 3] < 0.35
    shapes = torch.where(known, _at(view.shapes, target), _any_of(view, SHAPES))
    textures = torch.where(known, _at(view.textures, target), _any_of(view, TEXTURES))
    by_shape, by_texture = how < 1, how >= 2  # else all are counted
    match = (view.shapes == shapes[..., None]) | ~by_shape[..., None]
    match &= (view.textures == textures[..., None]) | ~by_texture[..., None]
    which = torch.where(by_shape, _word(SHAPES) + shapes, _word(TEXTURES) + textures)
    some = _sentence(view, "how many", which, "shapes are there")
    every = _sentence(view, "how many shapes are there")
    tokens = torch.where((by_shape | by_texture)[..., None], some, every)
    return tokens, ANSWERS.index("0") + (match & view.seen).sum(2), torch.ones_like(known)


def _colour(view: _View) -> Candidates:
    target, valid = _pick(view, _unique(view, view.shapes))
    tokens = _sentence(view, "what colour is the", _word(SHAPES) + _at(view.shapes, target))
    return tokens, ANSWERS.index(COLOURS[0]) + _at(view.colours, target), valid


def _texture(view: _View) -> Candidates:
    target, valid = _pick(view, _unique(view, view.shapes))
    tokens = _sentence(view, "what texture does the", _word(SHAPES) + _at(view.shapes, target), "have")
    return tokens, ANSWERS.index(TEXTURES[0]) + _at(view.textures, target), valid


def _shape(view: _View) -> Candidates:
    target, valid = _pick(view, _unique(view, view.textures))
    tokens = _sentence(view, "what shape is the", _word(TEXTURES) + _at(view.textures, target), "one")
    return tokens, ANSWERS.index(SHAPES[0]) + _at(view.shapes, target), valid


def _extreme(view: _View) -> Candidates:
    # By visible pixels; valid if the whole object, including occluded parts, is the extreme one too.
    smallest = view.randoms[..., 1] < 0.5
    sign = torch.where(smallest, -1.0, 1.0)[..., None]
    areas = torch.where(view.seen, view.areas * sign, -torch.inf)
    first = areas.argmax(2)
    top = areas.sort(2, descending=True).values[..., :2].abs()
    enough = view.seen.sum(2) >= 2
    clear = (top.amax(2) >= _MARGIN * top.amin(2)) & enough
    agree = torch.where(view.seen, view.radii * sign, -torch.inf).argmax(2) == first
    tokens = _sentence(view, "what shape is the", _word(_EXTREMES) + smallest.long())
    return tokens, ANSWERS.index(SHAPES[0]) + _at(view.shapes, first), clear & agree


def _side(view: _View) -> Candidates:
    side = (view.randoms[..., 1] * len(_ENDS)).long()
    along = torch.where((side < 2)[..., None], view.middles[..., 0], view.middles[..., 1])
    ahead = torch.where(view.seen, along * (2 * (side % 2) - 1)[..., None], -torch.inf)
    top = ahead.sort(2, descending=True).values[..., :2]
    clear = (view.seen.sum(2) >= 2) & (top.amax(2) - top.amin(2) >= _APART * view.unit)
    tokens = _sentence(view, "what shape is the", _word(_ENDS) + side)
    return tokens, ANSWERS.index(SHAPES[0]) + _at(view.shapes, ahead.argmax(2)), clear


def _relation(view: _View) -> Candidates:
    unique = _unique(view, view.shapes)
    one, some = _pick(view, unique)
    other, more = _pick(
        view, unique & (torch.arange(unique.shape[2], device=one.device) != one[..., None]), second=True
    )
    side = (view.randoms[..., 1] * len(_SIDES)).long()
    ahead = torch.stack([_at(view.middles[..., axis], other) - _at(view.middles[..., axis], one) for axis in (0, 1)])
    ahead = torch.where(side < 2, ahead[0], ahead[1])
    subject, rest = _word(SHAPES) + _at(view.shapes, one), _word(SHAPES) + _at(view.shapes, other)
    beside = _sentence(view, "is the", subject, _word(_SIDES) + side, "of the", rest)
    over = _sentence(view, "is the", subject, _word(_SIDES) + side, "the", rest)
    answers = torch.where(side % 2 == 0, ahead > 0, ahead < 0).long()
    return torch.where(side[..., None] < 2, beside, over), answers, some & more & (ahead.abs() >= _APART * view.unit)


_GENERATORS: dict[str, Callable[[_View], Candidates]] = {
    "exists": _exists,
    "count": _count,
    "colour": _colour,
    "texture": _texture,
    "shape": _shape,
    "extreme": _extreme,
    "side": _side,
    "relation": _relation,
}
KINDS = tuple(_GENERATORS)


def _pick(view: _View, allowed: Tensor, second: bool = False) -> tuple[Tensor, Tensor]:
    """Returns a random object among the allowed ones (B, n), and whether there is any."""
    first = 8 + _MOST_OBJECTS * second
    randoms = view.randoms[..., first : first + allowed.shape[2]]
    best = torch.where(allowed, randoms, -1.0).max(2)
    return best.indices, best.values >= 0


def _at(values: Tensor, which: Tensor) -> Tensor:
    """Returns the value of one object for each question: (B, 1, K) -> (B, n)."""
    return values.expand(-1, which.shape[1], -1).gather(2, which[..., None])[..., 0]


def _unique(view: _View, kinds: Tensor) -> Tensor:
    """Returns the visible objects whose kind no other visible object has, (B, 1, K)."""
    alike = (kinds[..., None, :] == kinds[..., None]) & view.seen[..., None, :]
    return (alike.sum(3) == 1) & view.seen


def _any_of(view: _View, names: tuple[str, ...]) -> Tensor:
    return (view.randoms[..., 2] * len(names)).long()


def _word(names: tuple[str, ...]) -> int:
    """Returns the token of the first name; the others follow it."""
    return WORDS.index(names[0])


def _sentence(view: _View, *parts: str | Tensor) -> Tensor:
    """Returns tokens (B, n, L) of words that are fixed (a string) or differ by question (B, n)."""
    tokens = view.shapes.new_zeros(*view.randoms.shape[:2], _LENGTH)
    words = [word for part in parts for word in (part.split() if isinstance(part, str) else [part])]
    for position, word in enumerate(words):
        tokens[..., position] = WORDS.index(word) if isinstance(word, str) else word
    return tokens
