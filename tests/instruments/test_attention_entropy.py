from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

import vitlab
from cases.attention import ATTENTION, FAMILY, maps, pictures, sharp
from vitlab.core.repeats import average
from vitlab.instruments.attention_entropy import BINS


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_against_scipy(case):
    model, images = sharp(case), pictures(case, 3)
    found = vitlab.measure("attention_entropy", model, [images[:2], images[2:]]).values
    for i, (weights, queries, _) in enumerate(maps(model, images).values()):
        rows = scipy_entropy(weights.numpy(), axis=-1)  # (B·T, H, N)
        heads = rows.shape[1]
        by_head = rows.transpose(1, 0, 2).reshape(heads, -1)
        assert found["mean"][i, :heads] == pytest.approx(by_head.mean(1), rel=1e-5, abs=1e-6)
        assert found["p15"][i, :heads] == pytest.approx(np.quantile(by_head, 0.15, axis=1), rel=1e-5, abs=1e-6)
        assert found["p85"][i, :heads] == pytest.approx(np.quantile(by_head, 0.85, axis=1), rel=1e-5, abs=1e-6)
        for name, share in (("pooled_p15", 0.15), ("pooled_p85", 0.85)):  # CB Fig. 4: heads and tokens together
            assert found[name][i] == pytest.approx(np.quantile(rows, share), rel=1e-5, abs=1e-6)
        assert np.isnan(found["mean"][i, heads:]).all()
        if queries.prefix:
            assert found["class_row"][i, :heads] == pytest.approx(rows[:, :, 0].mean(0), rel=1e-5, abs=1e-6)
        else:
            assert np.isnan(found["class_row"][i]).all()
        assert found["bound"][i] == pytest.approx(math.log(weights.shape[-1]))
        assert (found["p85"][i, :heads] <= found["bound"][i] + 1e-6).all()
        assert found["normalised"][i, :heads] == pytest.approx(by_head.mean(1) / found["bound"][i], rel=1e-5, abs=1e-6)


def test_uniform_attention_reaches_the_bound():
    case = FAMILY["vit"]
    model = case.model()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight)
        torch.nn.init.zeros_(block.attn.qkv.bias)
    found = vitlab.measure("attention_entropy", model, [pictures(case)]).values
    assert found["mean"] == pytest.approx(math.log(17), rel=1e-6)
    assert found["normalised"] == pytest.approx(1, rel=1e-6)


def test_attention_to_one_token_has_no_entropy():
    """Logits a million times as large: every row attends to a single key, and 0 log 0 is 0."""
    case = FAMILY["vit"]
    model = sharp(case)
    for block in model.blocks:
        block.attn.qkv.weight.data.mul_(1e3)
    found = vitlab.measure("attention_entropy", model, [pictures(case)]).values
    assert (found["mean"] < 0.01).all() and (found["mean"] >= 0).all()


def test_parts_of_the_images_are_pooled():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case, 6)
    whole = vitlab.measure("attention_entropy", model, [images]).values
    parts = [vitlab.measure("attention_entropy", model, [images[i : i + 2]]) for i in (0, 2, 4)]
    parts = [replace(m, provenance={**m.provenance, "part": [i, 3], "data": f"d {i}"}) for i, m in enumerate(parts)]
    pooled = average(parts).values
    assert pooled["mean"] == pytest.approx(whole["mean"])
    width = whole["bound"].max() / BINS
    for name in ("p15", "p85", "pooled_p15", "pooled_p85"):
        off = np.abs(pooled[name] - whole[name])
        averaged = np.abs(np.mean([m.values[name] for m in parts], axis=0) - whole[name])
        assert np.nanmean(off) < 4 * width and np.nanmean(off) < np.nanmean(averaged), name
    assert (pooled["row_histogram"] == whole["row_histogram"]).all()
    assert whole["row_histogram"].sum() == 6 * 17 * whole["mean"].size
