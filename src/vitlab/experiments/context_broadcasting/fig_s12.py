"""CB Fig. S12: two earlier pictures of the attention of DeiT-B, as statements that can be measured.

He et al.: deep layers attend densely and globally, shallow ones sparsely and locally. Ma et al.: attention is sparser
in DeiT-B than in distilled DeiT-B. The paper measures neither. At `small` only DeiT-Ti is measured.
"""

from __future__ import annotations

from functools import partial

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._shared import (
    DEIT_TINY,
    TOKENS_197,
    VALIDATION,
    Reading,
    claims_of,
    measured,
    minus,
    read,
    reading,
    verdicts_of,
)

TITLE = "CB Fig. S12: attention of DeiT-B, shallow and deep, plain and distilled"

PAPER = [Published("DeiT-B", "picture of attention", None), Published("DeiT-B distilled", "picture of attention", None)]

_DISTILLED = "timm/deit_base_distilled_patch16_224(pretrained=True)"
_MODELS: dict[Scale, dict[str, str]] = {
    "smoke": {"plain": TOKENS_197},
    "small": {"plain": DEIT_TINY},
    "released": {"plain": "timm/deit_base_patch16_224(pretrained=True)", "distilled": _DISTILLED},
}
_MODELS["full"] = _MODELS["released"]


def _deep_minus_shallow(results: Results, kind: str, value: str) -> Reading | None:
    found = measured(results, "plain", kind)
    if found is None:
        return None
    half = len(found.values[value]) // 2
    return minus(reading(found, value, slice(half, None)), reading(found, value, slice(half)))


def _distilled_minus_plain(results: Results) -> Reading | None:
    plain, distilled = (measured(results, arm, "attention_entropy") for arm in ("plain", "distilled"))
    if plain is None or distilled is None:
        return None
    return minus(reading(distilled, "normalised"), reading(plain, "normalised"))


_CHECKS = [
    read(
        Claim(
            "deep is dense",
            "the entropy of attention is higher in the deep half of the layers than in the shallow half",
            source="Sec. B.4, He et al.",
        ),
        partial(_deep_minus_shallow, kind="attention_entropy", value="mean"),
    ),
    read(
        Claim(
            "deep is global",
            "attention reaches farther in the deep half of the layers than in the shallow half",
            source="Sec. B.4, He et al.",
        ),
        partial(_deep_minus_shallow, kind="attention_distance", value="attended"),
    ),
    read(
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
    """Judged by the spread over parts of the images."""
    return verdicts_of(_CHECKS, results)
