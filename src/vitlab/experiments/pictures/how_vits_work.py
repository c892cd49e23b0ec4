"""Pictures of HDVW's figures.

Block plans (Figs. 3, 11, D.5) and the amplitude of high frequencies (Fig. 8) are drawn here. The other figures are rows
of panels, one file per kind in `panels/`, in the order of the captions; networks are in the order of `PAPER`. Where the
paper's text does not name the axes of a panel, they are our choice: NLL_train against error, robustness against
accuracy, and error and NLL_train in panels of their own. Panels called "Text" have what only the text reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from vitlab.core.experiment import Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.how_vits_work import fig_5, fig_12
from vitlab.experiments.how_vits_work._networks import RELEASED
from vitlab.experiments.how_vits_work._readings import ACCURACY, ERROR, LOG_APE, NEP, NLL_TRAIN, ROBUSTNESS
from vitlab.experiments.how_vits_work._shared import EARLY, LATE
from vitlab.experiments.pictures.effects import verdict_line, verdict_lines, write_lines
from vitlab.experiments.pictures.panels.amplitude import by_frequency
from vitlab.experiments.pictures.panels.by_setting import by_setting
from vitlab.experiments.pictures.panels.depth import amplitude_by_depth, variance_by_depth
from vitlab.experiments.pictures.panels.figure import DrawPanel, Lines, figure
from vitlab.experiments.pictures.panels.landscape import landscape
from vitlab.experiments.pictures.panels.noise import noise
from vitlab.experiments.pictures.panels.reliability import reliability
from vitlab.experiments.pictures.panels.removal import removal
from vitlab.experiments.pictures.panels.scatter import scatter
from vitlab.experiments.pictures.panels.similarity import similarity
from vitlab.experiments.pictures.panels.spectrum import spectrum
from vitlab.experiments.pictures.panels.trajectory import trajectory
from vitlab.experiments.record import judge
from vitlab.reporting.svg.axes import Axis, Panel, round_axis
from vitlab.reporting.svg.block_plans import Block, Plan, draw_plan, legend, plan_width
from vitlab.reporting.svg.canvas import Canvas, text_width

__all__ = ["PICTURES"]

Draw = Callable[[Experiment, Results, Scale], str]

_ROW, _TOP = 92, 80


def _blocks(found: Measurement) -> list[list[Block]]:
    """The blocks of each stage; a block with attention and an MLP is two."""
    read = {name: np.asarray(found.values[name]) for name in ("mixer", "stage", "heads", "mlp", "parts", "grid")}
    sides = read["grid"][:, 0]
    stages: list[list[Block]] = []
    for index, stage in enumerate(read["stage"]):
        if index == 0 or stage != read["stage"][index - 1]:
            stages.append([])
        attention = "attention" in str(read["mixer"][index])
        smaller = index > 0 and sides[index] < sides[index - 1]
        heads = str(read["heads"][index]) if attention else ""
        stages[-1].append(Block("MSA" if attention else "Conv", bool(smaller), heads))
        stages[-1] += [Block("MLP", text="MLP")] if read["mlp"][index] else []
        stages[-1] += [Block("smoothing")] if "SpatialSmoothing" in str(read["parts"][index]) else []
    return stages


def _plan(found: Measurement, title: str, published: dict[str, float | None]) -> Plan:
    """The plan of a model; below each stage its size, and the paper's number of heads where it has one."""
    sides, stage = np.asarray(found.values["grid"])[:, 0], np.asarray(found.values["stage"])
    channels = np.asarray(found.values["channels"])
    heads_of = np.asarray(found.values["heads"])
    notes = []
    for number, each in enumerate(np.unique(stage), 1):
        where = np.flatnonzero(stage == each)[-1]
        heads = published.get(f"MSAs of stage {number}") if heads_of[stage == each].any() else None
        paper = f"; paper: {heads:g} heads" if heads is not None else ""
        notes.append(f"stage {number}: {sides[where]}×{sides[where]}, {channels[where]} channels{paper}")
    return Plan(title, tuple(map(tuple, _blocks(found))), tuple(notes))


