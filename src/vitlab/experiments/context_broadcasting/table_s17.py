"""CB Table S17: CB, CB_gate and CB_hybrid at Front, Mid and End of the MLP of ViT-S, in all layers (supplement: S6).

The best position of CB_hybrid is Front here (80.5; End 80.3), but Table S16 has 80.5 for the same network at End.
"""

from __future__ import annotations

from functools import partial

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import (
    COLUMNS,
    claims_of,
    count,
    gain,
    one,
    raises,
    table,
    verdicts_of,
)
from vitlab.experiments.context_broadcasting._shared import MODULES, REPEATED, Network, sizes

TITLE = "CB Table S17: CB, CB_gate and CB_hybrid in the MLP"

DIFFERENCES = REPEATED

_VIT_S = "timm/deit_small_patch16_224"
_CLASSES = {"cb": "ContextBroadcast", "cb_gate": "GatedContextBroadcast", "cb_hybrid": "HybridContextBroadcast"}
_SEAMS = {"front": "mlp.in", "mid": "mlp.mid", "end": "mlp.out"}

#: Module and position -> additional FLOPs in millions, top-1, top-5.
_ROWS = {
    ("cb", "front"): (0.9, 79.9, 94.8),
    ("cb", "mid"): (3.6, 80.5, 95.2),
    ("cb", "end"): (0.9, 80.5, 95.3),
    ("cb_gate", "front"): (0.9, 80.3, 94.9),
    ("cb_gate", "mid"): (3.6, 80.2, 95.1),
    ("cb_gate", "end"): (0.9, 80.4, 95.1),
    ("cb_hybrid", "front"): (1.8, 80.5, 95.0),
    ("cb_hybrid", "mid"): (7.3, 80.1, 95.1),
    ("cb_hybrid", "end"): (1.8, 80.3, 95.0),
}


def _arm(part: str, position: str) -> str:
    return f"{part} at {position}"


PAPER = table(
    ("FLOPs [M]", "Acc@1 [%]", "Acc@5 [%]"),
    {
        "ViT-S": (1260, 79.9, 95.0),
        **{f"+{MODULES[part]} at {position}": values for (part, position), values in _ROWS.items()},
    },
)

#: Module -> its best position in the table, and the second best.
_BEST = {"cb": ("end", "front"), "cb_gate": ("end", "front"), "cb_hybrid": ("front", "end")}


def _millions(results: Results, arm: str, value: str) -> float | None:
    found = one(results, arm, "sizes", value)
    return None if found is None else found / 1e6


_BASE = Claim(
    "plain: FLOPs",
    "ViT-S has 1260 M FLOPs",
    paper=1260,
    deterministic=True,
    source="Table S17; Table 4 prints 4.6 G, and 1260 M is the count of ViT-Ti",
    unit="M",
)
_CHECKS = [
    count(_BASE, partial(_millions, arm="plain", value="macs"), tolerance=5),
    *(
        count(
            Claim(
                f"{_arm(part, position)}: FLOPs",
                f"{MODULES[part]} at {position} adds {added} M FLOPs to ViT-S",
                paper=added,
                deterministic=True,
                source="Table S17",
                unit="M",
            ),
            partial(_millions, arm=_arm(part, position), value="added_macs"),
            tolerance=0.05,
        )
        for (part, position), (added, _, _) in _ROWS.items()
    ),
    *(
        raises("Acc@1", ("plain", 79.9), (_arm(*row), top1), f"{MODULES[row[0]]} at {row[1]}", "Table S17", "ViT-S")
        for row, (_, top1, _) in _ROWS.items()
        if top1 != 79.9  # CB at Front has the accuracy of ViT-S
    ),
    *(
        gain(
            Claim(
                f"{part}: best position",
                f"{MODULES[part]} gives a higher top-1 accuracy at {best} than at {other}",
                paper=round(_ROWS[part, best][1] - _ROWS[part, other][1], 1),
                source="Sec. B.7, Table S17",
            ),
            _arm(part, other),
            _arm(part, best),
        )
        for part, (best, other) in _BEST.items()
    ),
    gain(
        Claim(
            "end over mid: top-5",
            "CB gives a higher top-5 accuracy at End than at Mid",
            paper=0.1,
            source="Sec. B.6; the two are the same function of the weights (Table 4)",
        ),
        _arm("cb", "mid"),
        _arm("cb", "end"),
        COLUMNS["Acc@5"][1],
    ),
    gain(
        Claim(
            "cb over gate",
            "at End, CB gives a higher top-1 accuracy than CB_gate",
            paper=0.1,
            source="Sec. B.7",
        ),
        _arm("cb_gate", "end"),
        _arm("cb", "end"),
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Counts of ViT-S, and training."""
    jobs = [sizes("plain", _VIT_S), *Network().jobs(scale, "plain")]
    for part, position in _ROWS:
        arm = _arm(part, position)
        jobs.append(sizes(arm, f"{_VIT_S} | {_CLASSES[part]}(at={_SEAMS[position]!r}, blocks='all')"))
        jobs += Network(part, position=position, blocks="all").jobs(scale, arm)
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
