"""Tiny models and batches, as data.

Each family's case is a builder of a small model that runs in milliseconds, and its input images. Randomly initialised
models make vacuous tests (zero-initialised scales hide a part, Mixer gives the same logits for any image), so every
model's parameters are redrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A family, a builder of a tiny model of it, and the size of the images."""

    family: str
    build: Callable[[], nn.Module]
    size: tuple[int, int] = (32, 32)
    text: bool = False  # takes token ids beside the image
    classifier: bool = True  # returns logits (B, C)

    @property
    def takes_images(self) -> bool:
        """Whether images are the only input; ViLT also takes a text, SigLIP 2 takes patches with a mask."""
        return list(self.inputs(batch=1)) == [""]

    def model(self, seed: int = 0) -> nn.Module:
        return redraw(self.build(), seed).eval()

    def inputs(self, seed: int = 1, batch: int = 2) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(batch, 3, *self.size, generator=generator)
        if self.text:
            return {"input_ids": torch.randint(0, 50, (batch, 6), generator=generator), "pixel_values": images}
        return {"": images}

    def logits(self, model: nn.Module, seed: int = 1) -> Tensor:
        return run(model, self.inputs(seed))


def run(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """The logits in the output of any library."""
    positional = [value for name, value in inputs.items() if not name]
    output = model(*positional, **{name: value for name, value in inputs.items() if name})
    for field in ("logits", "pooler_output", "last_hidden_state"):
        value = getattr(output, field, None)
        if isinstance(value, Tensor):
            return value
    return output


def redraw(model: nn.Module, seed: int = 0) -> nn.Module:
    """Draw every parameter again (normal, 0.05; norm weights 1 ± 0.1), and the running statistics of BatchNorm."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
        for module in model.modules():
            if "norm" in type(module).__name__.lower() and isinstance(getattr(module, "weight", None), nn.Parameter):
                module.weight.copy_(1 + 0.1 * torch.randn(module.weight.shape, generator=generator))
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                module.running_mean.copy_(0.1 * torch.randn(module.running_mean.shape, generator=generator))
                module.running_var.copy_(1 + 0.1 * torch.rand(module.running_var.shape, generator=generator))
    return model


def timm_model(name: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of a timm model, with few classes."""

    def build() -> nn.Module:
        import timm

        return timm.create_model(name, num_classes=7, **settings)

    return build


VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}

CASES = [
    Case("vit", timm_model("vit_tiny_patch16_224", **VIT)),
    Case("deit", timm_model("deit_tiny_patch16_224", **VIT)),
    Case("deit_distilled", timm_model("deit_tiny_distilled_patch16_224", **VIT)),
    Case("deit3", timm_model("deit3_small_patch16_224", **VIT)),
]
