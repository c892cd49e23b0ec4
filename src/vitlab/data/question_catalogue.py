"""Question sets by expression: `scene_questions(objects=2)`, `vqav2(path='/data/vqa', tokenizer='/models/vilt')`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from vitlab.core.bounds import Choices, Length, Range, Seed
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.machine_memory import check_memory
from vitlab.core.settings import check_settings
from vitlab.core.signatures import Setting, settings_of
from vitlab.core.user_path import user_path
from vitlab.data.question_set import PAD, QuestionData, QuestionSet
from vitlab.data.scene_layout import Cues
from vitlab.data.scene_questions import ANSWERS, KINDS, WORDS, questions
from vitlab.data.scene_set import TEST_SCENES, cost
from vitlab.data.scenes import MEAN, MOST_OBJECTS, STD, Side, draw_scenes
from vitlab.data.vqav2 import open_vqav2

__all__ = ["check_questions", "open_questions", "question_folders", "question_sets", "question_settings"]

_Count = Annotated[int, Range(1, 250_000, cost=cost)]
_CLASS_TOKEN = len(WORDS)  # the token ids of scenes: padding, the words, the class token


@dataclass(frozen=True)
class _Location:
    root: str | Path | None
    size: tuple[int, int]

    def path(self, given: str) -> Path:
        """The path, absolute, relative to the working directory, or below the root."""
        here = user_path(given)
        root = self.root or os.environ.get("VITLAB_DATA")
        return here if here.is_dir() or here.is_absolute() or not root else user_path(root) / here


def open_questions(
    expression: str, *, root: str | Path | None = None, image_size: tuple[int, int] = (32, 32)
) -> QuestionData:
    """Open the questions of an expression.

    Args:
        expression: a name of `question_sets()` with settings.
        root: the folder that contains the data sets; default: the environment variable VITLAB_DATA.
        image_size: (height, width) of generated scenes.

    >>> data = open_questions("scene_questions(train=4, test=2, questions=3)")
    >>> len(data.train), len(data.test), data.kinds[:2]
    (12, 6, ('exists', 'count'))
    """
    name, settings = check_questions(expression)
    return _OPENERS[name](_Location(root, image_size), **settings)


def question_folders(expression: str, root: str | Path | None = None) -> list[Path]:
    """Returns the folders that a question set of files reads; empty for a generated one.

    >>> question_folders("scene_questions"), question_folders("vqav2", "/data")[0].as_posix()
    ([], '/data/vqav2')
    """
    name, settings = check_questions(expression)
    location = _Location(root, (32, 32))
    given = {"path": "vqav2", "tokenizer": "bert-base-uncased", **settings}
    return [location.path(given[key]) for key in ("path", "tokenizer")] if name == "vqav2" else []


def check_questions(expression: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and the settings of an expression; raises an error if one of them is wrong. Nothing is read."""
    name, settings = parse_call(expression)
    if name not in _OPENERS:
        raise unknown("question set", name, _OPENERS)
    check_settings(name, _OPENERS[name], settings, 1)
    return name, settings


def question_sets() -> dict[str, str]:
    """Returns the names of the question sets, each with a one-line description.

    >>> list(question_sets())
    ['scene_questions', 'vqav2']
    """
    return {name: (inspect.getdoc(opener) or "").partition("\n")[0] for name, opener in _OPENERS.items()}


def question_settings() -> dict[str, list[Setting]]:
    """Returns the settings of each question set."""
    return {name: settings_of(opener, 1) for name, opener in _OPENERS.items()}


def _scene_questions(
    location: _Location,
    train: _Count = 8000,
    test: _Count = 500,
    questions: Annotated[int, Range(1, 1000)] = 8,
    size: Side | None = None,
    seed: Seed = 0,
    objects: Annotated[int, Range(1, MOST_OBJECTS)] = 2,
    cues: Cues = "free",
    kinds: Annotated[list[Annotated[str, Choices(KINDS)]], Length(distinct=True)] | None = None,
) -> QuestionData:
    """Questions of eight kinds about generated scenes, 29 answers; nothing to download."""
    frame = location.size if size is None else (size, size)
    check_memory("scene_questions", (train + test) * 3 * frame[0] * frame[1], advice="use fewer or smaller scenes")
    wanted = torch.tensor([kinds is None or kind in kinds for kind in KINDS])

    def split(count: int, start: int) -> QuestionSet:
        scenes = draw_scenes(count, size=frame, seed=seed, start=start, objects=objects, cues=cues)
        asked = _asked(scenes, questions)
        return asked.subset(wanted[asked.kinds].nonzero()[:, 0])

    return QuestionData(split(train, 0), split(test, TEST_SCENES), ANSWERS, KINDS, _CLASS_TOKEN + 1, MEAN, STD)


def _asked(scenes: Any, count: int) -> QuestionSet:
    asked = questions(scenes, count)
    words = asked.tokens.flatten(0, 1)
    first = torch.full((len(words), 1), _CLASS_TOKEN)
    answers = asked.answers.flatten()[:, None]
    return QuestionSet(
        scenes.images,
        torch.arange(len(scenes)).repeat_interleave(count),
        torch.cat([first, words], 1),
        answers,
        torch.ones_like(answers, dtype=torch.float32),
        asked.kinds.flatten(),
        [" ".join(WORDS[token] for token in row if token != PAD) + "?" for row in words.tolist()],
    )


def _vqav2(
    location: _Location,
    path: str = "vqav2",
    tokenizer: str = "bert-base-uncased",
    answers: Annotated[int, Range(0, 1_000_000)] = 3129,
    at_least: Annotated[int, Range(1, 1_000_000)] = 1,
) -> QuestionData:
    """VQAv2, questions about COCO images with ten human answers each."""
    folder = location.path(path)
    if not folder.is_dir():
        raise VitlabError(
            f"no folder {folder}; give vqav2(path='FOLDER') with VQAv2's official files, or --root above vqav2"
        )
    return open_vqav2(folder, location.path(tokenizer), answers, at_least)


_OPENERS: dict[str, Callable[..., QuestionData]] = {"scene_questions": _scene_questions, "vqav2": _vqav2}
