"""HDVW Fig. 11: the block plan of Alter-ResNet-50 for CIFAR-100, and the cost of its MSA blocks (App. E).

The plan (0, 1, 1, 2), MSAs per stage, is inferred from the text: all stages but the first end with an MSA, and two or
more MSAs in stage 3 reduce the accuracy (Sec. 4.1). The released code has (0, 1, 3, 2), the plan of Fig. D.5.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._block_plans import alternates, depths_of, property_of, stages_of
from vitlab.experiments.how_vits_work._effects import Effect, Reading, claims, fact, verdicts

TITLE = "HDVW Fig. 11: block plan of Alter-ResNet-50 for CIFAR-100"

_HEADS = (3, 6, 12, 24)

PAPER = [
    *(Published(f"MSAs of stage {stage}", "heads", heads) for stage, heads in enumerate(_HEADS, start=1)),
    Published("MSAs on CIFAR", "window size", 4),
]

_BLOCKS = {
    "alternet50": "vitlab/alternet50_cifar",
    "preact_resnet50": "vitlab/preact_resnet50_cifar",
    "MSAs in all stages": "vitlab/alternet50_cifar(plan=(1, 2, 3, 2))",
}

#: Multiply-accumulates of the CNN, with an MSA block instead of the last Conv block of stage 3, and without that block.
_SIZES = {
    "Conv": "vitlab/alternet50_cifar(plan=(0, 0, 0, 0))",
    "MSA": "vitlab/alternet50_cifar(plan=(0, 0, 1, 0))",
    "neither": "vitlab/alternet50_cifar(plan=(0, 0, 0, 0), depths=(3, 4, 5, 4))",
}
_MACS = Reading("multiply-accumulates", ("sizes",), lambda found: float(found.values["macs"]))


def _ends_with_msa_except_stage_1(found: Measurement) -> bool:
    first, *others = stages_of(found)
    return "MSA" not in first and all(stage[-1] == "MSA" and alternates(stage) for stage in others)


def _heads_by_stage(found: Measurement) -> bool:
    heads, stage = np.asarray(found.values["heads"]), np.asarray(found.values["stage"])
    return [sorted(set(heads[(stage == each) & (heads > 0)])) for each in np.unique(stage)] == [[h] for h in _HEADS]


def _depths(found: Measurement) -> float:
    """The depths of the stages as one number with a digit per stage."""
    return float("".join(map(str, depths_of(found))))


_DEPTHS = Reading("blocks of the stages", ("blocks",), _depths)

_CHECKS = [
    fact(
        "stage_ends",
        "All stages except stage 1 end with an MSA block, and MSA blocks alternate with Conv blocks",
        property_of("alternet50", "stages 2 to 4 end with MSAs", _ends_with_msa_except_stage_1),
        "Fig. 11",
    ),
    fact(
        "heads",
        "MSAs in stages 1 to 4 have 3, 6, 12 and 24 heads",
        property_of("MSAs in all stages", "heads by stage", _heads_by_stage),
        "Fig. 11",
    ),
    fact(
        "even_last_stage",
        "AlterNet has the blocks of pre-activation ResNet-50 and one more in the last stage",
        Effect(
            ((_DEPTHS, "alternet50"), (_DEPTHS, "preact_resnet50")),
            lambda depths: float(depths[0] == depths[1] + 1 and depths[0] % 2 == 0),
        ),
        "App. E",
    ),
    fact(
        "equal_costs",
        "An MSA block costs as many multiply-accumulates as the Conv block that it replaces, within 10 % (stage 3)",
        Effect(
            tuple((_MACS, arm) for arm in _SIZES),
            lambda macs: (macs[1] - macs[2]) / (macs[0] - macs[2]),
        ),
        "App. E: almost the same; 10 % is our choice",
        paper=1.0,
        tolerance=0.1,
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Block plans and sizes, at every scale."""
    return [
        *(Job(arm, "blocks", model=model) for arm, model in _BLOCKS.items()),
        *(Job(arm, "sizes", model=model) for arm, model in _SIZES.items()),
    ]


def check(results: Results) -> list[Verdict]:
    """Properties of the plans, exactly."""
    return verdicts(_CHECKS, results)
