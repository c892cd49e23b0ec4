"""HDVW Fig. E.1: accuracy on ImageNet and mean accuracy on ImageNet-C of CNNs, ViTs and AlterNet.

No weights of AlterNet on ImageNet are published: its claims need `full`. That the build-up rule improves
post-activation ResNet and ResNeXt too is stated without numbers: tested on CIFAR-100.
"""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._effects import Effect, claims, more, tested, verdicts
from vitlab.experiments.how_vits_work._jobs import jobs, released
from vitlab.experiments.how_vits_work._networks import RELEASED, alternet, arms, imagenet
from vitlab.experiments.how_vits_work._readings import ACCURACY, ROBUSTNESS
from vitlab.experiments.how_vits_work._shared import POINTS, SEEDS

TITLE = "HDVW Fig. E.1: MSAs with the build-up rules improve ResNet on ImageNet"

_TRAINED = ("resnet50", "preact_resnet50", "vit_tiny", "alternet50")

PAPER = [
    Published(name, column, None, runs=name in RELEASED or name in _TRAINED)
    for name in ("preact_resnet50", "alternet50", *RELEASED)
    for column in ("accuracy", "robustness")
]

_PLAN, _CONVOLUTIONS = (0, 1, 1, 2), (0, 0, 0, 0)
_BASES = {"resnet": "post-activation ResNet", "resnext": "ResNeXt"}


def _on_par(values: Sequence[float]) -> float:
    """How much closer AlterNet is to Swin than it is above its ResNet."""
    resnet, own, swin = values
    return own - resnet - abs(own - swin)


_CHECKS = [
    tested(
        "accuracy",
        "On ImageNet AlterNet is more accurate than its pre-activation ResNet",
        more(ACCURACY, "alternet50", "preact_resnet50"),
        "Fig. E.1",
        smallest=POINTS,
    ),
    tested(
        "robustness",
        "On ImageNet-C AlterNet has a higher mean accuracy than its pre-activation ResNet",
        more(ROBUSTNESS, "alternet50", "preact_resnet50"),
        "Fig. E.1",
        smallest=POINTS,
    ),
    tested(
        "on_par_with_swin",
        "On ImageNet the accuracy of AlterNet is closer to Swin's than it is above its ResNet's",
        Effect(tuple((ACCURACY, arm) for arm in ("preact_resnet50", "alternet50", "swin_tiny")), _on_par, "points"),
        "App. E: on par",
        smallest=POINTS,
    ),
    tested(
        "vits_above_cnns",
        "On ImageNet Swin is more accurate than ResNet",
        more(ACCURACY, "swin_tiny", "resnet50"),
        "App. E: a number of ViTs outperform CNNs",
        smallest=POINTS,
    ),
    *(
        tested(
            f"rule_{base}",
            f"The build-up rule raises the accuracy of {name}",
            more(ACCURACY, f"{base}, MSAs {_PLAN}", f"{base}, MSAs {_CONVOLUTIONS}"),
            "App. E",
            smallest=POINTS,
        )
        for base, name in _BASES.items()
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Published weights at `released`; training on ImageNet at `full`; other bases of AlterNet on CIFAR-100."""
    if scale == "released":
        return released(RELEASED, "fit", "imagenet_c")
    bases = {f"{base}, MSAs {plan}": alternet(plan, base) for base in _BASES for plan in (_PLAN, _CONVOLUTIONS)}
    rule = jobs(scale, bases, "fit")
    if scale == "small":
        return rule
    if scale == "smoke":
        return [*rule, *jobs(scale, arms((*_TRAINED, "swin_tiny")), "fit", "imagenet_c")]
    others = {name: model for name, model in RELEASED.items() if name not in _TRAINED}
    return [
        *rule,
        *jobs(scale, {name: imagenet(name) for name in _TRAINED}, "fit", "imagenet_c"),
        *released(others, "fit", "imagenet_c", seeds=SEEDS[scale]),
    ]


def check(results: Results) -> list[Verdict]:
    """Differences paired by seed, or by part of the images."""
    return verdicts(_CHECKS, results)
