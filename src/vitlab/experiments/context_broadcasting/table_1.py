"""CB Table 1: uniform attention injected into ViT-S as a head (A, B, C), and as CB and CB_S after the MLP."""

from __future__ import annotations

from functools import partial

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import (
    claims_of,
    count,
    difference,
    one,
    raises,
    table,
    verdicts_of,
)
from vitlab.experiments.context_broadcasting._shared import REPEATED, Network, sizes

TITLE = "CB Table 1: uniform attention injected into ViT-S"

DIFFERENCES = REPEATED

_VIT_S = "timm/deit_small_patch16_224"

#: Arm -> row of the table, part of its model expression, parameters in millions, top-1.
_ROWS: dict[str, tuple[str, str, float, float]] = {
    "plain": ("ViT-S", "", 22, 79.9),
    "uniform_a": ("(A)", " | UniformHead(form='A')", 21, 80.1),
    "uniform_b": ("(B)", " | UniformHead(form='B')", 22, 80.3),
    "uniform_c": ("(C)", " | UniformHead(form='C')", 29, 80.6),
    "cb": ("CB", " | ContextBroadcast(blocks='upper')", 22, 80.8),
    "cb_s": ("CB_S", " | ScaledContextBroadcast", 22, 80.4),
}

PAPER = table(
    ("# Params [M]", "Acc@1 [%]"), {row: (parameters, top1) for row, _, parameters, top1 in _ROWS.values()}
) + table(("additional parameters [%]",), {"CB_S": (0.02,)})


def _millions(results: Results, arm: str) -> float | None:
    parameters = one(results, arm, "sizes", "parameters")
    return None if parameters is None else parameters / 1e6


def _added(results: Results, arm: str) -> float | None:
    """Additional parameters in per cent."""
    plain, added = one(results, "plain", "sizes", "parameters"), difference(results, "plain", arm, "parameters")
    return None if plain is None or added is None else 100 * added / plain


_CHECKS = [
    *(
        count(
            Claim(
                f"{arm}: parameters",
                f"{row} has {parameters:g} M parameters",
                paper=parameters,
                deterministic=True,
                source="Table 1",
                unit="M",
            ),
            partial(_millions, arm=arm),
            tolerance=0.5,
        )
        for arm, (row, _, parameters, _) in _ROWS.items()
    ),
    count(
        Claim("cb: added", "CB adds no parameters to ViT-S", paper=0.0, deterministic=True, source="Sec. 3.2"),
        lambda results: _added(results, "cb"),
    ),
    count(
        Claim(
            "cb_s: added",
            "CB_S adds 0.02 % parameters to ViT-S",
            paper=0.02,
            deterministic=True,
            source="Sec. 3.2; only Λ in all 12 layers gives this number",
            unit="%",
        ),
        lambda results: _added(results, "cb_s"),
        tolerance=0.005,
    ),
    *(
        raises("Acc@1", ("plain", _ROWS["plain"][3]), (arm, top1), row, "Table 1", "ViT-S")
        for arm, (row, _, _, top1) in _ROWS.items()
        if arm != "plain"
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """The counts of ViT-S, and training."""
    jobs = [sizes(arm, f"{_VIT_S}{part}") for arm, (_, part, _, _) in _ROWS.items()]
    for arm in _ROWS:
        jobs += Network("" if arm == "plain" else arm).jobs(scale, arm)
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
