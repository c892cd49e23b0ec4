"""Tables 5 and S12: networks without a module, with CB and with CB_S, by six columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.experiments.context_broadcasting._checks import Check, count, one, raises, table
from vitlab.experiments.context_broadcasting._shared import MODULES, REPEATED, SIZES, sizes

#: The accuracies among the columns, and all columns.
ACCURACIES = ("Acc@1", "Acc@5", "IN-V2", "IN-ReaL")
_COLUMNS = ("# Params [M]", "FLOPs [G]", *ACCURACIES)

#: Arm of a size -> the part of its model expression.
PARTS = {"plain": "", "cb": " | ContextBroadcast(blocks='upper')", "cb_s": " | ScaledContextBroadcast"}

_SET = ("The paper does not say which of the three sets of ImageNet-V2 it uses; ours is matched-frequency.",)
DIFFERENCES: dict[Scale, tuple[str, ...]] = {"released": _SET, "full": (*REPEATED["full"], *_SET)}

#: Size -> arm -> parameters in millions, FLOPs in 10⁹, and the accuracies in per cent.
Rows = Mapping[str, Mapping[str, Sequence[float]]]


def arm_of(size: str, module: str) -> str:
    """Returns the name of an arm."""
    return f"{size} {module}"


def _row(size: str, module: str, suffix: str) -> str:
    return f"{SIZES[size]}{suffix}" + (f" + {MODULES[module]}" if module in MODULES else "")


def published(rows: Rows, suffix: str = "") -> list[Published]:
    """Returns the numbers of the table."""
    numbers = {_row(size, module, suffix): values for size, arms in rows.items() for module, values in arms.items()}
    return table(_COLUMNS, numbers)


def counted(models: Mapping[str, str]) -> list[Job]:
    """Returns the jobs that count the networks, given the model of each size."""
    return [
        sizes(arm_of(size, module), model + part) for size, model in models.items() for module, part in PARTS.items()
    ]


def checks(rows: Rows, source: str, suffix: str = "") -> list[Check]:
    """Returns the checks of the counts, as printed, and of the accuracies, against the network without a module."""
    found = []
    for size, arms in rows.items():
        for module, values in arms.items():
            found += _counts(arm_of(size, module), _row(size, module, suffix), values, source)
        plain = arms["plain"]
        found += [
            raises(
                column,
                (arm_of(size, "plain"), plain[place]),
                (arm_of(size, module), values[place]),
                MODULES[module],
                source,
                f"{SIZES[size]}{suffix}",
            )
            for module, values in arms.items()
            if module != "plain"
            for place, column in enumerate(ACCURACIES, start=2)
            if values[place] != plain[place]  # CB leaves ImageNet-ReaL of distilled ViT-B as it is
        ]
    return found


def _counts(arm: str, row: str, values: Sequence[float], source: str) -> list[Check]:
    parameters = Claim(f"{arm}: parameters", f"{row} has {values[0]} M parameters", values[0], None, True, source, "M")
    macs = Claim(f"{arm}: FLOPs", f"{row} has {values[1]} G FLOPs", values[1], None, True, source, "G")
    # Some printed numbers are cut off (22.05 M of ViT-S, 17.66 G of distilled ViT-B), others are rounded.
    return [
        count(parameters, partial(_counted, arm=arm, value="parameters", unit=1e6), tolerance=0.06),
        count(macs, partial(_counted, arm=arm, value="macs", unit=1e9), tolerance=0.06),
    ]


def _counted(results: Results, arm: str, value: str, unit: float) -> float | None:
    found = one(results, arm, "sizes", value)
    return None if found is None else found / unit