def _draw_plans(experiment: Experiment, results: Results, scale: Scale, titles: dict[str, str]) -> str:
    """The plans of the arms, then each claim with its verdict."""
    measured = {job.arm: found for job, found in results.entries if job.kind == "blocks"}
    published = {each.row: each.value for each in experiment.published if each.column == "heads"}
    plans = [_plan(measured[arm], title, published) for arm, title in titles.items() if arm in measured]
    verdicts = judge(experiment, results, scale)
    pairs = zip(experiment.claims, verdicts, strict=True)
    lines = [(verdict.outcome, f"{verdict_line(claim, verdict)}: {verdict.claim}") for claim, verdict in pairs]
    widest = max(*(plan_width(plan) for plan in plans), *(0.95 * text_width(line) + 40 for _, line in lines), 620.0)
    height = _TOP + _ROW * len(plans) + 40 + 22 * len(lines)
    about = "Ours, from the input at the left to the output at the right. The paper's figure is a diagram."
    canvas = Canvas(round(widest), height, experiment.title, about)
    for number, plan in enumerate(plans):
        draw_plan(canvas, plan, _TOP + _ROW * number)
    kinds = ["Conv", "MSA", "subsampling"]
    kinds += ["smoothing"] if any(b.kind == "smoothing" for plan in plans for s in plan.stages for b in s) else []
    legend(canvas, _TOP + _ROW * len(plans), kinds)
    for number, (outcome, line) in enumerate(lines):
        kind = "good" if outcome.startswith("holds") else "bad" if outcome == "does not hold" else "soft"
        canvas.text(20, _TOP + _ROW * len(plans) + 34 + 22 * number, line, kind)
    return str(canvas)


def _fig_3(experiment: Experiment, results: Results, scale: Scale) -> str:
    titles = {
        "spatial smoothing": "Left: spatial smoothing at the end of the stages of a CNN (pre-activation ResNet-50)",
        "transformer": "Middle: canonical Transformer (ViT-Ti)",
        "alternating": "Right: alternating pattern (Alter-ResNet-50)",
    }
    return _draw_plans(experiment, results, scale, titles)


def _fig_11(experiment: Experiment, results: Results, scale: Scale) -> str:
    titles = {
        "alternet50": "Alter-ResNet-50",
        "preact_resnet50": "Pre-activation ResNet-50, which it is based on",
        "MSAs in all stages": "With MSAs in all stages",
    }
    return _draw_plans(experiment, results, scale, titles)


def _fig_d5(experiment: Experiment, results: Results, scale: Scale) -> str:
    titles = {"alternet50": "Alter-ResNet-50 for ImageNet", "MSAs in all stages": "With MSAs in all stages"}
    return _draw_plans(experiment, results, scale, titles)


def _fig_8(experiment: Experiment, results: Results, scale: Scale) -> str:
    """The Δ log amplitude at 1.0π before and after each MSA (shaded) and MLP."""
    measured = [found for _, found in results.select("vit_tiny", "feature_fourier")]
    lines = verdict_lines(experiment, results, scale)
    width = round(max(860.0, *(40 + 0.85 * text_width(line) for line in lines)))
    about = "Shaded: MSA, else MLP. The paper has a curve only, without numbers."
    canvas = Canvas(width, 450 + 20 * len(lines), experiment.title, about)
    high = np.mean([found.values["high"] for found in measured], axis=0).reshape(-1, 3)  # block, (in, mid, out)
    depth = [value for block in range(len(high)) for value in (block, block + 0.5)] + [len(high)]
    values = [*high[:, :2].reshape(-1), high[-1, 2]]
    x = Axis(0, len(high), 80, width - 30, "depth [blocks]", tuple(range(len(high) + 1)))
    panel = Panel(canvas, x, round_axis(values, 380, 90, "Δ log amplitude at 1.0π"), _NETWORKS[scale])
    panel.frame([(block, block + 0.5) for block in range(len(high))])
    panel.curve(depth, values, "ours")
    write_lines(canvas, 438, lines)
    return str(canvas)


#: The network of Fig. 8 at each scale.
_NETWORKS: dict[Scale, str] = {
    "smoke": "a tiny ViT",
    "small": "ours: pretrained DeiT-Ti, 1,000 images of ImageNet",
    "released": "ours: pretrained DeiT-Ti, ImageNet",
    "full": "ours: ViT-Ti, ImageNet",
}


