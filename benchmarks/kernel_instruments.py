"""Rows of `benchmarks/kernels.py` about instruments: relative to a forward pass, and to what a user would write."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import timing
import timm
import torch
from torch import Tensor, nn

from vitlab.instruments import measure, measure_together

Row = tuple[str, Callable[[], dict[str, Any]]]
TOGETHER = (
    "attention_entropy",
    "attention_distance",
    "attention_diversity",
    "token_overfocus",
    "feature_fourier",
    "feature_variance",
)


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """DeiT-Ti in float32; each row is a ratio to the forward passes that it needs.

    A measurement also describes the model, computes the digest of its weights and summarises: that is a smaller share
    of more batches.
    """
    for count in (1,) if options.smoke else (8, 32) if options.device == "cuda" else (2,):
        after = f", {count} batches"
        yield (
            f"attention_entropy / forward{after}",
            partial(_instrument, options, ("attention_entropy",), count, 1, 1.10),
        )
        yield f"six instruments / forward{after}", partial(_instrument, options, TOGETHER, count, 1, 1.25)
        stability = partial(_instrument, options, ("attention_stability",), count, 2, 1.05)
        yield f"attention_stability / two forwards{after}", stability
    yield "a hook on unfused attention / forward", partial(_alternative, options, _hooked)
    yield "Hugging Face, output_attentions / forward", partial(_alternative, options, _output_attentions)


def _model(options: argparse.Namespace) -> tuple[nn.Module, Tensor]:
    small = {"depth": 2, "img_size": 64} if options.smoke else {}
    model = timm.create_model("deit_tiny_patch16_224", **small).to(options.device).eval()
    model.pretrained_cfg = (
        {**model.pretrained_cfg, "input_size": (3, 64, 64)} if options.smoke else model.pretrained_cfg
    )
    size, batch = (64, 2) if options.smoke else (224, 256 if options.device == "cuda" else 32)
    return model, torch.rand(batch, 3, size, size, generator=torch.Generator().manual_seed(0)).to(options.device)


def _instrument(
    options: argparse.Namespace, names: tuple[str, ...], count: int, forwards: int, goal: float
) -> dict[str, Any]:
    model, images = _model(options)
    batches = [images] * count
    given = {"mean": (0.5,) * 3, "std": (0.5,) * 3} if names == ("attention_stability",) else {}

    def measured() -> object:
        return (
            measure(names[0], model, batches, **given) if len(names) == 1 else measure_together(names, model, batches)
        )

    return _ratio(options, lambda: _forward(model, batches * forwards), measured) | {"goal": goal}


def _alternative(options: argparse.Namespace, make: Callable[..., tuple[Any, Any]]) -> dict[str, Any]:
    plain, changed = make(options)
    return _ratio(options, plain, changed)


def _ratio(options: argparse.Namespace, plain: Callable[[], object], changed: Callable[[], object]) -> dict[str, Any]:
    found = timing.interleaved({"plain": plain, "changed": changed}, options.repeats, 1, options.device)
    row: dict[str, Any] = dict(timing.ratios(found, "plain")["changed"])
    if options.device == "cuda":
        row["mib_beyond_a_forward"] = (_peak(changed) - _peak(plain)) / 2**20
    return row


def _peak(run: Callable[[], object]) -> int:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run()
    return torch.cuda.max_memory_allocated()


@torch.no_grad()
def _forward(model: nn.Module, batches: list[Tensor]) -> None:
    for images in batches:
        model(images)


def _hooked(options: argparse.Namespace) -> tuple[Callable[[], object], Callable[[], object]]:
    """Attention without the fused function, and a hook on the maps that computes their entropy."""
    model, images = _model(options)
    unfused, _ = _model(options)
    found: list[Tensor] = []

    def entropy(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        found.append(torch.special.entr(arguments[0]).sum(-1).mean((0, 2)))

    for block in unfused.blocks:  # type: ignore[union-attr, operator]
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_pre_hook(entropy)

    def hooked() -> Tensor:
        found.clear()
        _forward(unfused, [images] * 4)
        return torch.stack(found).cpu()

    return lambda: _forward(model, [images] * 4), hooked


def _output_attentions(options: argparse.Namespace) -> tuple[Callable[[], object], Callable[[], object]]:
    """Hugging Face's eager attention with `output_attentions=True`, relative to its fused attention."""
    from transformers import ViTConfig, ViTModel

    size = 64 if options.smoke else 224
    shape = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "image_size": size}
    fused, eager = (
        ViTModel(ViTConfig(**shape, num_hidden_layers=2 if options.smoke else 12, attn_implementation=how))
        .to(options.device)
        .eval()
        for how in ("sdpa", "eager")
    )
    _, images = _model(options)

    @torch.no_grad()
    def run() -> list[Tensor]:
        found = []
        for _ in range(4):
            maps = eager(images, output_attentions=True).attentions
            found += [torch.special.entr(each).sum(-1).mean((0, 2)) for each in maps]
            del maps  # before the next forward, as a user who measures memory would write it
        return [each.cpu() for each in found]

    return lambda: _forward(fused, [images] * 4), run


def large(options: argparse.Namespace) -> dict[str, Any]:
    """Entropy, distance and received attention of DeiT-S on a 2048-pixel image (N = 16,385)."""
    size = 128 if options.smoke else 2048
    model = timm.create_model("deit_small_patch16_224", img_size=size).to(options.device).eval()
    model.pretrained_cfg = {**model.pretrained_cfg, "input_size": (3, size, size)}
    images = torch.rand(1, 3, size, size, device=options.device)
    names = ("attention_entropy", "attention_distance", "token_overfocus")
    runs = {"plain": lambda: _forward(model, [images]), "changed": lambda: measure_together(names, model, [images])}
    row: dict[str, Any] = dict(timing.ratios(timing.interleaved(runs, 2, 1, options.device), "plain")["changed"])
    if options.device == "cuda":
        beyond = _peak(runs["changed"]) - _peak(runs["plain"])
        tokens = (size // 16) ** 2 + 1
        row |= {"mib_beyond_a_forward": beyond / 2**20, "of_one_layers_maps": beyond / (4 * 6 * tokens**2)}
    return row
