"""CB Table 4: the position of CB in ViT-S: MLP, MSA or both (a); Front, Mid or End of the MLP (b). CB is in all layers.

Sec. 3.2 says that CB helps "regardless of its position", but Front has the accuracy of the baseline, 79.9: there is
no claim that it raises it. Sec. 4.1 says that at Front the weights after CB "cannot receive the gradient signals". This
is judged literally, and as far as it is true: no gradient reaches them through the term of their own block.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vitlab.core.experiment import Claim, Job, Results, Scale, values_of
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import (
    claims_of,
    count,
    gain,
    holds,
    measured,
    one,
    raises,
    table,
    verdicts_of,
)
from vitlab.experiments.context_broadcasting._shared import REPEATED, Network, sizes

TITLE = "CB Table 4: position of CB"

DIFFERENCES = REPEATED

_VIT_S = "timm/deit_small_patch16_224"

#: Position -> its name, seams, top-1. `end` is the row MLP of (a) and the row End of (b).
_ROWS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "plain": ("ViT-S", (), 79.9),
    "end": ("CB at MLP (End)", ("mlp.out",), 80.5),
    "attention": ("CB at MSA", ("attn.out",), 80.1),
    "both": ("CB at MLP and MSA", ("mlp.out", "attn.out"), 80.1),
    "front": ("CB at Front", ("mlp.in",), 79.9),
    "mid": ("CB at Mid", ("mlp.mid",), 80.5),
}

PAPER = table(("FLOPs [G]", "Acc@1 [%]"), {name: (4.6, top1) for name, _, top1 in _ROWS.values()})

#: A small ViT in which gradients are compared; the statements do not depend on its size or weights.
_SMALL_VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=3, num_heads=3, num_classes=25)"
_ZERO = 1e-6  # the gradients of these weights have norms above 0.01
_TERMS = {"one block": "gradient_reach(blocks=[1])", "all blocks": "gradient_reach"}


def _norms(results: Results, arm: str, value: str, seam: str) -> np.ndarray | None:
    """Gradient norms of the MLP's weights, (block, weight); None if they were not measured."""
    found = measured(results, arm, "gradient_reach")
    if found is None:
        return None
    chosen = [i for i, name in enumerate(found.axes["weight"]) if str(name).startswith("mlp.")]
    norms: np.ndarray = values_of(found, value, seam=seam)[:, chosen]
    return norms


def _mid_is_end(results: Results) -> bool | None:
    mid, end = (_norms(results, "all blocks", "total", seam) for seam in ("mlp.mid", "mlp.out"))
    return None if mid is None or end is None else bool(np.allclose(mid, end, rtol=1e-3, equal_nan=True))


def _no_gradient(results: Results, arm: str, value: str, block: int | slice) -> bool | None:
    front = _norms(results, arm, value, "mlp.in")
    return None if front is None else bool((np.nan_to_num(front[block]) <= _ZERO).all())


def _end_receives(results: Results) -> bool | None:
    end = _norms(results, "one block", "through", "mlp.out")
    return None if end is None else bool((end[1][np.isfinite(end[1])] > 0).any())


def _giga(results: Results, arm: str) -> float | None:
    counts = [one(results, arm, "sizes", value) for value in ("macs", "added_macs")]
    return None if counts[0] is None or counts[1] is None else (counts[0] + counts[1]) / 1e9


_PLAIN = ("plain", 79.9)
_CHECKS = [
    *(
        raises("Acc@1", _PLAIN, (arm, top1), name, "Table 4", "ViT-S")
        for arm, (name, _, top1) in _ROWS.items()
        if top1 != _PLAIN[1]
    ),
    gain(
        Claim(
            "mlp over msa",
            "CB after the MLP is better than after MSA",
            paper=0.4,
            source="Table 4a",
        ),
        "attention",
        "end",
    ),
    gain(
        Claim("mlp over both", "CB after the MLP is better than after both blocks", paper=0.4, source="Table 4a"),
        "both",
        "end",
    ),
    gain(Claim("end over front", "CB at End is better than at Front", paper=0.6, source="Table 4b"), "front", "end"),
    *(
        count(
            Claim(
                f"{arm}: FLOPs", f"{name} has 4.6 G FLOPs", paper=4.6, deterministic=True, source="Table 4", unit="G"
            ),
            partial(_giga, arm=arm),
            tolerance=0.05,
        )
        for arm, (name, _, _) in _ROWS.items()
    ),
    holds(
        Claim(
            "mid is end",
            "CB at Mid and CB at End are the same function of the weights, with equal gradients",
            deterministic=True,
            source="Sec. 4.1: the output is identical",
        ),
        _mid_is_end,
    ),
    holds(
        Claim(
            "front: own term",
            "with CB at the Front of one MLP, the weights of this MLP get no gradient through its broadcast term",
            deterministic=True,
            source="Sec. 4.1, B.6",
        ),
        partial(_no_gradient, arm="one block", value="through", block=1),
    ),
    holds(
        Claim(
            "front: all terms",
            "with CB at the Front of every MLP, the weights of the MLPs get no gradient through any broadcast term",
            deterministic=True,
            source="Sec. 4.1, B.6, for the networks of Table 4",
        ),
        partial(_no_gradient, arm="all blocks", value="through", block=slice(None)),
    ),
    holds(
        Claim(
            "front: unchanged",
            "with CB at the Front of one MLP, the gradients of this MLP's weights are as without the broadcast term",
            deterministic=True,
            source="Sec. 4.1: cannot receive the gradient signals",
        ),
        partial(_no_gradient, arm="one block", value="changed", block=1),
    ),
    holds(
        Claim(
            "end: preceding weights",
            "with CB at the End of one MLP, its weights get gradients through the broadcast term",
            deterministic=True,
            source="Sec. 4.1, B.6",
        ),
        _end_receives,
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Counts of ViT-S and gradients in a small ViT at every scale; training."""
    jobs = [Job(arm, procedure, model=_SMALL_VIT, images=16) for arm, procedure in _TERMS.items()]
    for arm, (_, seams, _) in _ROWS.items():
        parts = "".join(f" | ContextBroadcast(at={seam!r}, blocks='all')" for seam in seams)
        jobs.append(sizes(arm, f"{_VIT_S}{parts}"))
        network = Network() if arm == "plain" else Network("cb", position=arm, blocks="all")
        jobs += network.jobs(scale, arm)
    return jobs


def check(results: Results) -> list[Verdict]:
    """Counts and gradients are exact; accuracies are paired by seed."""
    return verdicts_of(_CHECKS, results)
