"""CB Table S14: hierarchical and local ViTs with CB (the supplement's Table S3 loses the row PVTv2-B1).

At `small` only Swin-Ti for images of 32×32, on CIFAR-100. At `released` the models without CB, with the weights of
their authors: `weights/pvt_small.pth` and `weights/localvit_tiny_mlp4_act3_r192.pth` below the data root, and timm's.
These were trained for 300 epochs, not for the 120 and 150 of the table; weights with CB are not published.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting import _architectures
from vitlab.experiments.context_broadcasting._architectures import Architecture
from vitlab.experiments.context_broadcasting._checks import claims_of, table, verdicts_of

TITLE = "CB Table S14: PVT, LocalViT, PVTv2 and Swin with CB"

_PVT = "embed_dims=(8, 16), mlp_ratios=(2, 2), sr_ratios=(2, 1), depths=(1, 2), num_heads=(1, 2), num_classes=25"
_ROWS = {
    "pvt_small": Architecture(
        "PVT-S",
        76.7,
        77.3,
        macs=3.8,
        epochs=120,
        smoke=f"vitlab/pvt_tiny(img_size=32, {_PVT})",
        pretrained="vitlab/pvt_small(weights='{root}/weights/pvt_small.pth')",
        weights="weights/pvt_small.pth",
    ),
    "local_vit_tiny": Architecture(
        "LocalViT-Ti",
        69.4,
        72.5,
        macs=1.3,
        epochs=150,
        smoke="vitlab/local_vit_tiny(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)",
        pretrained="vitlab/local_vit_tiny(weights='{root}/weights/localvit_tiny_mlp4_act3_r192.pth')",
        weights="weights/localvit_tiny_mlp4_act3_r192.pth",
    ),
    "pvt_v2_b1": Architecture(
        "PVTv2-B1",
        76.4,
        76.5,
        macs=2.1,
        epochs=120,
        smoke=f"timm/pvt_v2_b0({_PVT})",
        pretrained="timm/pvt_v2_b1(pretrained=True)",
    ),
    "swin_tiny": Architecture(
        "Swin-Ti",
        79.3,
        79.5,
        macs=4.5,
        epochs=120,
        smoke="vitlab/swin_tiny_cifar(patch_size=4, embed_dim=8, depths=(2, 2), num_heads=(2, 2), num_classes=25)",
        small="vitlab/swin_tiny_cifar(num_classes=100, drop_path_rate=0.1)",
        pretrained="timm/swin_tiny_patch4_window7_224(pretrained=True)",
    ),
}

PAPER = table(
    ("ACC@1 [%]",),
    {
        f"{row.name} + Ours" if ours else row.name: (row.cb if ours else row.plain,)
        for row in _ROWS.values()
        for ours in (False, True)
    },
)
_CHECKS = _architectures.checks(_ROWS, "Table S14")
CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Training with and without CB."""
    return _architectures.jobs(scale, _ROWS)


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
