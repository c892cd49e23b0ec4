"""Tiny models for the tests of the explorer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torchvision.transforms import functional as F

from cases import redraw
from vitlab.explore.app import open_explorer
from vitlab.explore.server import ExplorerState
from vitlab.explore.shown_model import ShownModel

PLAIN = "timm/deit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3, num_classes=25)"
MODELS = (PLAIN, f"{PLAIN} | ContextBroadcast()")
SCENES = "scenes(train=25, test=25)"


def sharpen(model: nn.Module) -> nn.Module:
    """Redraw the parameters with large queries and keys: attention of a fresh model is uniform, which tests little."""
    redraw(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.mul_(8 if name.rpartition(".")[0].endswith("qkv") else 3 if "head" in name else 1)
    return model


@contextmanager
def on_show(models: Sequence[str] = MODELS, data: str = SCENES) -> Iterator[tuple[ExplorerState, ThreadPoolExecutor]]:
    """Models and images, opened in a separate thread as the server does."""
    with ThreadPoolExecutor(1) as thread:
        shown = thread.submit(open_explorer, models, data, None, 6, "cpu").result()
        for model in shown.models:
            sharpen(model.model)
        yield shown, thread


def one_model(expression: str = PLAIN, data: str = SCENES) -> ShownModel:
    """One sharpened model with six images, in this thread."""
    shown = open_explorer([expression], data, None, 6, "cpu").models[0]
    sharpen(shown.model)
    return shown


def model_input(shown: ShownModel, image: str = "0") -> Tensor:
    """(1, C, h, w) the normalised image, computed by torchvision."""
    pixels = F.to_tensor(shown.images.picture(image))
    return F.normalize(pixels, shown.preprocessing.mean, shown.preprocessing.std)[None]
