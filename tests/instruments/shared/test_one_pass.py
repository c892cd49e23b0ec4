"""Instruments of one pass: accepted batches and stored results."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import ATTENTION, FAMILY, maps, pictures, sharp
from vitlab.instruments import measure_together
from vitlab.instruments.shared import per_image_sums
from vitlab.kernels import attention_rows

KINDS = ("attention_entropy", "attention_distance", "attention_diversity", "token_overfocus", "softmax_gradient")


@pytest.mark.parametrize("group", [1, 2, 100])
@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_the_group_size_does_not_change_results(case, group, monkeypatch):
    model, images = sharp(case), pictures(case, 3)
    expected = measure_together(KINDS, model, [images])
    monkeypatch.setattr(per_image_sums, "_MAPS_PER_GROUP", group)
    monkeypatch.setattr(attention_rows, "CHUNK", 500)
    found = measure_together(KINDS, model, [images[:1], images[1:]])
    for kind in KINDS:
        for name, value in expected[kind].values.items():
            np.testing.assert_allclose(found[kind].values[name], value, rtol=2e-4, atol=1e-6, err_msg=f"{kind} {name}")


def repeating():
    """A ViT whose second block runs twice in each forward."""
    model = sharp(FAMILY["vit"])
    block = model.blocks[1]
    once = block.forward
    block.forward = lambda x, **_: once(once(x))
    return model


def test_a_block_that_runs_twice_counts_twice():
    model, images = repeating(), pictures(FAMILY["vit"], 3)
    whole = maps(model, images)
    assert [len(weights) for weights, _, _ in whole.values()][:2] == [3, 6]
    found = measure_together(("attention_entropy", "attention_diversity"), model, [images])
    stability = vitlab.measure(
        "attention_stability", model, [images], corruption=lambda x: 1 - x, mean=(0.5,) * 3, std=(0.5,) * 3
    ).values
    other, every = maps(model, -images), []
    for i, (name, (weights, _, _)) in enumerate(whole.items()):
        entropy = torch.special.entr(weights).sum(-1).mean((0, 2))
        assert found["attention_entropy"].values["mean"][i] == pytest.approx(entropy.numpy(), rel=1e-4)
        likeness = torch.cosine_similarity(weights.flatten(2), other[name][0].flatten(2), dim=-1)
        assert stability["mean"][i] == pytest.approx(likeness.mean(0).numpy(), rel=1e-4)
        every.append(likeness.flatten())
    assert stability["overall"] == pytest.approx(float(torch.cat(every).mean()), rel=1e-4)
    (last,) = [vitlab.measure("attention_maps", model, [images], layers=["blocks.1"]).values["blocks.1"]]
    assert last[0] == pytest.approx(whole["blocks.1"][0][3].numpy(), abs=1e-5)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "at least one image"),
        ([torch.zeros(2, 3, 32, 32), None], "needs batches of images"),
        ([torch.zeros(2, 3, 32, 32), torch.zeros(2, 3, 32, 48)], "32x48 images came after one of 32x32"),
        ([torch.zeros(2, 3, 32, 32), torch.zeros(0, 3, 32, 32)], "at least one image"),
    ],
)
def test_batches_that_cannot_be_measured_together(batches, message):
    model = sharp(FAMILY["vit"])
    for kind in (*KINDS, "feature_variance"):
        with pytest.raises(vitlab.VitlabError, match=message):
            vitlab.measure(kind, model, batches)


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_the_default_device_does_not_matter(case):
    """The default device is `meta`, without data: tensors created there by mistake cause errors."""
    model, images = sharp(case), pictures(case)
    for kind in ("attention_distance", "attention_diversity", "attention_maps"):
        expected = vitlab.measure(kind, model, [images]).values
        with torch.device("meta"):
            found = vitlab.measure(kind, model, [images]).values
        np.testing.assert_equal(dict(found), dict(expected))
