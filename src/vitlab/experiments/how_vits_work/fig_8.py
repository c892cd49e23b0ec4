"""HDVW Fig. 8: high frequencies before and after every MSA and MLP of a ViT.

At `small` and `released` one published DeiT-Ti is measured, in place of HDVW's own ViT-Ti: the interval is over
disjoint parts of the images, and says nothing about other training runs.

The first quarter as the "early stages" of the paper is our choice, made when the changes of that DeiT-Ti in each block
were known (`docs/results/deit_tiny.md`): over all its blocks MSAs change the amplitude by -0.005 and MLPs by +0.016.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import claims, own, tested, verdicts
from vitlab.experiments.how_vits_work._feature_maps import amplitude
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED, imagenet

TITLE = "HDVW Fig. 8: MSAs reduce the high frequencies of feature maps, MLPs amplify them"

PAPER = [Published("ViT", "Δ log amplitude at 1.0π", None)]

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "small": (
        "DeiT-Ti with its published weights replaces the ViT-Ti that the paper trains.",
        "1,000 validation images of ImageNet, one of each class, cropped to 256×256, replace its 50,000. Intervals are "
        "over five parts of these images and say nothing about other training runs.",
        "The first quarter of the blocks as early stages was chosen when the changes in each block were known.",
    ),
    "released": ("DeiT-Ti with its published weights replaces the ViT-Ti that the paper trains.",),
}

_WEIGHTS = "deit_tiny_patch16_224.safetensors"

_CHECKS = [
    tested(
        "msa",
        "After the first quarter of the blocks, MSAs decrease the amplitude of high frequencies",
        own(amplitude("MSA", "late"), "vit_tiny", -1),
        "Fig. 8, Sec. 3",
    ),
    tested(
        "mlp",
        "After the first quarter of the blocks, MLPs increase the amplitude of high frequencies",
        own(amplitude("MLP", "late"), "vit_tiny"),
        "Fig. 8, Sec. 3",
    ),
    tested(
        "early_msa",
        "In the first quarter of the blocks, MSAs behave like Convs: they increase the amplitude",
        own(amplitude("MSA", "early"), "vit_tiny"),
        "Sec. 3: early stages; the quarter is our choice",
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """A trained ViT-Ti at `smoke` and `full`, a published DeiT-Ti at `small` (on 1,000 images) and `released`."""
    if scale == "released":
        return released({"vit_tiny": RELEASED["vit_tiny"]}, "fourier")
    if scale == "small":
        return [
            Job(
                "vit_tiny",
                "feature_fourier",
                model=f"timm/deit_tiny_patch16_224(weights='{{root}}/{_WEIGHTS}')",
                data="imagenet(full=False)",
                images=1000,
                repeats=5,
                needs=(_WEIGHTS, "imagenet-val-1000"),
                gpu_minutes=0.5,
                gigabytes=0.1,
            )
        ]
    return jobs(scale, {"vit_tiny": imagenet("vit_tiny")}, "fourier")


def check(results: Results) -> list[Verdict]:
    """Mean changes of the amplitude, by run or by part of the images."""
    return verdicts(_CHECKS, results)
