"""CB Fig. 10: entropy and attended keys of the last layer."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.synthetic import entry, layered
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.context_broadcasting import fig_10
from vitlab.experiments.record_numbers import entries_of, results_of


def entropy(last: float) -> Measurement:
    return layered("attention_entropy", {}, mean=(("layer", "head"), [[9.0, 9.0], [5.0, 5.0], [last - 1, last + 1]]))


def maps(attended: int) -> Measurement:
    """Two heads; of 1,000 keys some are attended on average."""
    return layered("attention_maps", {}, attended=(("layer", "head"), [[attended / 1000 - 0.1, attended / 1000 + 0.1]]))


def example(claim: Claim, effects: Sequence[float]) -> Results:
    entries = []
    for seed, effect in enumerate(effects):
        if claim.name == "entropy":
            pair = entropy(3.0), entropy(3.0 - effect)
        else:  # shares of the keys, so that a tenth of the effects stands for them
            pair = maps(500), maps(500 - round(40 * effect))
        entries += [entry("plain", pair[0], seed), entry("cb", pair[1], seed)]
    return Results(entries)


def test_attended_keys_are_counted_and_stored_in_records() -> None:
    """Uniform attention is at the threshold, so that all keys count; a threshold above it leaves none. Records omit the
    maps themselves, which are too large."""
    import torch

    import vitlab

    model = vitlab.load("timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)")
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight)
    images = range(12)  # 12 maps of 3 heads and 17 × 17 entries
    for threshold, share in ((0.5, 1.0), (1.5, 0.0)):
        batches = [torch.randn(12, 3, 32, 32)]
        found = vitlab.measure("attention_maps", model, batches, images=images, threshold=threshold)
        ((_, stored),) = results_of(entries_of(Results([entry("cb", found)]))).entries
        assert "blocks.1" in found.values and "blocks.1" not in stored.values
        assert fig_10._attended(found) == fig_10._attended(stored) == share
