"""Time of each part: forward + backward of ViT-S/16 with it, relative to the plain model, interleaved in one run.

python benchmarks/parts.py [--batch 256] [--compile] [--parts "ContextBroadcast;..."] [--json PATH]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import timing
import torch
import torch.nn.functional as F
from torch import nn

import vitlab
from vitlab.recording.diversification import record_diversification

PARTS = {
    "ContextBroadcast": "ContextBroadcast",
    "ContextBroadcast, upper half": "ContextBroadcast(blocks='upper')",
    "ScaledContextBroadcast": "ScaledContextBroadcast",
    "GatedContextBroadcast": "GatedContextBroadcast",
    "HybridContextBroadcast": "HybridContextBroadcast",
    "SqueezeExcite": "SqueezeExcite",
    "AveragePooling": "AveragePooling",
    "TokenAwarePooling": "TokenAwarePooling",
    "MultiKernelPooling": "MultiKernelPooling",
    "UniformHead A": "UniformHead(form='A')",
    "UniformHead C": "UniformHead(form='C')",
    "LocalAttention k=3": "LocalAttention(kernel=3)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cuda = torch.cuda.is_available()
    parser.add_argument("--batch", type=int, default=256 if cuda else 4)
    parser.add_argument("--model", default="timm/vit_small_patch16_224")
    parser.add_argument("--parts", default=";".join([*PARTS, "ADL"]), help="names, separated by semicolons")
    parser.add_argument("--repeats", type=int, default=9 if cuda else 5)
    parser.add_argument("--inner", type=int, default=10 if cuda else 1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    device = "cuda" if cuda else "cpu"
    torch._dynamo.config.recompile_limit = 64
    names = options.parts.split(";")
    images = torch.randn(options.batch, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (options.batch,), device=device)

    def model(part: str = "") -> nn.Module:
        built = vitlab.load(options.model, seed=0)
        return (vitlab.retrofit(built, part) if part else built).to(device).train()

    def step(model: nn.Module, extra: Callable[[], torch.Tensor] | None = None) -> Callable[[], None]:
        def loss(images: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                value = F.cross_entropy(model(images), labels)
            return value if extra is None else value + extra()

        forward = torch.compile(loss) if options.compile else loss

        def run() -> None:
            model.zero_grad(set_to_none=True)
            forward(images).backward()

        return run

    mode = "compiled" if options.compile else "eager"
    models = {name: model(PARTS[name]) for name in names if name in PARTS}  # all retrofits before any compilation
    runs = {"plain": step(model()), **{name: step(built) for name, built in models.items()}}
    table = timing.ratios(timing.interleaved(runs, options.repeats, options.inner, device), "plain")
    if "ADL" in names:
        table |= diversification(model, step, options.repeats, options.inner, device)
    timing.show(f"{options.model}, batch {options.batch}, {device}, {mode}: forward + backward", table)
    timing.write(options.json, {"model": options.model, "batch": options.batch, "mode": mode, "parts": table})


def diversification(
    model: Callable[[], nn.Module], step: Callable[..., Callable[[], None]], repeats: int, inner: int, device: str
) -> dict[str, dict[str, float]]:
    """Time ADL, which needs a recorder, in a separate comparison with the plain model."""
    plain, trained = model(), model()
    with record_diversification(trained) as tape:

        def loss() -> torch.Tensor:
            value = tape.loss()
            tape.clear()
            return value

        runs = {"plain": step(plain), "ADL": step(trained, loss)}
        table = timing.ratios(timing.interleaved(runs, repeats, inner, device), "plain")
    return {"ADL": table["ADL"]}


if __name__ == "__main__":
    main()
