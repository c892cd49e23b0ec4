"""Questions about scenes with one answer each, from a closed vocabulary: visual question answering with no download.

A question is asked only where a careful viewer would give its answer: "the circle" only where one circle is seen, "the
largest" only where it is so by a clear margin. An object counts as seen when a quarter of it is.

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
_GRAMMAR = ("is", "are", "there", "a", "the", "of", "how", "many", "what", "does", "have", "one")
_NOUNS = ("shape", "shapes", "texture", "colour")
#: Words of the questions; token 0 is padding.
WORDS = ("", *_GRAMMAR, *_NOUNS, *SHAPES, *TEXTURES, *_SIDES, *_EXTREMES)

_LENGTH = 7  # words of the longest question
_SEEN = 0.25  # of an object, for it to count
_MARGIN = 1.25  # of the areas, for the largest and the smallest
_APART = 1 / 12  # of the shorter side, for left of and above


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
        """The questions about scene i in words, each with its answer."""
        asked = [" ".join(WORDS[token] for token in row if token) for row in self.tokens[i].tolist()]
        return list(zip(asked, (ANSWERS[answer] for answer in self.answers[i].tolist()), strict=True))


def questions(scenes: Scenes, count: int = 4) -> Questions:
    """`count` questions about each scene, which depend on its (seed, index) and size only.

    The kind is drawn first; where the scene leaves no unambiguous question of that kind, it is "is there a …".

    Args:
        scenes: as drawn by `draw_scenes`. Their instances, boxes and visibility are computed if they are not yet.
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
        raise VitlabError(f"count={count!r}: give an integer from 1 to 1000, the questions about each scene")
    view = _look_at(scenes, count)
    tokens, answers, _ = _exists(view)
    kinds = (view.dice[..., 0] * len(KINDS)).long()
    for kind, ask in enumerate(_ASK.values()):
        other_tokens, other_answers, sound = ask(view)
        here = (kinds == kind) & sound
        tokens[here], answers[here] = other_tokens[here], other_answers[here]
        kinds[(kinds == kind) & ~sound] = 0
    return Questions(tokens, answers, kinds)


@dataclass(frozen=True)
class _View:
    """What is seen, (B, 1, K) to meet the n questions, and their random numbers `dice` (B, n, 8 + 2K)."""

    seen: Tensor
    shapes: Tensor
    textures: Tensor
    colours: Tensor
    areas: Tensor
    radii: Tensor
    middles: Tensor
    dice: Tensor
    unit: int


Asked = tuple[Tensor, Tensor, Tensor]  # tokens (B, n, L), answers (B, n), whether the question is sound (B, n)


def _look_at(scenes: Scenes, count: int) -> _View:
    objects = scenes.objects
    index = np.arange(scenes.start, scenes.start + len(scenes), dtype=np.uint64)
    dice = uniform(scenes.seed, index, range(QUESTION, QUESTION + count), 8 + 2 * _MOST_OBJECTS)
    return _View(
        (scenes.visibility >= _SEEN)[:, None],
        objects.shapes[:, None],
        objects.textures[:, None],
        objects.colours[:, None],
        scenes.instances.flatten(2).sum(2)[:, None],
        objects.radii[:, None],
        ((scenes.boxes[..., :2] + scenes.boxes[..., 2:]) / 2)[:, None],
        torch.from_numpy(dice),
        min(scenes.size),
    )


def _exists(view: _View) -> Asked:
    # Both words from one object, or one word from it and the other from anywhere: hard to guess, about half are yes.
    target, _ = _pick(view, view.seen)
    how = view.dice[..., 1]
    shapes = torch.where(how < 0.7, _at(view.shapes, target), _any_of(view, SHAPES))
    textures = torch.where((how >= 0.4) & (how < 0.7), _any_of(view, TEXTURES), _at(view.textures, target))
    match = (view.shapes == shapes[..., None]) & (view.textures == textures[..., None]) & view.seen
    tokens = _sentence(view, "is there a", _word(TEXTURES) + textures, _word(SHAPES) + shapes)
    return tokens, match.any(2).long(), torch.ones_like(match[..., 0])


def _count(view: _View) -> Asked:
    target, _ = _pick(view, view.seen)
    how, known = view.dice[..., 1] * 3, view.dice[..., 3] < 0.5
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


def _colour(view: _View) -> Asked:
    target, sound = _pick(view, _unique(view, view.shapes))
    tokens = _sentence(view, "what colour is the", _word(SHAPES) + _at(view.shapes, target))
    return tokens, ANSWERS.index(COLOURS[0]) + _at(view.colours, target), sound