# -- figures of panels -------------------------------------------------------------------------------------------------

#: What the networks are called in panels.
_NAMES = {
    "resnet18": "ResNet-18",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnext50": "ResNeXt-50",
    "preact_resnet50": "pre-act. ResNet-50",
    "vit_tiny": "ViT-Ti",
    "vit_small": "ViT-S",
    "pit_tiny": "PiT-Ti",
    "swin_tiny": "Swin-Ti",
    "twins_small": "Twins-S",
    "mixer_tiny": "Mixer-Ti",
    "mixer_b16": "Mixer-B/16",
    "convit_tiny": "ConViT-Ti",
    "levit_128s": "LeViT-128S",
    "coat_lite_tiny": "CoaT-Lite-Ti",
    "alternet50": "Alter-ResNet-50",
}
_FOUR = ("resnet50", "vit_tiny", "pit_tiny", "swin_tiny")
_CLASSES = ("ink", "ours", "ink dash", "ours dash")


def _lines(arms: Mapping[str, str], suffix: str = "") -> Lines:
    """The lines of up to four arms: arm -> its name; a suffix is added to the arms. The third and fourth are dashed."""
    return {f"{arm}{suffix}": (name, kind) for (arm, name), kind in zip(arms.items(), _CLASSES, strict=False)}


def _named(arms: Iterable[str]) -> dict[str, str]:
    return {arm: _NAMES[arm] for arm in arms}


def _legend(lines: Lines) -> dict[str, str]:
    return dict(lines.values())


def _landscapes(part: str, arms: Sequence[str]) -> list[DrawPanel]:
    return [landscape(f"{part} Loss landscape, {_NAMES[arm]}", arm, arms) for arm in arms]


def _halves(title: str, arms: Lines) -> list[DrawPanel]:
    """Spectra of negative eigenvalues (left) and positive ones (right)."""
    return [spectrum(f"{title}, negative", arms, "negative"), spectrum(f"{title}, positive", arms, "positive")]


def _phases(arms: Mapping[str, str]) -> list[DrawPanel]:
    """Spectra of the early phase (left) and the late phase (right) of training."""
    early, late = _lines(arms, EARLY), _lines(arms, LATE)
    return [*_halves("(c) Early phase", early), *_halves("(c) Late phase", late)]


def _settings(part: str, setting: str, arms: Mapping[str, str]) -> list[DrawPanel]:
    """Error and NLL_train of arms: arm -> its value of the setting."""
    labels = list(arms.values())
    return [
        by_setting(f"{part} Error", ERROR, setting, labels, {"ours": list(arms)}),
        by_setting(f"{part} NLL of the training images", NLL_TRAIN, setting, labels, {"ours": list(arms)}),
    ]


def _heads(setting: str, values: Sequence[int], unit: str) -> Draw:
    """Figs. C.5 and C.6: NEP and APE, and the spectra."""
    arms = {f"{each} {unit}": f"{unit}: {each}" for each in values}
    labels, early = [str(each) for each in values], [f"{arm}{EARLY}" for arm in arms]
    return figure(
        [
            by_setting("Left: NEP", NEP, setting, labels, {"ours": early}),
            by_setting("Left: APE", LOG_APE, setting, labels, {"ours": early}),
            spectrum("Right: Hessian spectrum, early phase", _lines(arms, EARLY)),
        ],
        legend=_legend(_lines(arms)),
    )


def _printed(experiment: Sequence[Published], x: str, y: str) -> dict[str, tuple[float, float]]:
    """The rows for which the paper prints two columns."""
    found = {(each.row, each.column): each.value for each in experiment if each.value is not None}
    rows = dict.fromkeys(row for row, _ in found)
    return {row: (found[row, x], found[row, y]) for row in rows if (row, x) in found and (row, y) in found}


