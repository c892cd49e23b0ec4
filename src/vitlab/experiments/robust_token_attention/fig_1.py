"""TAPADL Fig. 1: attention of the last layer on clean and noisy images, and its stability over all layers.

The paper has pictures and distributions only. The severity of the noise is not published; 3 is our choice. At `small`
ViT-Ti on CIFAR-100 replaces FAN-B-Hybrid.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import better
from vitlab.experiments.robust_token_attention._numbers import GINI, MAPS, OVERFOCUS, SIMILARITY, STABILITY
from vitlab.experiments.robust_token_attention._variants import PLAIN, TAP_ADL, jobs

TITLE = "TAPADL Fig. 1: token overfocusing and the stability of attention"

_TITLES = {"plain": "FAN-B-Hybrid", "tap_adl": "FAN-B-Hybrid + TAP & ADL"}
PAPER = [
    Published(title, column, None)
    for title in _TITLES.values()
    for column in ("attention map of the last layer", "cosine similarity of clean and noisy attention")
]

_OVERFOCUS = Claim(
    "gini_tap_adl",
    "TAP & ADL distributes the attention of the last layer more evenly over the tokens (Gini coefficient)",
    source="Fig. 1, left",
)
_STABLE = Claim(
    "similarity_tap_adl",
    "TAP & ADL raises the cosine similarity of attention on clean and noisy images over all layers",
    source="Fig. 1, right",
)
_CHECKS = [better(_OVERFOCUS, GINI, "plain", "tap_adl"), better(_STABLE, SIMILARITY, "plain", "tap_adl")]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """The baseline and TAP & ADL; maps of one network for the picture."""
    variants = (PLAIN, TAP_ADL)
    return jobs(scale, variants, (OVERFOCUS, STABILITY)) + jobs(scale, variants, (MAPS,), seeds=1)


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed, published weights by part of the images."""
    return [each.judge(results) for each in _CHECKS]
