"""Batches of images and questions for instruments.

Instruments of attention and features need batches without padding: all questions have the same number of tokens and
all images the same size, so that no row of an attention map is padding and all maps have the same shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.data.question_batches import QuestionBatches
from vitlab.data.question_catalogue import open_questions
from vitlab.inputs.parts import DEFAULT_IMAGES, fingerprint_of

__all__ = ["AskedBatch", "question_parts"]


class AskedBatch(NamedTuple):
    """Questions with their answers: keyword arguments of the model, targets (B,), texts, and the names of their kinds.

    The target is the answer with the largest accuracy; `accuracy` is that of each answer of the vocabulary, (B, A).
    """

    inputs: dict[str, Tensor]
    targets: Tensor
    texts: list[str]
    kinds: list[str]
    accuracy: Tensor


@dataclass(frozen=True)
class _Items:
    """Batches that can be iterated more than once."""

    feed: QuestionBatches
    plan: tuple[Tensor, ...]
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[AskedBatch]:
        questions = self.feed.questions
        for rows, batch in zip(self.plan, self.feed.batches(self.plan), strict=True):
            chosen = questions.subset(rows)
            accuracy = torch.zeros(len(rows), self.feed.answers + 1)
            known = torch.where(chosen.answers < 0, self.feed.answers, chosen.answers)
            accuracy.scatter_(1, known, chosen.accuracy)
            names = [self.kinds[kind] for kind in chosen.kinds.tolist()]
            yield AskedBatch(
                batch.inputs(), chosen.best_answers(), list(chosen.texts), names, accuracy[:, : self.feed.answers]
            )


def question_parts(
    model: Any,
    data: str,
    images: int | None = None,
    repeats: int = 1,
    root: Path | None = None,
    batch_size: int = 16,
    size: tuple[int, int] | None = None,
    same_length: bool = True,
) -> list[Batches]:
    """Returns test questions in disjoint parts; question i goes to part i mod `repeats`.

    Args:
        model: a ViLT; its configuration gives the patch size and the number of answers.
        data: an expression of `open_questions`.
        images: the number of questions, each with its image, chosen at even distances; by default 64.
        repeats: the number of parts.
        root: the folder that holds the data sets.
        batch_size: questions per batch.
        size: (height, width) of the images; by default that of the model. Files are resized to it, without padding.
        same_length: use only the questions with the most frequent number of tokens; else all, padded in each batch.
    """
    config = model.config
    side = config.image_size
    frame = size or ((side, side) if isinstance(side, int) else (side[0], side[1]))
    opened = open_questions(data, root=root, image_size=frame)
    answers = model.classifier[-1].out_features
    if answers != len(opened.answers) or config.vocab_size < opened.vocabulary:
        raise VitlabError(
            f"the model has {answers} answers and {config.vocab_size} token ids, but {data!r} has "
            f"{len(opened.answers)} and {opened.vocabulary}; give the data that it was trained on"
        )
    lengths = opened.test.lengths
    usual = (lengths == torch.bincount(lengths).argmax()).nonzero()[:, 0] if same_length else torch.arange(len(lengths))
    count = min(DEFAULT_IMAGES, len(usual)) if images is None else images
    if not repeats <= count <= len(usual):
        raise VitlabError(
            f"invalid images={count}, repeats={repeats}; {data!r} has {len(usual)} test questions"
            + (" of the most frequent length" if same_length else "")
        )
    chosen = usual[torch.arange(count) * len(usual) // count]
    feed = QuestionBatches(
        opened.test,
        answers,
        opened.mean,
        opened.std,
        frame,
        config.patch_size,
        batch_size=batch_size,
        processes=0,
        exact=True,
    )
    record: dict[str, Any] = {"size": list(frame), "mean": list(opened.mean), "std": list(opened.std)}
    record |= {"crop": 1.0, "crop_mode": "squash", "interpolation": "bicubic", "source": "questions"}
    parts = []
    for part in range(repeats):
        rows = chosen[part::repeats]
        items = _Items(feed, tuple(rows.split(batch_size)), opened.kinds)
        lengths_used = "one length" if same_length else "all lengths"
        subset = opened.test.subset(rows)
        found = fingerprint_of(data.replace(" ", ""), "test", subset, len(usual), count, part, repeats)
        fingerprint = f"{found}, questions of {lengths_used}"
        how = "answers of the data"
        parts.append(Batches(items, opened.mean, opened.std, opened.answers, fingerprint, record, how))
    return parts
