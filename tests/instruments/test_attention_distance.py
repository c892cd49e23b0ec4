from __future__ import annotations

import numpy as np
import pytest
import timm
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vitlab
from cases.attention import ATTENTION, FAMILY, dense, maps, pictures, sharp
from vitlab.core.anatomy import TokenLayout
from vitlab.instruments import attention_distance
from vitlab.instruments.attention_distance import summed_distance, total_distance
from vitlab.instruments.shared.token_positions import distances, place_tokens


def by_loops(weights, queries, keys, renormalise):
    """Σ_ij a_ij |p_i − p_j|_1 over spatial tokens of the dense map, and the number of pairs i ≠ j, for every head."""
    full = dense(weights, queries, keys)[:, :, queries.prefix :, keys.prefix :]
    if renormalise:
        full = full / full.sum(-1, keepdim=True)
    total, pairs = torch.zeros(full.shape[1], dtype=torch.float64), 0
    (h, w), (p, q) = queries.grid, keys.grid
    for i in range(h * w):
        for j in range(p * q):
            if (h, w) == (p, q) and i == j:
                continue
            rows = abs((i // w + 0.5) / h - (j // q + 0.5) / p)
            columns = abs((i % w + 0.5) / w - (j % q + 0.5) / q)
            total += full[:, :, i, j].mean(0) * (rows + columns)
            pairs += 1
    return total, pairs, h * w


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed"])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_against_loops_over_tokens(case, renormalise, kept, monkeypatch):
    """With distances of all pairs, and with those of some rows at a time, as for large maps."""
    if not kept:
        monkeypatch.setattr(attention_distance, "_KEPT_PAIRS", 0)
    model, images = sharp(case), pictures(case)
    found = vitlab.measure("attention_distance", model, [images], renormalise=renormalise)
    for i, (weights, queries, keys) in enumerate(maps(model, images).values()):
        total, pairs, rows = by_loops(weights, queries, keys, renormalise)
        heads = len(total)
        assert found.values["distance"][i, :heads] == pytest.approx((total / pairs).numpy(), rel=1e-4)
        assert found.values["attended"][i, :heads] == pytest.approx((total / rows).numpy(), rel=1e-4)


def test_uniform_attention_has_the_closed_form():
    """Mean |r − r'| over an axis of h cells is (h² − 1) / 3h²; the class key takes 1/17 of a row."""
    case = FAMILY["vit"]
    model = case.model()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight)
        torch.nn.init.zeros_(block.attn.qkv.bias)
    expected = 2 * (4**2 - 1) / (3 * 4**2) * 16 / 17
    found = vitlab.measure("attention_distance", model, [pictures(case)])
    assert found.values["attended"] == pytest.approx(expected, rel=1e-5)
    assert found.values["uniform"] == pytest.approx(expected, rel=1e-5)
    assert found.values["distance"] == pytest.approx(expected / 15, rel=1e-5)  # E over pairs: 16 · 15 of them
    renormalised = vitlab.measure("attention_distance", model, [pictures(case)], renormalise=True)
    assert renormalised.values["attended"] == pytest.approx(expected * 17 / 16, rel=1e-5)
    assert renormalised.values["uniform"] == pytest.approx(expected * 17 / 16, rel=1e-5)


def test_attention_to_itself_has_no_distance():
    layout = TokenLayout((3, 4))
    assert total_distance(torch.eye(12).reshape(1, 1, 12, 12), distances(layout, layout)).item() == 0


def test_padded_windows_have_no_distance_and_no_neighbourhood():
    """The 6 × 6 map of the first stage is padded to windows of 4; the 3 × 3 map of the second is one window."""
    settings = {"img_size": 24, "window_size": 4, "embed_dim": 16, "depths": (1, 1), "num_heads": (2, 2)}
    model, images = timm.create_model("swin_tiny_patch4_window7_224", **settings), torch.randn(2, 3, 24, 24)
    found = vitlab.measure("attention_distance", model, [images]).values
    for value in found.values():
        assert np.isnan(value[0]).all() and np.isfinite(value[1]).all()
    local = vitlab.measure("attention_diversity", model, [images]).values
    assert np.isnan(local["self_mass"][0]).all() and np.isfinite(local["self_mass"][1]).all()
    assert np.isfinite(local["head_similarity"]).all()
    with pytest.raises(vitlab.VitlabError, match="padded"):
        vitlab.measure("attention_maps", model, [images], layers=[0])


def test_distances_are_summed_without_a_table_of_all_pairs():
    """Against loops over windows with fewer keys than queries; 128 x 128 tokens: the closed form, in O(N) memory."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = (torch.rand(3, count, 2, generator=generator).mul(5).round() / 5 for count in (7, 4))
    pairs = [float((x - y).abs().sum()) for a, b in zip(rows, columns, strict=True) for x in a for y in b]
    assert summed_distance(rows, columns) == pytest.approx(sum(pairs))
    layout, sizes = TokenLayout((128, 128), prefix=1), []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            result = function(*arguments, **(keywords or {}))
            tensors = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
            sizes.extend(each.untyped_storage().size() for each in tensors)
            return result

    accumulator = attention_distance.Accumulator()
    accumulator._places[layout, layout] = place_tokens(layout, layout)
    with Sizes():
        uniform = accumulator._uniform(layout, layout)
    assert uniform == pytest.approx(2 * (128**2 - 1) / (3 * 128**2) * 128**2 / (128**2 + 1), rel=1e-9)
    assert max(sizes) <= 4 * 8 * layout.tokens
