"""CB Fig. 10: entropy and attended keys of the last layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.context_broadcasting import fig_10


def entropy(last: float) -> Measurement:
    return layered("attention_entropy", {}, mean=(("layer", "head"), [[9.0, 9.0], [5.0, 5.0], [last - 1, last + 1]]))


def maps(attended: int) -> Measurement:
    """One map with 1,000 keys, of which some are attended."""
    values = np.zeros((1, 1, 1, 1000))
    values[..., :attended] = 0.01
    dims = ("image", *(f"{axis} of blocks.11" for axis in ("head", "query", "key")))
    grid = {"key_grid": (("layer", "side"), [[2, 500]]), "key_prefix": (("layer",), [0])}
    return layered("attention_maps", {}, **{"blocks.11": (dims, values)}, **grid)


def example(claim: Claim, effects: Sequence[float]) -> Results:
    entries = []
    for seed, effect in enumerate(effects):
        if claim.name == "entropy":
            pair = entropy(3.0), entropy(3.0 - effect)
        else:  # shares of the keys, so that a tenth of the effects stands for them
            pair = maps(500), maps(500 - round(40 * effect))
        entries += [entry("plain", pair[0], seed), entry("cb", pair[1], seed)]
    return Results(entries)


def test_attended_keys_are_counted_in_the_maps_of_the_instrument() -> None:
    """Uniform attention is at the threshold, so that all keys count; a threshold above it leaves none."""
    import torch

    import vitlab

    model = vitlab.load("timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)")
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight)
    for threshold, share in ((0.5, 1.0), (1.5, 0.0)):
        found = vitlab.measure("attention_maps", model, [torch.randn(1, 3, 32, 32)], threshold=threshold)
        assert fig_10._attended(found) == share
