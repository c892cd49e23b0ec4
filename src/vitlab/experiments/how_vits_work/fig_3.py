"""HDVW Fig. 3: three repeating patterns, as block plans. `spatial_smoothing` tests the effect of the first one."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.how_vits_work._block_plans import alternates, property_of, stages_of
from vitlab.experiments.how_vits_work._effects import claims, fact, verdicts

TITLE = "HDVW Fig. 3: block plans of spatial smoothing, canonical Transformer and alternating pattern"

PAPER: list[Published] = []  # a diagram

_MODELS = {
    "spatial smoothing": "vitlab/preact_resnet50_cifar | SpatialSmoothing(at='stage.out', blocks='all')",
    "transformer": "vitlab/vit_tiny_cifar",
    "alternating": "vitlab/alternet50_cifar",
}


def _smooths_at_stage_ends(found: Measurement) -> bool:
    stage = np.asarray(found.values["stage"])
    ends = np.append(stage[1:] != stage[:-1], True)
    smooths = np.array(["SpatialSmoothing" in str(parts) for parts in found.values["parts"]])
    return bool((smooths == ends).all())


def _repeats_one_msa_and_one_mlp(found: Measurement) -> bool:
    kinds = {kind for stage in stages_of(found) for kind in stage}
    return kinds == {"MSA"} and bool(np.asarray(found.values["mlp"]).all())


def _stages_with_msa_end_with_it(found: Measurement) -> bool:
    stages = stages_of(found)
    return any("MSA" in stage for stage in stages) and all(alternates(stage) for stage in stages)


_CHECKS = [
    fact(
        "smoothing_at_stage_ends",
        "Spatial smoothings are located at the end of the CNN stages, and only there",
        property_of("spatial smoothing", "smoothing at stage ends", _smooths_at_stage_ends),
        "Fig. 3, left",
    ),
    fact(
        "canonical_transformer",
        "A ViT is a repetition of one MSA and one MLP",
        property_of("transformer", "one MSA per MLP", _repeats_one_msa_and_one_mlp),
        "Fig. 3, middle; Sec. 1.2",
    ),
    fact(
        "alternating",
        "A stage of the alternating pattern is a number of CNN blocks and ends with an MSA block",
        property_of("alternating", "stages end with MSAs", _stages_with_msa_end_with_it),
        "Fig. 3, right",
    ),
]
CLAIMS = claims(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The block plans, at every scale."""
    return [Job(arm, "blocks", model=model) for arm, model in _MODELS.items()]


def check(results: Results) -> list[Verdict]:
    """Properties of the plans, exactly."""
    return verdicts(_CHECKS, results)