def _texture(view: _View) -> Asked:
    target, sound = _pick(view, _unique(view, view.shapes))
    tokens = _sentence(view, "what texture does the", _word(SHAPES) + _at(view.shapes, target), "have")
    return tokens, ANSWERS.index(TEXTURES[0]) + _at(view.textures, target), sound


def _shape(view: _View) -> Asked:
    target, sound = _pick(view, _unique(view, view.textures))
    tokens = _sentence(view, "what shape is the", _word(TEXTURES) + _at(view.textures, target), "one")
    return tokens, ANSWERS.index(SHAPES[0]) + _at(view.shapes, target), sound


def _extreme(view: _View) -> Asked:
    # By the pixels that are seen; sound where the whole object, hidden parts included, is the extreme one too.
    smallest = view.dice[..., 1] < 0.5
    sign = torch.where(smallest, -1.0, 1.0)[..., None]
    areas = torch.where(view.seen, view.areas * sign, -torch.inf)
    first = areas.argmax(2)
    top = areas.sort(2, descending=True).values[..., :2].abs()
    enough = view.seen.sum(2) >= 2
    clear = (top.amax(2) >= _MARGIN * top.amin(2)) & enough
    agree = torch.where(view.seen, view.radii * sign, -torch.inf).argmax(2) == first
    tokens = _sentence(view, "what shape is the", _word(_EXTREMES) + smallest.long())
    return tokens, ANSWERS.index(SHAPES[0]) + _at(view.shapes, first), clear & agree


def _side(view: _View) -> Asked:
    unique = _unique(view, view.shapes)
    one, some = _pick(view, unique)
    other, more = _pick(
        view, unique & (torch.arange(unique.shape[2], device=one.device) != one[..., None]), second=True
    )
    side = (view.dice[..., 1] * len(_SIDES)).long()
    ahead = torch.stack([_at(view.middles[..., axis], other) - _at(view.middles[..., axis], one) for axis in (0, 1)])
    ahead = torch.where(side < 2, ahead[0], ahead[1])
    subject, rest = _word(SHAPES) + _at(view.shapes, one), _word(SHAPES) + _at(view.shapes, other)
    beside = _sentence(view, "is the", subject, _word(_SIDES) + side, "of the", rest)
    over = _sentence(view, "is the", subject, _word(_SIDES) + side, "the", rest)
    answers = torch.where(side % 2 == 0, ahead > 0, ahead < 0).long()
    return torch.where(side[..., None] < 2, beside, over), answers, some & more & (ahead.abs() >= _APART * view.unit)


_ASK: dict[str, Callable[[_View], Asked]] = {
    "exists": _exists,
    "count": _count,
    "colour": _colour,
    "texture": _texture,
    "shape": _shape,
    "extreme": _extreme,
    "side": _side,
}
KINDS = tuple(_ASK)


def _pick(view: _View, allowed: Tensor, second: bool = False) -> tuple[Tensor, Tensor]:
    """(B, n) a random object among the allowed ones, and whether there is any."""
    first = 8 + _MOST_OBJECTS * second
    dice = view.dice[..., first : first + allowed.shape[2]]
    best = torch.where(allowed, dice, -1.0).max(2)
    return best.indices, best.values >= 0


def _at(values: Tensor, which: Tensor) -> Tensor:
    """(B, n) the value (B, 1, K) of one object for each question."""
    return values.expand(-1, which.shape[1], -1).gather(2, which[..., None])[..., 0]


def _unique(view: _View, kinds: Tensor) -> Tensor:
    """(B, 1, K) the seen objects that no other seen one shares its kind with."""
    alike = (kinds[..., None, :] == kinds[..., None]) & view.seen[..., None, :]
    return (alike.sum(3) == 1) & view.seen


def _any_of(view: _View, names: tuple[str, ...]) -> Tensor:
    return (view.dice[..., 2] * len(names)).long()


def _word(names: tuple[str, ...]) -> int:
    """The token of the first name; the others follow it."""
    return WORDS.index(names[0])


def _sentence(view: _View, *parts: str | Tensor) -> Tensor:
    """(B, n, L) tokens of words that are fixed (a string) or differ by question (B, n)."""
    tokens = view.shapes.new_zeros(*view.dice.shape[:2], _LENGTH)
    words = [word for part in parts for word in (part.split() if isinstance(part, str) else [part])]
    for position, word in enumerate(words):
        tokens[..., position] = WORDS.index(word) if isinstance(word, str) else word
    return tokens
