"""Pictures of CB's figures and tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from vitlab.core.experiment import Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.context_broadcasting._checks import COLUMNS
from vitlab.experiments.pictures.entropy import draw_entropy, draw_shallow_and_deep, draw_softmax, draw_with_cb
from vitlab.experiments.pictures.tables import Ours, draw_table, mean_of

__all__ = ["PICTURES"]

_TITLES = {"cb": "CB", "cb_gate": "CB_gate", "cb_hybrid": "CB_hybrid"}
_CIFAR = "Ours of accuracy: trained on CIFAR-100, with patches of 4×4."
_ACCURACIES: dict[str, tuple[Ours, str]] = {
    "Acc@1 [%]": (mean_of("training", "top1"), ".1f"),
    "Acc@5 [%]": (mean_of("training", "top5"), ".1f"),
}


def _flops(results: Results, arm: str) -> float | None:
    """Additional FLOPs in millions; those of the whole network for the one without a module."""
    return mean_of("sizes", "macs" if arm == "plain" else "added_macs", 1e6)(results, arm)


def _positions(
    experiment: Experiment,
    results: Results,
    scale: Scale,
    headings: tuple[str, ...],
    ticked: Mapping[str, tuple[str, ...]],
) -> str:
    """Tables S16 and S17: a row for each module and position, with ✓ at the positions that have the module."""

    def marks(position: str) -> tuple[str, ...]:
        return tuple("✓" if heading in ticked.get(position, ()) else "✗" for heading in headings)

    rows = {"ViT-S": ("plain", ("ViT-S", *marks("")))}
    for part, title in _TITLES.items():
        for position in ticked:
            rows[f"+{title} at {position}"] = (f"{part} at {position}", (f"+{title}", *marks(position)))
    columns = {"FLOPs [M]": (_flops, ".1f"), **_ACCURACIES}
    notes = ["FLOPs of rows with a module are those that it adds. 1260 M is the count of ViT-Ti; ViT-S has 4599 M."]
    notes += [f"{_CIFAR} ViT-Ti replaces ViT-S."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Module", *headings), columns, notes)


def _table_s16(experiment: Experiment, results: Results, scale: Scale) -> str:
    ticked = {"end": ("MLP",), "attention": ("MSA",), "both": ("MLP", "MSA")}
    return _positions(experiment, results, scale, ("MLP", "MSA"), ticked)


def _table_s17(experiment: Experiment, results: Results, scale: Scale) -> str:
    ticked = {"front": ("Front",), "mid": ("Mid",), "end": ("End",)}
    return _positions(experiment, results, scale, ("Front", "Mid", "End"), ticked)


def _table_2(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each size, a column for each network."""

    def top1(results: Results, size: str, arm: str) -> float | None:
        return mean_of("training", "top1")(results, f"{size} {arm}")

    arms = {"No module": "plain", "CB†": "all", "CB": "upper"}
    columns: dict[str, tuple[Ours, str]] = {name: (partial(top1, arm=arm), ".1f") for name, arm in arms.items()}
    rows = {name: (size, (name,)) for size, name in {"tiny": "ViT-Ti", "small": "ViT-S", "base": "ViT-B"}.items()}
    notes = ["Top-1 accuracy in per cent; CB†: in all layers, CB: in the upper layers."]
    notes += [_CIFAR] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("",), columns, notes)


def _table_8(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each network, a column for each stress test."""
    columns: dict[str, tuple[Ours, str]] = {}
    for name in ("Occ", "ImageNet-A", "FGSM"):
        procedure, value = COLUMNS[name]
        columns[name] = (mean_of(procedure.partition("(")[0], value), ".1f")
    titles = {"plain": "ViT-S", "cb_s": "ViT-S + CB_S", "cb": "ViT-S + CB"}
    rows = {title: (arm, (title,)) for arm, title in titles.items()}
    notes = ["Accuracy in per cent. ε of FGSM is not published; ours is 1/255."]
    notes += ["Ours: ViT-Ti on CIFAR-100 in place of ViT-S on ImageNet."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Architecture",), columns, notes)


PICTURES = {
    "cb_fig_4": draw_entropy,
    "cb_fig_5": draw_softmax,
    "cb_fig_7": draw_with_cb,
    "cb_fig_s12": draw_shallow_and_deep,
    "cb_table_2": _table_2,
    "cb_table_8": _table_8,
    "cb_table_s16": _table_s16,
    "cb_table_s17": _table_s17,
}
