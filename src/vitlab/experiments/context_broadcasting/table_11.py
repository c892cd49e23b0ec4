"""CB Table 11: PiT-B and Mixer-S/16 with CB. At `small`: PiT-Ti and Mixer-Ti for images of 32×32, on CIFAR-100.

At `released` PiT-B of timm; weights of Mixer-S/16 trained on ImageNet-1K are not published.
"""

from __future__ import annotations

from functools import partial

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting import _architectures
from vitlab.experiments.context_broadcasting._architectures import Architecture, arm_of
from vitlab.experiments.context_broadcasting._checks import claims_of, count, one, table, verdicts_of
from vitlab.experiments.context_broadcasting._shared import sizes

TITLE = "CB Table 11: PiT-B and Mixer-S/16 with CB"

_PIT = "base_dims=(8, 8, 8), heads=(2, 2, 2), depth=(1, 2, 1), patch_size=8, stride=4, num_classes=25"
_ROWS = {
    "pit_base": Architecture(
        "PiT-B",
        82.0,
        82.6,
        macs=12.4,
        epochs=300,
        smoke=f"vitlab/pit_tiny_cifar({_PIT})",
        small="vitlab/pit_tiny_cifar(num_classes=100, drop_path_rate=0.1)",
        pretrained="timm/pit_b_224(pretrained=True)",
    ),
    "mixer_small": Architecture(
        "Mixer-S/16",
        74.3,
        74.9,
        macs=3.8,
        epochs=300,
        smoke="vitlab/mixer_tiny_cifar(patch_size=8, embed_dim=16, num_blocks=2, num_classes=25)",
        small="vitlab/mixer_tiny_cifar(num_classes=100, drop_path_rate=0.1)",
    ),
}

#: Arm -> row, model, parameters in millions, FLOPs in 10⁹.
_COUNTS = {
    arm_of(key, part): (f"{name} + CB" if part else name, f"timm/{model}{parts}", parameters, macs)
    for key, name, model, parameters, macs in (
        ("pit_base", "PiT-B", "pit_b_224", 73.8, 12.4),
        ("mixer_small", "Mixer-S/16", "mixer_s16_224", 18.5, 3.8),
    )
    for part, parts in (("", ""), ("cb", " | ContextBroadcast(blocks='upper')"))
}
_TOP1 = {arm_of(key, part): row.cb if part else row.plain for key, row in _ROWS.items() for part in ("", "cb")}

PAPER = table(
    ("# Params [M]", "FLOPs [G]", "Acc@1 [%]"),
    {row: (parameters, macs, _TOP1[arm]) for arm, (row, _, parameters, macs) in _COUNTS.items()},
)


def _counted(results: Results, arm: str, value: str, unit: float) -> float | None:
    found = one(results, arm, "sizes", value)
    return None if found is None else found / unit


_CHECKS = [
    *_architectures.checks(_ROWS, "Table 11"),
    *(
        count(
            Claim(f"{arm}: {name}", f"{row} has {printed} {unit} {name}", printed, None, True, "Table 11", unit),
            partial(_counted, arm=arm, value=value, unit=divisor),
            tolerance=0.05,
        )
        for arm, (row, _, parameters, macs) in _COUNTS.items()
        for name, printed, unit, value, divisor in (
            ("parameters", parameters, "M", "parameters", 1e6),
            ("FLOPs", macs, "G", "macs", 1e9),
        )
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Counts and training."""
    return [sizes(arm, model) for arm, (_, model, _, _) in _COUNTS.items()] + _architectures.jobs(scale, _ROWS)


def check(results: Results) -> list[Verdict]:
    """Counts are compared with the printed digits; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
