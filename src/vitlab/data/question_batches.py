"""Batches of images and questions for ViLT, from memory or from files.

Images of different sizes are padded to the largest of the batch, questions to the longest; masks say what is padding.
The order of the questions is a function of (seed, epoch), so that an epoch can start at any batch.

Shape legend: B batch, b batch of a process, L tokens, A answers, h w pixels.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import functional as F

from vitlab.data.augment import normalise
from vitlab.data.decoding import open_rgb
from vitlab.data.device_copy import per_channel
from vitlab.data.images import Channels
from vitlab.data.order import check_batch_size, epoch_order
from vitlab.data.question_set import PAD, QuestionSet
from vitlab.data.worker_batches import read_batches

__all__ = ["QuestionBatch", "QuestionBatches"]


class QuestionBatch(NamedTuple):
    """The inputs of a step: images (b, 3, h, w), their mask (b, h, w), tokens (b, L) and targets (b, A)."""

    images: Tensor
    mask: Tensor
    tokens: Tensor
    targets: Tensor

    def inputs(self) -> dict[str, Tensor]:
        """Returns the keyword arguments of Hugging Face's ViLT."""
        words = (self.tokens != PAD).long()
        return {
            "input_ids": self.tokens,
            "attention_mask": words,
            "pixel_values": self.images,
            "pixel_mask": self.mask,
        }


@dataclass(frozen=True, eq=False)
class QuestionBatches:
    """Batches of a set of questions.

    Args:
        questions: the questions.
        answers: A, the size of the answer vocabulary.
        mean, std: of the normalisation.
        size: (shortest, longest): files are resized to this shorter side, unless the longer side would exceed the
            second number; both sides are rounded down to a multiple of `multiple`. Images in memory keep their size.
        multiple: the patch size.
        batch_size: B, over all processes.
        seed: of the run.
        steps: batches of an epoch; 0 for one pass over the questions.
        rank, world: rank of this process and number of processes.
        device: device of the batches.
        processes: worker processes that decode files; 0 for none, -1 for one per core up to 8.
        exact: resize files to `size` as (height, width) without keeping their aspect ratio; there is then no padding.
    """

    questions: QuestionSet
    answers: int
    mean: Channels
    std: Channels
    size: tuple[int, int] = (384, 640)
    multiple: int = 32
    batch_size: int = 32
    seed: int = 0
    steps: int = 0
    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processes: int = -1
    exact: bool = False

    def __post_init__(self) -> None:
        """Raise an error if a batch cannot be divided over the processes."""
        check_batch_size(self.batch_size, self.world)

    def __len__(self) -> int:
        """Returns the number of batches of an epoch."""
        full = len(self.questions) // self.batch_size
        return self.steps if self.steps and full else full

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[QuestionBatch]:
        """Yields the batches of an epoch from `start_batch` on; an incomplete last batch of a pass is dropped."""
        yield from self.batches(list(self._plan(epoch, start_batch)))

    def evaluation(self) -> Iterator[tuple[QuestionBatch, Tensor]]:
        """Yields batches of all questions in order, with their rows; a process takes every world-th one."""
        share = max(1, self.batch_size // self.world)
        mine = torch.arange(self.rank, len(self.questions), self.world)
        plan = list(mine.split(share))
        yield from zip(self.batches(plan), plan, strict=True)

    def batches(self, plan: Sequence[Tensor]) -> Iterator[QuestionBatch]:
        """Yields a batch for each tensor of rows."""
        mean, std = per_channel(self.mean, self.device), per_channel(self.std, self.device)
        for rows, (pixels, mask) in zip(plan, self._pictures(plan), strict=True):
            images = normalise(pixels.to(self.device), mean, std).float()
            mask = mask.to(self.device)
            tokens = self.questions.tokens[rows]
            longest = int((tokens != PAD).sum(1).max())
            yield QuestionBatch(
                images * mask[:, None], mask, tokens[:, :longest].long().to(self.device), self._targets(rows)
            )

    def _plan(self, epoch: int, start: int) -> Iterator[Tensor]:
        """The rows of this process in each batch; epochs of `steps` batches continue the passes over the questions."""
        full = len(self.questions) // self.batch_size
        number, end = epoch * len(self) + start, (epoch + 1) * len(self)
        while number < end:
            done, first = divmod(number, full)  # passes, and batches of the current one
            last = min(full, first + end - number)
            order = epoch_order(len(self.questions), done, self.seed)[first * self.batch_size : last * self.batch_size]
            yield from order[self.rank :: self.world].split(self.batch_size // self.world)
            number += last - first

    def _targets(self, rows: Tensor) -> Tensor:
        answers, accuracy = self.questions.answers[rows], self.questions.accuracy[rows]
        targets = torch.zeros(len(rows), self.answers + 1)  # the last column takes the entries that are none
        targets.scatter_(1, torch.where(answers < 0, self.answers, answers), accuracy)
        return targets[:, : self.answers].to(self.device)

    def _pictures(self, plan: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields pixels (b, 3, h, w) uint8 and their mask (b, h, w) for each batch."""
        pictures = self.questions.pictures
        places = [self.questions.image_of[rows] for rows in plan]
        if isinstance(pictures, Tensor):
            for place in places:
                yield pictures[place], torch.ones(len(place), *pictures.shape[-2:], dtype=torch.long)
            return
        processes = min(os.cpu_count() or 1, 8) if self.processes < 0 else self.processes
        files = _Files(pictures, self.size, self.multiple, self.exact)
        plan_of_files = [place.tolist() for place in places]
        yield from read_batches(files, plan_of_files, padded, processes, self.device.type == "cuda")


@dataclass(frozen=True)
class _Files(Dataset[Tensor]):
    """Image files, resized."""

    paths: tuple[Path, ...]
    size: tuple[int, int]
    multiple: int
    exact: bool

    def __getitem__(self, index: int) -> Tensor:
        image = open_rgb(self.paths[index])
        width, height = self.size[::-1] if self.exact else resized(image.size, self.size, self.multiple)
        pixels: Tensor = F.pil_to_tensor(image.resize((width, height), Image.Resampling.BICUBIC))
        return pixels


def resized(size: tuple[int, int], limits: tuple[int, int], multiple: int) -> tuple[int, int]:
    """Returns the sides of a resized image with the same aspect ratio, up to rounding down to a multiple.

    Args:
        size: the two sides.
        limits: target of the shorter side, and largest longer side.
        multiple: of both sides.

    >>> resized((640, 480), (384, 640), 32), resized((1000, 200), (384, 640), 32)
    ((512, 384), (640, 128))
    """
    scale = min(limits[0] / min(size), limits[1] / max(size))
    first, second = (max(multiple, int(side * scale + 0.5) // multiple * multiple) for side in size)
    return first, second


def padded(pictures: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns images (b, 3, h, w) padded at the bottom and right, and the mask (b, h, w) of their pixels.

    >>> images, mask = padded([torch.ones(3, 1, 2), torch.ones(3, 2, 1)])
    >>> images.shape, mask[0].tolist()
    (torch.Size([2, 3, 2, 2]), [[1, 1], [0, 0]])
    """
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (1, 2))
    images = pictures[0].new_zeros(len(pictures), 3, height, width)
    mask = torch.zeros(len(pictures), height, width, dtype=torch.long)
    for number, picture in enumerate(pictures):
        images[number, :, : picture.shape[1], : picture.shape[2]] = picture
        mask[number, : picture.shape[1], : picture.shape[2]] = 1
    return images, mask
