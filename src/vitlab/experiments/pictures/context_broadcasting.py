"""Pictures of CB's figures and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from vitlab.core.experiment import Results, Scale
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.context_broadcasting import table_9
from vitlab.experiments.context_broadcasting._checks import COLUMNS, points
from vitlab.experiments.context_broadcasting._shared import SIZES
from vitlab.experiments.pictures.entropy import draw_entropy, draw_shallow_and_deep, draw_softmax, draw_with_cb
from vitlab.experiments.pictures.modules import draw_attended, draw_extra_block, draw_heads, draw_scales
from vitlab.experiments.pictures.tables import Ours, draw_table, mean_of
from vitlab.experiments.pictures.training_curves import draw_training

__all__ = ["PICTURES"]

Draw = Callable[[Experiment, Results, Scale], str]

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


def _notes(scale: Scale, *notes: str) -> list[str]:
    """Notes below a table of ViT-S, with what replaces it."""
    return [*notes, *([f"{_CIFAR} ViT-Ti replaces ViT-S."] if scale == "small" else [])]


def _table_1(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each form of uniform attention."""
    arms = {"ViT-S": "plain", "(A)": "uniform_a", "(B)": "uniform_b", "(C)": "uniform_c", "CB": "cb", "CB_S": "cb_s"}
    columns = {"# Params [M]": (mean_of("sizes", "parameters", 1e6), ".0f"), "Acc@1 [%]": _ACCURACIES["Acc@1 [%]"]}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    return draw_table(experiment, results, scale, rows, ("Module",), columns, _notes(scale, "Parameters are of ViT-S."))


