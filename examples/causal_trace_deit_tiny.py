"""Where the robustness of DeiT-Ti is lost: causal traces under three corruptions on images of ImageNet.

    VITLAB_DATA=DATA python examples/causal_trace_deit_tiny.py [--images 32] [--device cuda] [--out runs/causal_trace]
    python examples/causal_trace_deit_tiny.py --smoke    # a tiny untrained model on drawn images, seconds

DATA holds `imagenet-val-1000` and `deit_tiny_patch16_224.safetensors`. Measurements that exist are not made again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import vitlab

SMOKE = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog")


def main() -> None:
    """Measure, then write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--severity", type=int, default=3)
    parser.add_argument("--cells", type=int, default=7)
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, default=Path("runs/causal_trace"))
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    model, data = SMOKE, "scenes(test=64)"
    if given.smoke:
        given.images, given.cells = 2, 2
    elif "VITLAB_DATA" not in os.environ:
        sys.exit("no data: set VITLAB_DATA to the folder with the weights and ImageNet, or try --smoke")
    else:
        weights = Path(os.environ["VITLAB_DATA"]) / "deit_tiny_patch16_224.safetensors"
        model, data = f"timm/deit_tiny_patch16_224(weights={str(weights)!r})", "imagenet"
    measurements: list[vitlab.Measurement] = []
    for corruption in CORRUPTIONS:
        settings = f"corruption={corruption!r}, severity={given.severity}, cells={given.cells}"
        measurements += vitlab.measure_models(
            [model],
            [f"causal_trace({settings})"],
            given.out,
            data=data,
            images=given.images,
            device=given.device,
            called=["DeiT-Ti" if not given.smoke else "tiny ViT"],
        )
    for each in measurements:
        total = float(each.values["total_effect"])
        print(f"{each.settings['corruption']}: total effect {100 * total:.1f} points")
    vitlab.report(measurements, given.out / "report.html")


if __name__ == "__main__":
    main()
