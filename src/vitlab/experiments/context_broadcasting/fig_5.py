"""CB Fig. 5: the gradient of softmax is largest around uniform attention.

‖J‖_* = λ Σ_j (a_j − a_j²) is at most λ (1 − 1/N), for uniform attention only. This is a closed form, judged at every
scale: on the plane of two logits (the figure), along rows from one key to uniform, and on the rows of a model.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import by_part, claims_of, holds, measured, verdicts_of
from vitlab.experiments.context_broadcasting._shared import DEIT_TINY, SAMPLE, TOKENS_197, VALIDATION

TITLE = "CB Fig. 5: gradient of softmax around uniform attention"

PAPER = [Published("softmax of two logits", "surface", None)]

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "small": (
        "The figure is a closed form. The claim about a trained model, for which the paper names no network, is "
        "measured on DeiT-Ti with its published weights.",
        SAMPLE,
    )
}

_MODELS: dict[Scale, str] = {
    "smoke": TOKENS_197,
    "small": DEIT_TINY,
    "released": "timm/deit_small_patch16_224(pretrained=True)",
    "full": "timm/deit_small_patch16_224(pretrained=True)",
}


def _found(results: Results) -> Measurement | None:
    return measured(results, "ViT", "softmax_gradient")


def _steepest_on_the_diagonal(results: Results) -> bool | None:
    found = _found(results)
    if found is None:
        return None
    norm = found.values["plane_norm"]
    diagonal = np.eye(len(norm), dtype=bool)
    return bool(norm[diagonal].min() > norm[~diagonal].max())


def _grows_towards_uniform(results: Results) -> bool | None:
    found = _found(results)
    return None if found is None else bool((np.diff(found.values["curve_norm"]) > 0).all())


def _below_the_bound(results: Results) -> bool | None:
    found = _found(results)
    if found is None:
        return None
    return bool((np.nanmax(found.values["mean"], axis=1) <= found.values["bound"] + 1e-6).all())


def _correlation(found: Measurement) -> float:
    return float(np.nanmean(found.values["correlation"]))


_CHECKS = [
    holds(
        Claim(
            "steepest at x1 = x2",
            "the gradient of softmax over two logits is largest where x1 = x2, and smaller everywhere else",
            deterministic=True,
            source="Fig. 5",
        ),
        _steepest_on_the_diagonal,
    ),
    holds(
        Claim(
            "grows towards uniform",
            "the gradient grows without exception from a row with one key to the uniform row",
            deterministic=True,
            source="Sec. 3.1",
        ),
        _grows_towards_uniform,
    ),
    holds(
        Claim(
            "bound",
            "in no layer and head is the mean gradient above its value for uniform attention, 1 - 1/N",
            deterministic=True,
            source="Sec. 3.1",
        ),
        _below_the_bound,
    ),
    by_part(
        Claim(
            "denser is steeper",
            "rows of a trained model with more entropy have a larger gradient (correlation above 0)",
            source="Sec. 3.1: the gradient is steeper with denser attention maps",
        ),
        "ViT",
        "softmax_gradient",
        _correlation,
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """One pass over images; the closed forms do not depend on them."""
    return [Job("ViT", "softmax_gradient", model=_MODELS[scale], **VALIDATION[scale])]


def check(results: Results) -> list[Verdict]:
    """The first three claims are exact."""
    return verdicts_of(_CHECKS, results)
