"""CB Table 4: positions, and what the gradients in a small ViT say about the paper's explanation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.context_broadcasting.arms import counts, gains
from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.experiments.context_broadcasting import table_4

BETTER = {
    "mlp over msa": ("attention", "end"),
    "mlp over both": ("both", "end"),
    "end over front": ("front", "end"),
}
SEAMS, WEIGHTS = ("mlp.in", "mlp.mid", "mlp.out"), ("norm2.weight", "mlp.fc1.weight", "mlp.fc2.weight")


def reach(arm: str, value: str, seam: str, norms: Sequence[float]) -> Results:
    """Gradient norms of three blocks: those of the MLP are given for one seam, by block; all others are 1."""
    arrays = {name: np.ones((3, 3, 3)) for name in ("total", "through", "changed")}
    arrays[value][SEAMS.index(seam), :, 1:] = np.array(norms)[:, None]
    axes = {"seam": SEAMS, "block": ("a", "b", "c"), "weight": WEIGHTS}
    found = layered("gradient_reach", axes, **{name: (tuple(axes), array) for name, array in arrays.items()})
    return Results([entry(arm, found, model="timm/any")])


def example(claim: Claim, effects: Sequence[float]) -> Results:
    if claim.name in BETTER:
        return gains("Acc@1", *BETTER[claim.name], effects)
    arm, _, column = claim.name.partition(": ")
    if column == "FLOPs":
        return Results([counts(arm, macs=0.75e9 * effects[0], added_macs=0.25e9 * effects[0])])
    if column == "Acc@1":
        return gains("Acc@1", "plain", arm, effects)
    true = bool(effects[0])
    return {
        "mid is end": lambda: reach("all blocks", "total", "mlp.mid", [1, 1 if true else 1.1, 1]),
        "front: own term": lambda: reach("one block", "through", "mlp.in", [1, 0 if true else 0.1, 1]),
        "front: all terms": lambda: reach("all blocks", "through", "mlp.in", [0 if true else 0.1, 0, 0]),
        "front: unchanged": lambda: reach("one block", "changed", "mlp.in", [1, 0 if true else 0.1, 1]),
        "end: preceding weights": lambda: reach("one block", "through", "mlp.out", [0, 0.1 if true else 0, 0]),
    }[claim.name]()


def test_gradients_in_a_small_vit() -> None:
    """Mid and End are one function. Front's own term gives no gradient; activations and the terms of others do."""
    import torch

    import vitlab

    entries = []
    for job in (job for job in table_4.plan("smoke") if job.kind == "gradient_reach"):
        model = vitlab.load(job.model, seed=0)
        images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        settings = {"blocks": [1]} if job.arm == "one block" else {}
        entries.append((job, vitlab.measure("gradient_reach", model, [(images, torch.arange(8))], **settings)))
    outcomes = {c.name: v.outcome for c, v in zip(table_4.CLAIMS, table_4.check(Results(entries)), strict=True)}
    expected = {
        "mid is end": "holds",
        "front: own term": "holds",
        "front: all terms": "does not hold",
        "front: unchanged": "does not hold",
        "end: preceding weights": "holds",
    }
    assert {name: outcomes[name] for name in expected} == expected
