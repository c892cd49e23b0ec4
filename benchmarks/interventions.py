"""Time of one forward with an intervention, relative to a plain forward of the same model.

python benchmarks/interventions.py [--model timm/deit_tiny_patch16_224] [--batch 16] [--repeats 9] [--json PATH]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timing
import torch

import vitlab
from vitlab.adapters import describe
from vitlab.interventions import activations


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="timm/deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    model = vitlab.load(given.model, seed=0).eval().to(given.device)
    anatomy = describe(model)
    images = torch.randn(given.batch, 3, *anatomy.input_size, device=given.device)
    block = anatomy.blocks[len(anatomy.blocks) // 2].name
    stream = activations(model, images, block=block, anatomy=anatomy)
    heads = activations(model, images, block=block, heads=True, anatomy=anatomy)

    def with_change(action: str, **settings: Any) -> Callable[[], Any]:
        def run() -> Any:
            with vitlab.intervene(model, action, block=block, anatomy=anatomy, **settings):
                return model(images)

        return run

    runs = {
        "plain forward": lambda: model(images),
        "patch the residual stream of one block": with_change("patch", source=stream),
        "patch one token of one block": with_change("patch", source=stream, tokens=[0]),
        "patch one head": with_change("patch", source=heads, head=0),
        "ablate one head": with_change("ablate", head=0),
    }
    with torch.no_grad():
        seconds = timing.interleaved(runs, given.repeats, device=given.device)
    table = timing.ratios(seconds, "plain forward")
    timing.show(f"{given.model}, batch {given.batch}, {given.device}", table)
    if given.json:
        timing.write(given.json, {"interventions": table})


if __name__ == "__main__":
    main()
