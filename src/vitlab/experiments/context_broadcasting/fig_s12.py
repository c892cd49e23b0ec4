"""CB Fig. S12: two earlier pictures of the attention of DeiT-B, as statements that can be measured.

He et al.: deep layers attend densely and globally, shallow ones sparsely and locally. Ma et al.: attention is sparser
in DeiT-B than in distilled DeiT-B. The paper measures neither. At `small` only DeiT-Ti is measured.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale, paired
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import by_part, claims_of, effect, verdicts_of
from vitlab.experiments.context_broadcasting._shared import DEIT_TINY, SAMPLE, TOKENS_197, VALIDATION

TITLE = "CB Fig. S12: attention of DeiT-B, shallow and deep, plain and distilled"

PAPER = [Published("DeiT-B", "picture of attention", None), Published("DeiT-B distilled", "picture of attention", None)]

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "small": (
        "DeiT-Ti with its published weights replaces DeiT-B; no distilled network is measured. The figure shows "
        "pictures of other papers, which are replaced by entropy and distance of attention.",
        SAMPLE,
    )
}

_DISTILLED = "timm/deit_base_distilled_patch16_224(pretrained=True)"
_MODELS: dict[Scale, dict[str, str]] = {
    "smoke": {"plain": TOKENS_197},
    "small": {"plain": DEIT_TINY},
    "released": {"plain": "timm/deit_base_patch16_224(pretrained=True)", "distilled": _DISTILLED},
}
_MODELS["full"] = _MODELS["released"]


def _deep_minus_shallow(value: str) -> Callable[[Measurement], float]:
    def difference(found: Measurement) -> float:
        layers = np.nanmean(found.values[value], axis=1)
        half = len(layers) // 2
        return float(layers[half:].mean() - layers[:half].mean())

    return difference


def _density(found: Measurement) -> float:
    return float(np.nanmean(found.values["normalised"]))


def _distilled_minus_plain(results: Results) -> list[float]:
    plain, distilled = (results.by_part(arm, "attention_entropy", _density) for arm in ("plain", "distilled"))
    return paired(plain, distilled)


_CHECKS = [
    by_part(
        Claim(
            "deep is dense",
            "the entropy of attention is higher in the deep half of the layers than in the shallow half",
            source="Sec. B.4, He et al.; at `small` for DeiT-Ti",
            unit="nats",
        ),
        "plain",
        "attention_entropy",
        _deep_minus_shallow("mean"),
    ),
    by_part(
        Claim(
            "deep is global",
            "attention reaches farther in the deep half of the layers than in the shallow half",
            source="Sec. B.4, He et al.; at `small` for DeiT-Ti",
        ),
        "plain",
        "attention_distance",
        _deep_minus_shallow("attended"),
    ),
    effect(
        Claim(
            "plain is sparse",
            "the entropy of attention, divided by its bound, is higher in the distilled model than in the plain one",
            source="Sec. B.4, Ma et al.",
        ),
        _distilled_minus_plain,
    ),
]

CLAIMS = claims_of(_CHECKS)

_PROCEDURES = ("attention_entropy", "attention_distance")


def plan(scale: Scale) -> list[Job]:
    """Two instruments in one pass over images for each model."""
    return [
        Job(arm, procedure, model=model, **VALIDATION[scale])
        for arm, model in _MODELS[scale].items()
        for procedure in _PROCEDURES
    ]


def check(results: Results) -> list[Verdict]:
    """One effect per part of the images."""
    return verdicts_of(_CHECKS, results)
