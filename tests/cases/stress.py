"""A tiny classifier of scenes, and scenes in its input format, for the stress tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cases import VIT, redraw
from vitlab.core.batches import Batches
from vitlab.data.scenes import MEAN, STD, draw_scenes


def scenes_model(classes: int = 25) -> nn.Module:
    """A ViT of 32 × 32 images with large weights, so that predictions vary and perturbations change them."""
    import timm

    model = redraw(timm.create_model("vit_tiny_patch16_224", num_classes=classes, **VIT))
    with torch.no_grad():
        model.patch_embed.proj.weight.mul_(8)
        for block in model.blocks:
            for layer in (block.attn.qkv, block.attn.proj, block.mlp.fc2):
                layer.weight.mul_(12)
    return model.eval()


def pixels(count: int, size: int = 32) -> Tensor:
    return draw_scenes(count, size).images.float() / 255


def normalised(images: Tensor) -> Tensor:
    return (images - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(-1, 1, 1)


def answers(model: nn.Module, images: Tensor) -> Tensor:
    """The predictions for pixels: as labels they give a clean accuracy of 1, and every flip is an error."""
    with torch.no_grad():
        return model(normalised(images)).argmax(1)


def scene_batches(model: nn.Module, count: int = 12, batch_size: int = 5, size: int = 32) -> Batches:
    images = pixels(count, size)
    labels = answers(model, images)
    items = list(zip(normalised(images).split(batch_size), labels.split(batch_size), strict=True))
    return Batches(items, MEAN, STD, fingerprint=f"scenes[:{count}]")


class Linear(nn.Module):
    """Logits that are linear in the image, for closed forms."""

    def __init__(self, classes: int = 4, size: int = 8, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(classes, 3 * size * size, generator=generator))

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight.T