_TWO = _named(("resnet50", "vit_tiny"))
_FRACTIONS = {f"vit_tiny, {each} %": f"{each} %" for each in (2, 10, 50)} | {"vit_tiny": "100 %"}
_KERNELS = {f"{each}x{each}": f"{each}×{each}" for each in (3, 5, 8)}
_PATCHES = {f"{each}x{each}": f"{each}×{each}" for each in (2, 4, 8)}
_MSAS = {f"MSAs {plan}": ",".join(map(str, plan)) for plan in fig_12._PLANS}
_GAP = {"class token": "class token", "gap": "GAP"}
_LENGTHS = {
    kind: [f"{name}, length {length}" for length in (1, 2, 4, 8, 16)]
    for name, kind in (("vit_tiny", "ours"), ("resnet50", "ours dash"))
}
_EPOCHS = ("×1", "×2", "×4", "×8", "×16")
_LARGE = _named(("resnet50", "vit_tiny", "resnet101", "vit_small"))
_SIZES = {"ink": ["resnet50", "resnet101"], "ours": ["vit_tiny", "vit_small"]}
_BASES = {
    kind: [f"{base}, MSAs {plan}" for plan in ((0, 0, 0, 0), (0, 1, 1, 2))]
    for base, kind in (("resnet", "ink"), ("resnext", "ours"))
}
_AUGMENTED = {"strong": "with strong augmentation", "weak": "with weak augmentation"}

