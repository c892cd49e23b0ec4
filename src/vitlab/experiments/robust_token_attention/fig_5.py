"""TAPADL Fig. 5: the stability of attention under noise with TAP, with ADL and with both.

The paper has distributions only. At `small` ViT-Ti on CIFAR-100 replaces FAN-B-Hybrid.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.robust_token_attention._checks import Check, better
from vitlab.experiments.robust_token_attention._numbers import SIMILARITY, STABILITY
from vitlab.experiments.robust_token_attention._variants import FOUR, TITLES, jobs

TITLE = "TAPADL Fig. 5: the stability of attention with TAP and ADL"

PAPER = [
    Published(f"+ {title}" if title else "FAN-B-Hybrid", "cosine similarity of clean and noisy attention", None)
    for title in TITLES.values()
]


def _more_stable(second: str, first: str = "plain") -> Check:
    name = f"similarity_{second}" + ("" if first == "plain" else f"_against_{first}")
    sentence = f"attention with {TITLES[second]} is more stable under noise than with {TITLES[first] or 'neither'}"
    return better(Claim(name, sentence, source="Fig. 5, Sec. 4.1.2"), SIMILARITY, first, second)


_CHECKS = [
    _more_stable("tap"),
    _more_stable("adl"),
    _more_stable("adl", "tap"),
    _more_stable("tap_adl"),
    _more_stable("tap_adl", "adl"),
]
CLAIMS = [each.claim for each in _CHECKS]


def plan(scale: Scale) -> list[Job]:
    """All four variants."""
    return jobs(scale, FOUR, (STABILITY,))


def check(results: Results) -> list[Verdict]:
    """Networks are paired by seed, published weights by part of the images."""
    return [each.judge(results) for each in _CHECKS]
