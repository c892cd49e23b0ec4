"""Pictures of HDVW's figures: block plans (Figs. 3, 11, D.5), the amplitude of high frequencies (Fig. 8), and the
variance of feature maps (Figs. 9, D.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures.effects import verdict_line
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
    pairs = zip(experiment.claims, judge(experiment, results, scale), strict=True)
    lines = [f"{verdict_line(claim, verdict)}: {verdict.claim}" for claim, verdict in pairs]
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
    for number, line in enumerate(lines):
        canvas.text(20, 438 + 20 * number, line, "soft small")
    return str(canvas)


#: The network of Fig. 8 at each scale.
_NETWORKS: dict[Scale, str] = {
    "smoke": "a tiny ViT",
    "small": "ours: pretrained DeiT-Ti, 1,000 images of ImageNet",
    "released": "ours: pretrained DeiT-Ti, ImageNet",
    "full": "ours: ViT-Ti, ImageNet",
}

_WIDE, _HIGH = 380, 250  # of a panel


def _variances(networks: Mapping[str, str]) -> Draw:
    """Returns the function that draws the feature map variance by depth, a panel for each network.

    Args:
        networks: arm -> title of its panel.
    """

    def draw(experiment: Experiment, results: Results, scale: Scale) -> str:
        about = f"Scale {scale}. Ours: mean over runs and parts of the images. The paper has curves only."
        verdicts = judge(experiment, results, scale)
        pairs = zip(experiment.claims, verdicts, strict=True)
        lines = [f"{verdict_line(claim, verdict)}: {verdict.claim}" for claim, verdict in pairs]
        width = max(90 + (_WIDE + 90) * len(networks), *(40 + 0.85 * text_width(line) for line in lines))
        canvas = Canvas(round(width), 170 + _HIGH + 20 * len(lines), experiment.title, about)
        for number, (arm, title) in enumerate(networks.items()):
            left = 90 + (_WIDE + 90) * number
            found = [np.asarray(each.values["variance"]) for _, each in results.select(arm, "feature_variance")]
            mean = [float(value) for value in np.mean(found, axis=0).reshape(-1)] if found else []
            x = round_axis([0.0, float(max(1, len(mean) - 1))], left, left + _WIDE, "place, from input to output")
            panel = Panel(canvas, x, round_axis([0.0, *mean], 100 + _HIGH, 100, "feature map variance"), title)
            panel.frame()
            if mean:
                panel.curve([float(place) for place in range(len(mean))], mean, "ours")
            else:
                panel.note("not run at this scale")
        for number, line in enumerate(lines):
            canvas.text(20, 170 + _HIGH + 20 * number, line, "soft small")
        return str(canvas)

    return draw


PICTURES = {
    "hdvw_fig_3": _fig_3,
    "hdvw_fig_8": _fig_8,
    "hdvw_fig_9": _variances({"resnet50": "ResNet-50", "vit_tiny": "ViT-Ti"}),
    "hdvw_fig_11": _fig_11,
    "hdvw_fig_d1": _variances({"pit_tiny": "PiT-Ti", "swin_tiny": "Swin-Ti"}),
    "hdvw_fig_d5": _fig_d5,
}
