from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import ATTENTION, FAMILY, dense, maps, pictures, sharp
from vitlab.losses.attention_diversification import attention_diversification


def cosine(a, b):
    return float(a.flatten() @ b.flatten() / (a.norm() * b.norm()))


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_heads_and_rows(case, tau):
    """Heads against dense maps, pair by pair; rows against the loss, which has a test of its own."""
    model, images = sharp(case), pictures(case)
    found = vitlab.measure("attention_diversity", model, [images], tau=tau).values
    for i, (weights, queries, keys) in enumerate(maps(model, images).values()):
        cut = weights * (weights >= tau / weights.shape[-1])
        full = dense(cut, queries, keys)
        heads = full.shape[1]
        pairs = np.array([[np.mean([cosine(x[g], x[h]) for x in full]) for h in range(heads)] for g in range(heads)])
        assert found["head_pairs"][i, :heads, :heads] == pytest.approx(pairs, rel=1e-4)
        if heads > 1:
            off = pairs[~np.eye(heads, dtype=bool)].mean()
            assert found["head_similarity"][i] == pytest.approx(off, rel=1e-4)
        else:
            assert np.isnan(found["head_similarity"][i])
        for head in range(heads):
            loss = attention_diversification([weights[:, head : head + 1]], tau=tau)
            assert found["row_similarity"][i, head] == pytest.approx(loss.item(), rel=1e-4)


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_mass_near_the_diagonal_by_loops(case):
    model, images = sharp(case), pictures(case)
    found = vitlab.measure("attention_diversity", model, [images]).values
    for i, (weights, queries, keys) in enumerate(maps(model, images).values()):
        full = dense(weights, queries, keys)[:, :, queries.prefix :, keys.prefix :].mean(0)  # (H, N, M)
        (h, w), (p, q) = queries.grid, keys.grid
        g, c = min(h, p), min(w, q)
        own = near = 0
        for a in range(h * w):
            for b in range(p * q):
                rows = abs(a // w * g // h - b // q * g // p)
                columns = abs(a % w * c // w - b % q * c // q)
                own = own + full[:, a, b] * (max(rows, columns) == 0)
                near = near + full[:, a, b] * (max(rows, columns) <= 1)
        heads = len(full)
        assert found["self_mass"][i, :heads] == pytest.approx((own / (h * w)).numpy(), rel=1e-4)
        assert found["neighbourhood_mass"][i, :heads] == pytest.approx((near / (h * w)).numpy(), rel=1e-4)


def test_uniform_attention():
    """Of a 4 × 4 grid, 4 tokens have 4 neighbours (themselves included), 8 have 6 and 4 have 9: 100 / 16 on average."""
    case = FAMILY["vit"]
    model = case.model()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight)
        torch.nn.init.zeros_(block.attn.qkv.bias)
    found = vitlab.measure("attention_diversity", model, [pictures(case)]).values
    assert found["head_similarity"] == pytest.approx(1, abs=1e-6)
    assert found["row_similarity"] == pytest.approx(1, abs=1e-6)
    assert found["self_mass"] == pytest.approx(1 / 17)
    assert found["neighbourhood_mass"] == pytest.approx(100 / 16 / 17)


def test_a_negative_threshold():
    with pytest.raises(vitlab.VitlabError, match="tau=-1"):
        vitlab.measure("attention_diversity", sharp(FAMILY["vit"]), [pictures(FAMILY["vit"])], tau=-1)
