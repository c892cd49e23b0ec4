"""Training throughput of Alter-ResNet-50 against pre-activation ResNet-50 on CIFAR shapes, in one run (HDVW: 1.2x).

python benchmarks/models.py [--batch 96] [--models vitlab/preact_resnet50_cifar,vitlab/alternet50_cifar] [--json PATH]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import timing
import torch
import torch.nn.functional as F

from vitlab import zoo

DEFAULT = "vitlab/preact_resnet50_cifar,vitlab/alternet50_cifar"


def step(expression: str, batch: int, device: str) -> Callable[[], None]:
    model = zoo.load(expression, seed=0).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.25e-4, weight_decay=0.05, fused=device == "cuda")
    images = torch.randn(batch, 3, 32, 32, device=device)
    labels = torch.randint(0, 100, (batch,), device=device)

    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cuda = torch.cuda.is_available()
    parser.add_argument("--batch", type=int, default=96 if cuda else 4)
    parser.add_argument("--models", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=9 if cuda else 5)
    parser.add_argument("--inner", type=int, default=20 if cuda else 1)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    device = "cuda" if cuda else "cpu"
    names = options.models.split(",")
    runs = {name: step(name, options.batch, device) for name in names}
    seconds = timing.interleaved(runs, options.repeats, options.inner, device)
    table = timing.ratios(seconds, names[0])
    timing.show(f"training step on 32x32, batch {options.batch}, {device}, float32", table)
    for name, row in table.items():
        print(f"{name}: {options.batch / row['seconds']:,.0f} images/s, {1 / row['ratio']:.3f}x the first")
    timing.write(options.json, {"batch": options.batch, "models": table})


if __name__ == "__main__":
    main()
