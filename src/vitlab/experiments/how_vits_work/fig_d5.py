"""HDVW Fig. D.5: the block plan of Alter-ResNet-50 for ImageNet.

The picture is not described in the text, which says that it has 6 MSAs; the plan (0, 1, 3, 2) is the released code's.
"""

from __future__ import annotations

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._block_plans import alternates, build_up, depths_of, property_of, stages_of
from vitlab.experiments.how_vits_work._effects import Reading, claims, fact, own, verdicts

TITLE = "HDVW Fig. D.5: block plan of Alter-ResNet-50 for ImageNet"

PAPER = [Published("Alter-ResNet-50 on ImageNet", "MSAs", 6)]

_MODELS = {"alternet50": "vitlab/alternet50", "MSAs in all stages": "vitlab/alternet50(plan=(1, 2, 3, 2))"}

_COUNT = Reading("MSAs", ("blocks",), lambda found: float(sum(stage.count("MSA") for stage in stages_of(found))))


def _follows_the_build_up_rule(found: Measurement) -> bool:
    stages = stages_of(found)
    counts = tuple(stage.count("MSA") for stage in stages)
    return all(alternates(stage) for stage in stages) and counts == build_up(depths_of(found), sum(counts))


def _alternates_everywhere(found: Measurement) -> bool:
    """Every second block from the end of each stage is an MSA."""
    return all(kind == ("MSA", "Conv")[i % 2] for stage in stages_of(found) for i, kind in enumerate(stage[:0:-1]))


_CHECKS = [
    fact("msas", "AlterNet for ImageNet has 6 MSAs", own(_COUNT, "alternet50"), "App. E", paper=6),
    fact(
        "build_up",
        "MSAs replace every second Conv block from the end of the model",
        property_of("alternet50", "build-up rule", _follows_the_build_up_rule),
        "Sec. 4.1, first rule",
    ),
    fact(
        "swin_like",
        "With all Conv blocks alternately replaced, Conv and MSA blocks alternate in all stages, as in Swin",
        property_of("MSAs in all stages", "alternation in all stages", _alternates_everywhere),
        "App. E",
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The block plans, at every scale."""
    return [Job(arm, "blocks", model=model) for arm, model in _MODELS.items()]


def check(results: Results) -> list[Verdict]:
    """Properties of the plans, exactly."""
    return verdicts(_CHECKS, results)
