"""Pictures of TAPADL's tables."""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures.tables import Ours, draw_table, mean_of

__all__ = ["PICTURES"]

_TRAINED = "Ours of ImageNet and ImageNet-C: ViT-Ti on CIFAR-100 and its corruptions."


def _mce(found: Measurement) -> float:
    return 100 * float(found.values["mce"])


def _top1(found: Measurement) -> float:
    return float(np.asarray(found.values["top1"]).reshape(-1)[-1])


_SIZES: dict[str, tuple[Ours, str]] = {
    "#FLOPs (G)": (mean_of("sizes", "macs", 1e9), ".1f"),
    "#Params (M)": (mean_of("sizes", "parameters", 1e6), ".1f"),
}
_COLUMNS = {
    **_SIZES,
    "ImageNet": (mean_of("training", _top1), ".1f"),
    "ImageNet-C": (mean_of("corruptions", _mce), ".1f"),
}

#: Row of Table 1 -> its arm.
_TABLE_1 = {
    "FAN-B-Hybrid": "plain",
    "+ AvgPool3x3": "average_3",
    "+ AvgPool5x5": "average_5",
    "+ Conv3x3": "convolution_3",
    "+ Conv5x5": "convolution_5",
    "+ TAP (multi-kernel)": "multi_kernel",
    "+ TAP": "tap",
}


def _table_1(experiment: Experiment, results: Results, scale: Scale) -> str:
    rows = {row: (arm, (row,)) for row, arm in _TABLE_1.items()}
    notes = ["Some of the printed parameters are cut off after the first decimal; ours are rounded."]
    notes += [_TRAINED] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Model",), _COLUMNS, notes)


PICTURES = {"tapadl_table_1": _table_1}
