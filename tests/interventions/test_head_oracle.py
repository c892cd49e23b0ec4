"""Ablated heads of other libraries' models equal a forward whose projection gets zeros in the head's channels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

import vitlab
from cases import redraw
from vitlab.adapters import describe


def swin() -> nn.Module:
    """Swin-Ti's depths, heads, windows and shifts, with a quarter of its channels."""
    return timm.create_model("swin_tiny_patch4_window7_224", embed_dim=24, num_classes=7)


def hugging_face() -> nn.Module:
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    return ViTForImageClassification(ViTConfig(**sizes, image_size=32, patch_size=8))


def logits(output: object) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


@pytest.mark.parametrize("make", [swin, hugging_face])
@torch.no_grad()
def test_an_ablated_head_is_a_zero_slice_of_the_projection_input(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = redraw(make()).eval()
    anatomy = describe(model)
    images = torch.randn(2, 3, *anatomy.input_size)
    plain = logits(model(images))
    for block in anatomy.blocks:
        module = model.get_submodule(block.name)
        linears = {name: each for name, each in module.named_modules() if isinstance(each, nn.Linear)}
        (name,) = [name for name in linears if name in ("attn.proj", "attention.output.dense", "attention.o_proj")]
        heads = getattr(module.get_submodule(name.rpartition(".")[0]), "num_heads", 4)  # 4 of the configuration above
        for head in {0, heads - 1}:

            def zero_slice(layer: nn.Module, arguments: tuple[Tensor], head: int = head, heads: int = heads) -> Tensor:
                x = arguments[0].clone()
                width = x.shape[-1] // heads
                x[..., head * width : (head + 1) * width] = 0
                return x

            handle = linears[name].register_forward_pre_hook(zero_slice)
            expected = logits(model(images))
            handle.remove()
            with vitlab.intervene(model, "ablate", block=block.name, head=head, anatomy=anatomy):
                found = logits(model(images))
            assert torch.equal(found, expected), (block.name, head, float((found - expected).abs().max()))
            assert not torch.equal(found, plain)
    assert torch.equal(logits(model(images)), plain)
