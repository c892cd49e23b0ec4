"""CB Fig. S11: the last epoch, and the mean over epochs."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.context_broadcasting.arms import metrics
from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name == "across epochs":
        epochs = {"epoch": (1, 2, 3)}
        return Results(
            [
                entry(arm, layered("training", epochs, **_curves([20.0, 40.0 + 3 * gain, 60.0])), seed)
                for seed, effect in enumerate(effects)
                for arm, gain in (("fair", 0.0), ("cb", effect))
            ]
        )
    first, second, value = {
        "top-1": ("plain", "cb", "top1"),
        "top-5": ("plain", "cb", "top5"),
        "training loss": ("cb", "fair", "train_loss"),
        "evaluation loss": ("cb", "fair", "loss"),
    }[claim.name]
    return metrics(value, first, second, effects, others=("top1", "top5", "train_loss", "loss"))


def _curves(top1: Sequence[float]) -> dict[str, tuple[tuple[str, ...], Sequence[float]]]:
    """Metrics by epoch; only the top-1 accuracy is of interest."""
    return dict.fromkeys(("top1", "top5", "train_loss", "loss"), (("epoch",), top1))
