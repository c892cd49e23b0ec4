"""Tiny folders in the layouts of the published sets, and a model whose prediction is the colour of an image."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.25)


def paint(path: Path, answer: int, size: tuple[int, int] = (8, 8)) -> Path:
    """An image for which `Colours` predicts `answer`: a decimal digit in each channel, far enough apart for JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digits = answer // 100, answer // 10 % 10, answer % 10
    Image.new("RGB", size, tuple(10 + 25 * digit for digit in digits)).save(path, format="JPEG", quality=95)
    return path


def fill(folder: Path, predictions: dict[str, list[int]]) -> None:
    """A folder for each class, with an image for each prediction."""
    for name, answers in predictions.items():
        for i, answer in enumerate(answers):
            paint(folder / name / f"{i}.JPEG", answer)


class Colours(nn.Module):
    """Predicts the class that the colour encodes; the closer another class is to it, the larger its logit."""

    def __init__(self, classes: int = 1000, size: int = 8, **config) -> None:
        super().__init__()
        self.classes, self.seen, self.calls = classes, [], 0
        self.pretrained_cfg = {"mean": MEAN, "std": STD, "input_size": (3, size, size), **config}

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        self.seen.append(tuple(images.shape))
        mean, std = torch.tensor(self.pretrained_cfg["mean"]), torch.tensor(self.pretrained_cfg["std"])
        pixels = images.mean((2, 3)) * std + mean
        digits = ((255 * pixels - 10) / 25).round()
        answers = digits @ torch.tensor([100.0, 10.0, 1.0])
        return -(answers[:, None] - torch.arange(self.classes)).abs()
