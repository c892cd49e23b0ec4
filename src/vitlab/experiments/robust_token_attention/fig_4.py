"""TAPADL Fig. 4: attention of each head in the last layer, and the similarity of heads (0.63 and 0.27 in the text).

The details of the similarity are in a supplement that is not available: the mean over pairs of heads, layers and images
of the cosine of their maps is our choice. A head counts as diagonal if more than half of its attention stays in the
3×3 neighbourhood of a token: our choice as well. At `small` ViT-Ti (3 heads) on CIFAR-100 replaces FAN-B-Hybrid.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale, exact
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better
from vitlab.experiments.robust_token_attention._numbers import DIVERSITY, HEAD_MAPS, HEAD_SIMILARITY, Number
from vitlab.experiments.robust_token_attention._variants import PLAIN, TAP_ADL, jobs

TITLE = "TAPADL Fig. 4: attention of the heads of the last layer"

#: Attention to the 3×3 neighbourhood above which a head counts as diagonal.
DIAGONAL = 0.5
PAPER = [
    Published("FAN-B-Hybrid", "head similarity", 0.63),
    Published("FAN-B-Hybrid + TAP & ADL", "head similarity", 0.27),
    Published("FAN-B-Hybrid", "attention maps of the heads", None),
    Published("FAN-B-Hybrid + TAP & ADL", "attention maps of the heads", None),
]


def _local_and_global(found: Measurement) -> float:
    """Attention to the neighbourhood: the most local head of the last layer minus the most global one."""
    heads = np.asarray(found.values["neighbourhood_mass"])[-1]
    return float(np.nanmax(heads) - np.nanmin(heads))


def _diagonal_heads(found: Measurement) -> float:
    """The number of heads of the last layer with more than half of their attention in the neighbourhood."""
    return float((np.asarray(found.values["neighbourhood_mass"])[-1] > DIAGONAL).sum())


_SIMILARITY = Claim(
    "heads_tap_adl", "TAP & ADL lowers the similarity of attention between heads", paper=0.36, source="Sec. 4.1.2"
)
_BOTH = Claim(
    "local_tap_adl",
    "with TAP & ADL the heads of the last layer differ more in how local they are",
    source="Fig. 4, Sec. 4.1.2: a combination of local and global filters",
)
_TWO = Claim(
    "diagonal_heads",
    "2 of the 8 heads of the last layer of the published FAN-B-Hybrid with TAP & ADL are diagonal",
    paper=2,
    deterministic=True,
    source="Fig. 4, Sec. 4.1.2",
)


def _judge_two(results: Results) -> Verdict:
    found = Number(("attention_diversity",), _diagonal_heads).of(results, "tap_adl", published=True)
    return exact(_TWO, float(np.median(list(found.values()))) if found else None)


_CHECKS = [
    better(_SIMILARITY, HEAD_SIMILARITY, "plain", "tap_adl"),
    better(_BOTH, Number(("attention_diversity",), _local_and_global, unit=""), "plain", "tap_adl"),
    Check(_TWO, _judge_two),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """The baseline and TAP & ADL; maps of one network for the picture."""
    variants = (PLAIN, TAP_ADL)
    return jobs(scale, variants, (DIVERSITY,)) + jobs(scale, variants, (HEAD_MAPS,), seeds=1)


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed, published weights by part of the images."""
    return [each.judge(results) for each in _CHECKS]
