"""A plugin file with one extension of each kind; the tests load it through VITLAB_PLUGINS and as a package."""

from __future__ import annotations

import numpy as np
import timm
import torch
from timm.models import VisionTransformer, register_model
from torch import Tensor, nn

from vitlab.core.experiment import Claim, Job, exact
from vitlab.core.measurement import Card, Measurement
from vitlab.core.recipe import Augment, Recipe
from vitlab.data.scene_set import open_scenes

VITLAB = {
    "parts": ["Halve"],
    "losses": ["confidence"],
    "instruments": ["weight_norm"],
    "stress_tests": ["inverted"],
    "adapters": ["stacked_adapter"],
    "models": ["plugin_vit"],
    "data": ["few_scenes"],
    "recipes": ["plugin_recipe"],
    "figures": {"weight_norm": "weight_norm_figure"},
    "experiments": ["plugin_experiment"],
}


class Halve(nn.Module):
    """Multiplies tokens by one half."""

    default_seam = "mlp.out"

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


def confidence(logits: Tensor, labels: Tensor, power: float = 2.0) -> Tensor:
    """The mean of a power of the largest probability."""
    return logits.softmax(1).amax(1).pow(power).mean()


class weight_norm:  # noqa: N801
    """The Euclidean norm of all weights."""

    CARD = Card(title="Norm of all weights", paper="", cost="no forward", inputs="images", passes="none")

    @staticmethod
    def measure(model: nn.Module, batches: object, *, scale: float = 1.0) -> Measurement:
        norm = scale * float(torch.cat([each.detach().flatten() for each in model.parameters()]).norm())
        return Measurement("weight_norm", type(model).__name__, {"norm": np.array(norm)}, {"norm": ()})


class inverted:  # noqa: N801
    """Predictions that change when the sign of the images changes."""

    CARD = Card(title="Inverted images", paper="", cost="two forwards", inputs="images", passes="one")

    @staticmethod
    def measure(model: nn.Module, batches: object) -> Measurement:
        changed = []
        with torch.no_grad():
            for item in batches:  # type: ignore[attr-defined]
                images = item[0] if isinstance(item, tuple | list) else item
                changed.append(model(images).argmax(1) != model(-images).argmax(1))
        return Measurement(
            "inverted", "", {"changed": np.array(float(torch.cat(changed).float().mean()))}, {"changed": ()}
        )


class Stacked(nn.Module):
    """A model of a library that vitlab does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=24, depth=2)

    def forward(self, images: Tensor) -> Tensor:
        return self.inner(images)


class stacked_adapter:  # noqa: N801
    """Describes `Stacked` as a separate family without blocks."""

    FAMILIES = {"stacked": "Stacked()"}  # noqa: RUF012
    CLASSES = (f"{__name__}.Stacked",)
    ABSENT = {"mlp.in": "blocks are not described"}  # noqa: RUF012

    @staticmethod
    def family(model: nn.Module) -> str:
        return "stacked"

    @staticmethod
    def blocks(model: nn.Module, flow: object) -> list[object]:
        return []


@register_model
def plugin_vit(pretrained: bool = False, **settings: object) -> nn.Module:
    """A tiny ViT."""
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, **settings}
    chosen = {name: value for name, value in small.items() if not name.startswith(("pretrained", "cache_dir"))}
    return VisionTransformer(**chosen)


def few_scenes(location: object, count: int = 8) -> object:
    """A few scenes of 32×32."""
    return open_scenes(count, count, 32)


def plugin_recipe(epochs: int = 1) -> Recipe:
    """A run on a few scenes."""
    return Recipe(
        "vitlab/plugin_vit", "few_scenes(count=8)", image_size=(32, 32), epochs=epochs, batch_size=4, augment=Augment()
    )


def weight_norm_figure(measurements: object) -> list[object]:
    """Draws nothing; a figure is a function of measurements."""
    from vitlab.reporting.drawing import Figure, empty_plot

    return [Figure("a figure of a plugin", "", empty_plot("x", "y"))]


class plugin_experiment:  # noqa: N801
    """An experiment with one deterministic claim."""

    TITLE = "Plugin: the number of parameters"
    PAPER = ()
    CLAIMS = (Claim("count", "the model has parameters", deterministic=True),)

    @staticmethod
    def plan(scale: str) -> list[Job]:
        return [Job("plain", "sizes", model="vitlab/plugin_vit")]

    @staticmethod
    def check(results: object) -> list[object]:
        return [exact(plugin_experiment.CLAIMS[0], 1.0)]
