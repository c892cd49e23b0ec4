"""Pictures of TAPADL's figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures.attention import (
    draw_head_similarity,
    draw_map_and_stability,
    draw_maps,
    draw_stability,
)
from vitlab.experiments.pictures.curves import Curve, Curves, draw_curves, network_at
from vitlab.experiments.pictures.effects import verdict_lines
from vitlab.experiments.pictures.tables import Ours, draw_table, mean_of
from vitlab.experiments.robust_token_attention import fig_7, table_2
from vitlab.experiments.robust_token_attention._numbers import MCE, TOP1, Number, corruption_error
from vitlab.experiments.robust_token_attention._segmentation import (
    ADVERSE,
    AT_NIGHT,
    CAR_AT_NIGHT,
    CORRUPTED,
    IN_SNOW,
    MIOU,
    ROAD_IN_SNOW,
)
from vitlab.experiments.robust_token_attention._variants import TITLES

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


def _ours(number: Number) -> Ours:
    """The function that reads a number of a table: the mean over runs and parts of the images."""

    def ours(results: Results, arm: str) -> float | None:
        found = list(number.of(results, arm).values())
        return float(np.mean(found)) if found else None

    return ours


def _per_cent(kind: str, value: str) -> tuple[Ours, str]:
    return mean_of(kind, lambda found: 100 * float(found.values[value])), ".1f"


#: Row of Table 2 that we run -> its arm.
_TABLE_2 = {
    f"{network}{title}": f"{base}_{arm}"
    for base, network in (("rvt", "RVT-B"), ("fan", "FAN-B-Hybrid"))
    for arm, title in (("plain", ""), ("tap", " with TAP"), ("adl", " with ADL"), ("tap_adl", " with TAP & ADL"))
}


def _table_2(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each network of the paper; those that it quotes have numbers of ours at `released` only."""
    arms = _TABLE_2 | {row: arm for arm, row in table_2.RIVALS.items()}
    rows = {row: (arms.get(row, ""), (row,)) for row in dict.fromkeys(each.row for each in experiment.published)}
    columns: dict[str, tuple[Ours, str]] = {
        "#Params (M)": _SIZES["#Params (M)"],
        "#FLOPs (G)": _SIZES["#FLOPs (G)"],
        "ImageNet": (_ours(TOP1), ".1f"),
        "ImageNet-C": (_ours(MCE), ".1f"),
        "ImageNet-P": _per_cent("imagenet_p", "mfr"),
        "ImageNet-A": _per_cent("imagenet_a", "accuracy_200"),
        "ImageNet-R": _per_cent("imagenet_r", "accuracy_200"),
    }
    notes = ["ImageNet-C: mCE; ImageNet-P: mFR; others: accuracy. The first five rows are quoted by the paper."]
    notes += [f"{_TRAINED} It replaces FAN-B-Hybrid."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Model",), columns, notes)


def _table_6(experiment: Experiment, results: Results, scale: Scale) -> str:
    arms = {"Baseline": "plain", "TAP (Shallow)": "shallow", "TAP (Middle+Deep)": "middle_deep", "TAP (All)": "tap"}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    columns: dict[str, tuple[Ours, str]] = {"ImageNet": (_ours(TOP1), ".1f"), "ImageNet-C": (_ours(MCE), ".1f")}
    notes = [f"{_TRAINED} It replaces FAN-B-Hybrid."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Model",), columns, notes)


def _table_3(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for mCE and each corruption, the columns of the paper in their order; a column for each variant."""

    def error(results: Results, corruption: str, arm: str) -> float | None:
        return _ours(MCE if corruption == "mCE" else corruption_error(corruption))(results, arm)

    names = [each.column for each in experiment.published if each.row == "FAN-B-Hybrid"]
    rows = {name: (name, (name.replace("_", " "),)) for name in names}
    columns: dict[str, tuple[Ours, str]] = {
        f"+ {title}" if title else "FAN-B-Hybrid": (partial(error, arm=arm), ".2f") for arm, title in TITLES.items()
    }
    notes = ["Errors in per cent; those of corruptions and mCE are relative to AlexNet's where these are known."]
    notes += ["Ours: ViT-Ti on CIFAR-100 and its corruptions. It replaces FAN-B-Hybrid."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Corruption",), columns, notes, transposed=True)


def _table_4(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each network of the paper; those that it quotes have no number of ours."""
    arms = {f"+ {title}" if title else "FAN-B-Hybrid": arm for arm, title in TITLES.items()}
    rows = {row: (arms.get(row, ""), (row,)) for row in dict.fromkeys(each.row for each in experiment.published)}
    columns: dict[str, tuple[Ours, str]] = {
        "Cityscapes": (_ours(MIOU), ".1f"),
        "Cityscapes-C": (_ours(CORRUPTED), ".1f"),
        "ACDC": (_ours(ADVERSE), ".1f"),
    }
    notes = ["mIoU in per cent. The first six rows are quoted by the paper."]
    notes += ["Ours: UperNet with DeiT-Ti on CamVid and its corruptions."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Model",), columns, notes)


#: The columns of Tables 5 and 7.
_TWO: dict[str, tuple[Ours, str]] = {"ImageNet": (_ours(TOP1), ".1f"), "ImageNet-C (mCE)": (_ours(MCE), ".1f")}


def _table_5(experiment: Experiment, results: Results, scale: Scale) -> str:
    bases = {"deit": "DeiT-B", "swin": "Swin-B", "rvt": "RVT-B", "fan": "FAN-B-Hybrid"}
    parts = {"plain": "", "tap_adl": " + TAP & ADL"}
    rows = {f"{name}{part}": f"{base}_{arm}" for base, name in bases.items() for arm, part in parts.items()}
    drawn = {row: (arm, (row,)) for row, arm in rows.items()}
    notes = ["Ours: ViT-Ti and Swin-Ti on CIFAR-100 and its corruptions."] if scale == "small" else []
    return draw_table(experiment, results, scale, drawn, ("Model",), _TWO, notes)


def _table_7(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each threshold; τ = 0 without ADL is the paper's baseline, ADL with τ = 0 is added."""
    arms = {"τ = 0 (Baseline)": "plain", "τ = 0 (ADL, not in the paper)": "tau_0", "τ = 1": "tau_1", "τ = 2": "adl"}
    arms |= {"τ = 3": "tau_3", "τ = 5": "tau_5"}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    notes = [f"{_TRAINED} It replaces FAN-B-Hybrid."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Threshold",), _TWO, notes)


def _fig_6(experiment: Experiment, results: Results, scale: Scale) -> str:
    """The numbers of the claims, in the order of the paper's two images: snow, night."""
    numbers = {"mIoU, snow": IN_SNOW, "road, snow": ROAD_IN_SNOW, "mIoU, night": AT_NIGHT, "car, night": CAR_AT_NIGHT}
    columns: dict[str, tuple[Ours, str]] = {name: (_ours(number), ".1f") for name, number in numbers.items()}
    arms = {"FAN-B-Hybrid": "plain", "FAN-B-Hybrid + TAP & ADL": "tap_adl"}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    notes = [
        "mIoU, and IoU of a class, in per cent, mean over the runs.",
        "The paper shows two images, without numbers.",
    ]
    notes += ["Ours: UperNet with DeiT-Ti on CamVid and its corruptions."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Model",), columns, notes)


def _fig_7(experiment: Experiment, results: Results, scale: Scale) -> str:
    """mCE by the number of branches and by the weight of ADL; the paper's numbers are in the lines of two claims."""

    def panel(title: str, label: str, arms: Mapping[Any, str], kind: str) -> Curves:
        found = [(place, _ours(MCE)(results, arm)) for place, arm in enumerate(arms.values())]
        points = [(place, value) for place, value in found if value is not None]
        curve = Curve(
            f"{title.partition(': ')[2]}, ours", kind, [place for place, _ in points], [value for _, value in points]
        )
        return Curves(title, label, "mean error [%]" if scale == "smoke" else "mCE [%]", [curve], list(map(str, arms)))

    top = panel("Top: TAP without ADL", "number of branches K", fig_7.BRANCHES, "ours")
    bottom = panel("Bottom: ADL without TAP", "weight λ of ADL", fig_7.WEIGHTS, "ours dash")
    plain = _ours(MCE)(results, "plain")
    levels = {} if plain is None else {"baseline, ours": (plain, "ink dot")}
    network = network_at(scale, "ViT-Ti on CIFAR-100", "FAN-B-Hybrid")
    about = f"Ours: {network}, mean over the runs; lower is better. The paper has numbers of K = 4 and λ = 1 only."
    panels = [replace(each, levels=levels) for each in (top, bottom)]
    return draw_curves(experiment, about, panels, verdict_lines(experiment, results, scale))


PICTURES = {
    "tapadl_fig_1": draw_map_and_stability,
    "tapadl_fig_3": draw_maps,
    "tapadl_fig_4": draw_head_similarity,
    "tapadl_fig_5": draw_stability,
    "tapadl_fig_6": _fig_6,
    "tapadl_fig_7": _fig_7,
    "tapadl_table_1": _table_1,
    "tapadl_table_2": _table_2,
    "tapadl_table_3": _table_3,
    "tapadl_table_4": _table_4,
    "tapadl_table_5": _table_5,
    "tapadl_table_6": _table_6,
    "tapadl_table_7": _table_7,
}