PICTURES = {
    "hdvw_fig_1": figure(
        _landscapes("(a)", list(_TWO)),
        [
            trajectory("(b) Trajectories of all runs (retracted)", _lines(_TWO)),
            spectrum("(c) Hessian spectrum, early phase", _lines(_TWO, EARLY)),
        ],
        legend=_legend(_lines(_TWO)),
    ),
    "hdvw_fig_2": figure(
        [
            *(by_frequency(f"(a) {name}", arm) for arm, name in _TWO.items()),
            noise("(b) Frequency-based noise", _lines(_TWO)),
        ],
        legend=_legend(_lines(_TWO)),
    ),
    "hdvw_fig_3": _fig_3,
    "hdvw_fig_4": figure(
        _halves(
            "Early phase", {**_lines(_TWO, EARLY), f"vit_tiny, 6 %{EARLY}": ("ViT-Ti, 6 % of the data", "ours dot")}
        ),
        legend=_legend(_lines(_TWO)) | {"ViT-Ti, 6 % of the data": "ours dot"},
    ),
    "hdvw_fig_5": figure(
        [
            scatter(
                "(a) Networks on CIFAR-100",
                ERROR,
                NLL_TRAIN,
                _named((*fig_5._NETWORKS, *fig_5._COMPARED)),
                _printed(fig_5.PAPER, "error [%]", "NLL_train"),
            ),
            *_settings("(b)", "size of the data, ViT-Ti", _FRACTIONS),
        ],
    ),
    "hdvw_fig_6": figure(_halves("Early phase", _lines(_GAP, EARLY)), legend=_legend(_lines(_GAP))),
    "hdvw_fig_7": figure(
        [
            *_settings("(a)", "kernel", _KERNELS),
            spectrum("(b) Hessian spectrum, early phase", _lines(_KERNELS, EARLY)),
            by_setting("Text: CIFAR-100-C", ROBUSTNESS, "kernel", list(_KERNELS.values()), {"ours": list(_KERNELS)}),
        ],
        legend=_legend(_lines(_KERNELS)),
    ),
    "hdvw_fig_8": _fig_8,
    "hdvw_fig_9": figure([variance_by_depth(name, arm) for arm, name in _TWO.items()]),
    "hdvw_fig_10": figure(
        [similarity(f"(a) {_NAMES[arm]}", arm) for arm in ("resnet50", "swin_tiny")],
        [removal(f"(b) {_NAMES[arm]}", arm) for arm in ("resnet50", "swin_tiny")],
    ),
    "hdvw_fig_11": _fig_11,
    "hdvw_fig_12": figure(
        [
            by_setting("(a) Build-up", ACCURACY, "MSAs in c1 to c4", list(_MSAS.values()), {"ours": list(_MSAS)}),
            scatter("(b) CIFAR-100", ACCURACY, ROBUSTNESS, _named((*fig_12._COMPARED, "alternet50"))),
            spectrum("(c) Hessian spectrum, early phase", _lines(_named(("preact_resnet50", "alternet50")), EARLY)),
        ],
        legend=_legend(_lines(_named(("preact_resnet50", "alternet50")))),
    ),
    "hdvw_fig_c1": figure(
        [
            scatter("(a) CIFAR-10", ERROR, NLL_TRAIN, {f"cifar10 {arm}": _NAMES[arm] for arm in fig_5._NETWORKS}),
            scatter("(b) ImageNet", ERROR, NLL_TRAIN, {f"imagenet {arm}": _NAMES[arm] for arm in fig_5._NETWORKS[:5]}),
        ],
    ),
    "hdvw_fig_c2": figure(
        [
            by_setting("Error", ERROR, "epochs, relative to the fewest", _EPOCHS, _LENGTHS),
            by_setting("NLL of the training images", NLL_TRAIN, "epochs, relative to the fewest", _EPOCHS, _LENGTHS),
        ],
        legend={"ViT-Ti": "ours", "ResNet-50": "ours dash"},
    ),
    "hdvw_fig_c3": figure(
        [
            *_settings("(a)", "patch", _PATCHES),
            spectrum("(b) Hessian spectrum, early phase", _lines(_PATCHES, EARLY)),
        ],
        legend=_legend(_lines(_PATCHES)),
    ),
    "hdvw_fig_c4": figure(
        _landscapes("(a)", _FOUR),
        [
            trajectory(f"(b) Trajectories (retracted), {name}", {arm: (name, kind)})
            for arm, (name, kind) in _lines(_named(_FOUR)).items()
        ],
        _phases(_named(_FOUR)),
        legend=_legend(_lines(_named(_FOUR))),
    ),
    "hdvw_fig_c5": _heads("heads", (1, 2, 4, 8), "heads"),
    "hdvw_fig_c6": _heads("dimensions per head", (16, 32, 64, 128), "dimensions"),
    "hdvw_fig_c7": figure(
        [by_setting("(a) NLL of the training images", NLL_TRAIN, "size of the network", ["small", "large"], _SIZES)],
        _landscapes("(b)", [*_SIZES["ink"], *_SIZES["ours"]]),
        _phases(_LARGE),
        legend=_legend(_lines(_LARGE)),
    ),
    "hdvw_fig_d1": figure([variance_by_depth(_NAMES[arm], arm) for arm in _FOUR[2:]]),
    "hdvw_fig_d2": figure(
        *(
            [by_frequency(f"Left: {_NAMES[arm]}", arm), amplitude_by_depth(f"Right: {_NAMES[arm]}", arm)]
            for arm in ("pit_tiny", "swin_tiny")
        ),
    ),
    "hdvw_fig_d3": figure(
        *(
            [similarity(_NAMES[arm], arm) for arm in row]
            for row in (("vit_tiny", "resnet50"), ("pit_tiny", "swin_tiny"))
        )
    ),
    "hdvw_fig_d4": figure(*([removal(_NAMES[arm], arm) for arm in row] for row in (_FOUR[:2], _FOUR[2:]))),
    "hdvw_fig_d5": _fig_d5,
    "hdvw_fig_e1": figure(
        [
            scatter(
                "ImageNet and ImageNet-C", ACCURACY, ROBUSTNESS, _named(("preact_resnet50", "alternet50", *RELEASED))
            ),
            by_setting("Text: other bases, CIFAR-100", ACCURACY, "MSAs in c1 to c4", ["0,0,0,0", "0,1,1,2"], _BASES),
        ],
        legend={"ResNet-50": "ink", "ResNeXt-50": "ours"},
    ),
    "hdvw_fig_f1": figure(
        [
            reliability(
                f"(a) {name} (dotted: calibrated)",
                _lines({f"{arm}, {kind}": words for kind, words in _AUGMENTED.items()}),
            )
            for arm, name in _TWO.items()
        ],
        [
            spectrum(
                f"(b) Hessian spectrum, {name}, early phase",
                _lines({f"{arm}, {kind}": words for kind, words in _AUGMENTED.items()}, EARLY),
            )
            for arm, name in _TWO.items()
        ],
        legend=_legend(_lines(_AUGMENTED)),
    ),
}
