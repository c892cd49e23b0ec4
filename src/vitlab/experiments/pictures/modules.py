"""Pictures of CB's figures on blocks, weights, heads and segmentation (Figs. 3, 8, 9, 10)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vitlab.core.experiment import Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.context_broadcasting import fig_9
from vitlab.experiments.context_broadcasting._checks import difference
from vitlab.experiments.pictures.curves import Curve, Curves, draw_curves, network_at
from vitlab.experiments.pictures.effects import verdict_lines
from vitlab.experiments.pictures.tables import mean_of
from vitlab.experiments.pictures.training_curves import mean_by_epoch

__all__ = ["draw_attended", "draw_extra_block", "draw_heads", "draw_scales", "mean_sorted"]

#: Arms without and with CB, as in the other pictures of CB.
_ARMS = {"plain": ("without CB, ours", "ink"), "cb": ("with CB, ours", "ours")}


def draw_extra_block(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 3: training loss and top-1 by epoch, with one more attention or MLP block."""
    full = "ViT of eight layers"
    network = network_at(scale, f"{full} with the width of ViT-Ti on CIFAR-100", full)
    arms = {"attention": ("extra MSA, ours", "ours"), "mlp": ("extra MLP, ours", "ink")}
    panels = []
    for title, label, value in (
        ("Training loss", "loss [nats]", "train_loss"),
        ("Top-1 accuracy", "accuracy [%]", "top1"),
    ):
        curves = []
        for arm, (words, kind) in arms.items():
            epochs, mean = mean_by_epoch(results, arm, value)
            curves.append(Curve(words, kind, list(epochs), list(mean), marks=len(epochs) == 1))
        panels.append(Curves(title, "epoch", label, curves))
    lines = verdict_lines(experiment, results, scale)
    for arm, name in (("attention", "MSA"), ("mlp", "MLP")):
        parameters, macs = (difference(results, "none", arm, value) for value in ("parameters", "macs"))
        if parameters is not None and macs is not None:
            counts = f"{parameters / 1e6:.3f} M parameters and {macs / 1e9:.3f} G multiply-accumulates"
            lines.append(f"The extra {name} block of the paper's network adds {counts}; the paper: nearly equal.")
    about = f"Ours: {network}, mean over the runs. The paper has curves only."
    return draw_curves(experiment, about, panels, lines)


def draw_scales(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 8: the ratio of quantiles and the average of the weights of CB_S by layer, of |λ| and of λ."""
    network = network_at(scale, "ViT-Ti on CIFAR-100", "ViT-S")
    found = [each for _, each in results.select("cb_s", "broadcast_scale")]

    def curve(words: str, kind: str, value: str) -> Curve:
        mean = np.mean([each.values[value] for each in found], axis=0) if found else np.zeros(0)
        return Curve(words, kind, range(len(mean)), list(mean))

    layers = [str(layer + 1) for layer in range(len(found[0].values["mean"]) if found else 12)]
    panels = [
        Curves(
            title, "layer", label, [curve("of |λ|, ours", "ours", first), curve("of λ, ours", "ink", second)], layers
        )
        for title, label, first, second in (
            ("Ratio of quantiles", "|λ at 10 %| / |λ at 90 %|", "ratio", "ratio_signed"),
            ("Average", "average", "mean_absolute", "mean"),
        )
    ]
    about = (
        f"Ours: {network} + CB_S, mean over the runs. The paper has curves only and does not say whether of λ or |λ|."
    )
    return draw_curves(experiment, about, panels, verdict_lines(experiment, results, scale))


def draw_heads(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 9: top-1 by the number of heads, without and with CB."""
    heads = fig_9.HEADS.get(scale, ())
    curves = []
    for part, (words, kind) in _ARMS.items():
        found = [mean_of("training", "top1")(results, fig_9.arm_of(part, each)) for each in heads]
        points = [(place, value) for place, value in enumerate(found) if value is not None]
        curves.append(Curve(words, kind, [place for place, _ in points], [value for _, value in points]))
    panel = Curves("Accuracy", "number of heads", "top-1 accuracy [%]", curves, list(map(str, heads)))
    network = network_at(scale, "ViT-Ti on CIFAR-100", "ViT-Ti")
    about = f"Ours: {network}, mean over the runs. The paper has curves only."
    return draw_curves(experiment, about, [panel], verdict_lines(experiment, results, scale))


def mean_sorted(results: Results, arm: str, kind: str, value: str) -> list[float]:
    """A value of the heads of the last layer in ascending order, the mean over the runs and parts of the images.

    Heads of different runs do not correspond to each other, but the lowest ones, the second lowest ones etc. do.
    """

    def heads(found: Measurement) -> np.ndarray:
        last = np.asarray(found.values[value], dtype=float)[-1]
        return np.sort(last[np.isfinite(last)])

    rows = [heads(found) for _, found in results.select(arm, kind)]
    return [float(each) for each in np.mean(rows, axis=0)] if rows else []


def draw_attended(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Fig. 10: entropy of the heads of the last layer, and the share of keys that they attend to."""
    network = network_at(scale, "UperNet with DeiT-Ti on CamVid", "UperNet with ViT-S")
    measures: Mapping[str, tuple[str, str, str]] = {
        "Entropy of attention": ("attention_entropy", "mean", "entropy [nats]"),
        "Attended keys": ("attention_maps", "attended", "share of keys above uniform"),
    }
    panels = []
    for title, (kind, value, label) in measures.items():
        found = {arm: mean_sorted(results, arm, kind, value) for arm in _ARMS}
        curves = [Curve(words, class_, range(len(found[arm])), found[arm]) for arm, (words, class_) in _ARMS.items()]
        names = [str(head + 1) for head in range(max(map(len, found.values())))]
        panels.append(Curves(title, "head of the last layer, in ascending order", label, curves, names, (0.0,)))
    about = f"Ours: {network}, mean over the runs. The paper shows pictures of attention maps, without numbers."
    return draw_curves(experiment, about, panels, verdict_lines(experiment, results, scale))