def _table_3(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Part (b): a row for each module. Part (a) has words only."""
    arms = {"ViT-S": "plain", "+ SE": "se", "+ CB": "cb"}
    columns = {"Acc@1 [%]": _ACCURACIES["Acc@1 [%]"]}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    notes = _notes(scale, "Part (b). Part (a) has words: parameters and computation of SE and CB, judged as claims.")
    return draw_table(experiment, results, scale, rows, ("Module",), columns, notes)


def _all_flops(results: Results, arm: str) -> float | None:
    """FLOPs of a network in 10⁹, those of its module included."""
    counts = [mean_of("sizes", value, 1e9)(results, arm) for value in ("macs", "added_macs")]
    return None if counts[0] is None or counts[1] is None else counts[0] + counts[1]


def _table_4(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each position of CB: part (a), then part (b); End of (b) is MLP of (a)."""
    arms = {
        "ViT-S": "plain",
        "CB at MLP (End)": "end",
        "CB at MSA": "attention",
        "CB at MLP and MSA": "both",
        "CB at Front": "front",
        "CB at Mid": "mid",
    }
    columns = {"FLOPs [G]": (_all_flops, ".1f"), "Acc@1 [%]": _ACCURACIES["Acc@1 [%]"]}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    return draw_table(experiment, results, scale, rows, ("Position",), columns, _notes(scale, "FLOPs are of ViT-S."))


def _table_5(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each size and module, with counts and four accuracies."""
    columns: dict[str, tuple[Ours, str]] = {
        "# Params [M]": (mean_of("sizes", "parameters", 1e6), ".1f"),
        "FLOPs [G]": (mean_of("sizes", "macs", 1e9), ".1f"),
    }
    for name in ("Acc@1", "Acc@5", "IN-V2", "IN-ReaL"):
        procedure, value = COLUMNS[name]
        columns[name] = (mean_of(procedure, value), ".1f")
    rows = {
        f"{network}{title}": (f"{size} {arm}", (f"{network}{title}",))
        for size, network in SIZES.items()
        for arm, title in (("plain", ""), ("cb", " + CB"), ("cb_s", " + CB_S"))
    }
    notes = ["Accuracy in per cent.", *([_CIFAR] if scale == "small" else [])]
    return draw_table(experiment, results, scale, rows, ("Architecture",), columns, notes)


def _table_s15(experiment: Experiment, results: Results, scale: Scale) -> str:
    """The two rows of the paper; at `small` also those of ViT-Ti."""
    arms = {"ViT-S": "plain", "+ CB": "cb"}
    if scale == "small":
        arms |= {"ViT-Ti (not in the paper)": "tiny plain", "ViT-Ti + CB (not in the paper)": "tiny cb"}
    rows = {row: (arm, (row,)) for row, arm in arms.items()}
    columns: dict[str, tuple[Ours, str]] = {"Accuracy": (mean_of("training", "top1"), ".2f")}
    notes = ["Accuracy in per cent. Resolution, patches and epochs of the paper are not published."]
    return draw_table(experiment, results, scale, rows, ("Module",), columns, notes)


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


def _by_row(
    arms: Mapping[str, str],
    columns: Mapping[str, tuple[Ours, str]],
    label: str,
    *notes: str,
    small: str = "",
) -> Draw:
    """Returns the function that draws a table with a row for each arm.

    Args:
        arms: row of the published numbers -> its arm.
        columns: column of the published numbers -> our number, and its format.
        label: heading of the rows.
        notes: lines below the table.
        small: a line that is added at `small`.
    """

    def draw(experiment: Experiment, results: Results, scale: Scale) -> str:
        rows = {row: (arm, (row,)) for row, arm in arms.items()}
        lines = [*notes, *([small] if small and scale == "small" else [])]
        return draw_table(experiment, results, scale, rows, (label,), columns, lines)

    return draw


def _with_suffix(ours: Ours, suffix: str) -> Ours:
    """The function that reads a number of the arm whose name has a suffix."""
    return lambda results, arm: ours(results, f"{arm}{suffix}")


def _first_of(*readers: Ours) -> Ours:
    """The function that reads the first number that an arm has."""

    def ours(results: Results, arm: str) -> float | None:
        return next((found for each in readers if (found := each(results, arm)) is not None), None)

    return ours


def _read(column: str) -> Ours:
    """The function that reads a column of the tables of accuracies."""
    procedure, value = COLUMNS[column]
    return mean_of(procedure.partition("(")[0], value)


_SIZED = {
    "# Params [M]": (mean_of("sizes", "parameters", 1e6), ".1f"),
    "FLOPs [G]": (mean_of("sizes", "macs", 1e9), ".1f"),
}
#: Accuracy of trained networks, or of published weights.
_TOP1 = _first_of(mean_of("training", "top1"), mean_of("calibration", points("accuracy")))


def _sized_rows(suffix: str = "") -> dict[str, str]:
    """Rows of a table with three sizes and two modules -> arms."""
    titles = {"plain": "", "cb": " + CB", "cb_s": " + CB_S"}
    return {f"{name}{suffix}{title}": f"{size} {arm}" for size, name in SIZES.items() for arm, title in titles.items()}


def _size_of(row_arm: str) -> str:
    """The arm whose parameters are counted: the size, for a network without a module.

    >>> _size_of("tiny plain"), _size_of("tiny cb")
    ('tiny', '')
    """
    size, _, module = row_arm.partition(" ")
    return size if module == "plain" else ""


_table_6 = _by_row(
    _sized_rows(),
    {
        "# Params [M]": (lambda results, arm: mean_of("sizes", "parameters", 1e6)(results, _size_of(arm)), ".1f"),
        "mIoU 40K": (_with_suffix(mean_of("training", "miou"), " 40K"), ".1f"),
        "mIoU 160K": (_with_suffix(mean_of("training", "miou"), " 160K"), ".1f"),
    },
    "Backbone",
    "mIoU in per cent, after 40K and 160K iterations.",
    small="Ours: UperNet with DeiT-Ti on CamVid, modules added at fine-tuning.",
)

_APS = {"AP^b": "box_ap", "AP50^b": "box_ap50", "AP75^b": "box_ap75"}
_APS |= {"AP^m": "mask_ap", "AP50^m": "mask_ap50", "AP75^m": "mask_ap75"}
_table_7 = _by_row(
    {"ViT-Ti": "plain", "+ CB": "cb"},
    {column: (mean_of("average_precision", points(value)), ".1f") for column, value in _APS.items()},
    "Backbone",
    "Average precision of boxes (b) and masks (m) in per cent.",
)


def _table_9(experiment: Experiment, results: Results, scale: Scale) -> str:
    """A row for each perturbation, a column for each network. The paper's intervals are over draws of the noise."""

    def miou(results: Results, condition: str, arm: str) -> float | None:
        value = points("miou", condition=condition) if condition else points("clean_miou")
        return mean_of("segmentation_corruptions", value)(results, arm)

    conditions = {"Nothing": "", **{row: condition for row, (condition, *_) in table_9.ROWS.items()}}
    rows = {row: (condition, (row,)) for row, condition in conditions.items()}
    columns: dict[str, tuple[Ours, str]] = {
        name: (partial(miou, arm=arm), ".2f") for name, arm in (("ViT-S", "plain"), ("CB", "cb"))
    }
    notes = ["mIoU in per cent. The paper's intervals, ±0.06 to ±0.15, are over five draws of the noise."]
    notes += ["Ours: UperNet with DeiT-Ti on CamVid, CB added at fine-tuning."] if scale == "small" else []
    return draw_table(experiment, results, scale, rows, ("Perturbation",), columns, notes)


_table_10 = _by_row(
    {"ViLT": "plain", **{f"+ CB_S ({tokens})": tokens for tokens in ("image", "text", "both")}},
    {"Acc [%]": (mean_of("training", "accuracy"), ".2f")},
    "Model",
    "VQA accuracy. ViLT's authors report 71.26.",
)
_table_11 = _by_row(
    {
        f"{name} + CB" if part else name: f"{key} {part or 'plain'}"
        for key, name in (("pit_base", "PiT-B"), ("mixer_small", "Mixer-S/16"))
        for part in ("", "cb")
    },
    {**_SIZED, "Acc@1 [%]": (_TOP1, ".1f")},
    "Architecture",
    small="Ours of accuracy: PiT-Ti and Mixer-Ti for images of 32×32, trained on CIFAR-100.",
)
_table_s12 = _by_row(
    _sized_rows(" distilled"),
    {**_SIZED, **{name: (_read(name), ".1f") for name in ("Acc@1", "Acc@5", "IN-V2", "IN-ReaL")}},
    "Architecture",
    "Accuracy in per cent.",
)
_table_s13 = _by_row(
    {"ViT-S distilled": "plain", "ViT-S distilled + CB_S": "cb_s", "ViT-S distilled + CB": "cb"},
    {name: (_read(name), ".1f") for name in ("Occ", "ImageNet-A", "FGSM")},
    "Architecture",
    "Accuracy in per cent. ε of FGSM is not published; ours is 1/255.",
)
_ARCHITECTURES = {
    "pvt_small": "PVT-S",
    "local_vit_tiny": "LocalViT-Ti",
    "pvt_v2_b1": "PVTv2-B1",
    "swin_tiny": "Swin-Ti",
}
_table_s14 = _by_row(
    {
        f"{name} + Ours" if part else name: f"{key} {part or 'plain'}"
        for key, name in _ARCHITECTURES.items()
        for part in ("", "cb")
    },
    {"ACC@1 [%]": (_TOP1, ".1f")},
    "Architecture",
    'Rows "+ Ours" of the paper have CB.',
    small="Ours: Swin-Ti for images of 32×32, trained on CIFAR-100.",
)

PICTURES = {
    "cb_fig_3": draw_extra_block,
    "cb_fig_4": draw_entropy,
    "cb_fig_5": draw_softmax,
    "cb_fig_7": draw_with_cb,
    "cb_fig_8": draw_scales,
    "cb_fig_9": draw_heads,
    "cb_fig_10": draw_attended,
    "cb_fig_s11": draw_training,
    "cb_fig_s12": draw_shallow_and_deep,
    "cb_table_1": _table_1,
    "cb_table_2": _table_2,
    "cb_table_3": _table_3,
    "cb_table_4": _table_4,
    "cb_table_5": _table_5,
    "cb_table_6": _table_6,
    "cb_table_7": _table_7,
    "cb_table_8": _table_8,
    "cb_table_9": _table_9,
    "cb_table_10": _table_10,
    "cb_table_11": _table_11,
    "cb_table_s12": _table_s12,
    "cb_table_s13": _table_s13,
    "cb_table_s14": _table_s14,
    "cb_table_s15": _table_s15,
    "cb_table_s16": _table_s16,
    "cb_table_s17": _table_s17,
}
