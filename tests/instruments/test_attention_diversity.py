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
    """Heads against dense maps, pair by pair; rows by loops, one row after the other."""
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
            alike = np.mean([likeness(image[head], tau, "paper") for image in weights])
            assert found["row_similarity"][i, head] == pytest.approx(alike, rel=1e-4)


@pytest.mark.parametrize("form", ["paper", "released"])
@pytest.mark.parametrize("tau", [0.0, 0.9, 1.9])  # at 1 and 2 a head that sees one key of M stands on the edge
@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_the_mean_map_is_what_the_loss_lowers(case, tau, form):
    """By loops, and against the loss itself, layer by layer."""
    model, images = sharp(case), pictures(case)
    each, mean = (
        vitlab.measure("attention_diversity", model, [images], tau=tau, form=form, heads=heads)
        for heads in ("each", "mean")
    )
    assert mean.settings == {"tau": tau, "form": form, "heads": "mean"} and mean.axes["head"] == (0,)
    for i, (weights, _, _) in enumerate(maps(model, images).values()):
        alike = np.mean([likeness(image, tau, form) for image in weights.mean(1)])
        assert mean.values["row_similarity"][i, 0] == pytest.approx(alike, rel=1e-4, abs=1e-6)
        loss = attention_diversification([weights], tau=tau, form=form)
        assert mean.values["row_similarity"][i, 0] == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)
        for head in range(weights.shape[1]):
            alike = np.mean([likeness(image[head], tau, form) for image in weights])
            assert each.values["row_similarity"][i, head] == pytest.approx(alike, rel=1e-4, abs=1e-6)


def likeness(rows, tau, form):
    """(N, M) -> the mean cosine of a row and the mean row, by TAPADL's Eqs. 1 and 2 or by its released code."""
    threshold = tau / rows.shape[1]

    def cut(row):
        return torch.where(row >= threshold if form == "paper" else row > threshold, row, 0.0)

    mean = torch.stack([cut(row) for row in rows]).mean(0) if form == "paper" else cut(rows.mean(0))
    lengths = [max(float(cut(row).norm() * mean.norm()), 1e-12) for row in rows]
    return float(np.mean([float(cut(row) @ mean) / length for row, length in zip(rows, lengths, strict=True)]))


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
