"""Where the robustness of DeiT-Ti is lost: causal traces under three corruptions on images of ImageNet.

    VITLAB_DATA=DATA python examples/causal_trace_deit_tiny.py [--images 32] [--device cuda] [--out runs/causal_trace]

DATA holds `imagenet-val-1000` and `deit_tiny_patch16_224.safetensors`. Measurements that exist are not made again.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import vitlab
from vitlab.runner import measure

CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog")


def main() -> None:
    """Measure, then write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--cells", type=int, default=7)
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, default=Path("runs/causal_trace"))
    given = parser.parse_args()
    weights = Path(os.environ["VITLAB_DATA"]) / "deit_tiny_patch16_224.safetensors"
    model = f"timm/deit_tiny_patch16_224(weights={str(weights)!r})"
    paths: list[Path] = []
    for corruption in CORRUPTIONS:
        settings = f"corruption={corruption!r}, severity={given.severity}, cells={given.cells}, images={given.images}"
        paths += measure(
            [model],
            [f"causal_trace({settings})"],
            given.out,
            data="imagenet",
            images=given.images,
            device=given.device,
            called=["DeiT-Ti"],
        )
    measurements = [vitlab.Measurement.load(path) for path in paths]
    for each in measurements:
        total = float(each.values["total_effect"])
        print(f"{each.settings['corruption']}: total effect {100 * total:.1f} points")
    vitlab.report(measurements, given.out / "report.html")


if __name__ == "__main__":
    main()
