from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import vitlab
from cases import timm_model
from cases.attention import FAMILY, pictures, sharp
from vitlab.instruments.gradient_reach import BroadcastTerm
from vitlab.modules.context_broadcast import ContextBroadcast

WEIGHTS = ("attn.qkv.weight", "norm2.weight", "mlp.fc1.weight", "mlp.fc2.weight")


@pytest.fixture(scope="module")
def setting():
    case = FAMILY["vit"]
    return sharp(case), [
        (pictures(case, 3), torch.tensor([0, 3, 6])),
        (pictures(case, 2, seed=5), torch.tensor([1, 2])),
    ]


def norms(found, name, seam, block):
    at = found.axes["seam"].index(seam), found.axes["block"].index(f"blocks.{block}")
    return {w: found.values[name][(*at, found.axes["weight"].index(w))] for w in found.axes["weight"]}


def test_the_term_is_that_of_context_broadcast():
    x = torch.randn(2, 5, 3)
    assert torch.equal(BroadcastTerm("kept")(x), ContextBroadcast()(x))
    assert torch.equal(BroadcastTerm("constant")(x), ContextBroadcast()(x))
    assert torch.equal(BroadcastTerm("removed")(x), x / 2)


def test_total_is_the_gradient_of_a_model_with_context_broadcast(setting):
    model, items = setting
    found = vitlab.measure("gradient_reach", model, items)
    assert found.axes["seam"] == ("mlp.in", "mlp.mid", "mlp.out")
    for seam in found.axes["seam"]:
        fitted = vitlab.retrofit(sharp(FAMILY["vit"]), "ContextBroadcast", at=seam)
        images, targets = (torch.cat(part) for part in zip(*items, strict=True))
        F.cross_entropy(fitted(images), targets).backward()
        for i, block in enumerate(fitted.blocks):
            total = norms(found, "total", seam, i)
            for name in WEIGHTS:
                assert total[name] == pytest.approx(block.get_parameter(name).grad.norm().item(), rel=1e-3)


def test_through_one_term_reaches_what_comes_before_it_only(setting):
    """A single term, in the middle block: paths through it end in the weights before it."""
    model, items = setting
    found = vitlab.measure("gradient_reach", model, items, blocks=[1])
    total = norms(found, "total", "mlp.out", 1)
    for seam, after in (
        ("mlp.in", ("mlp.fc1.weight", "mlp.fc2.weight")),
        ("mlp.mid", ("mlp.fc2.weight",)),
        ("mlp.out", ()),
    ):
        through = norms(found, "through", seam, 1)
        for name in WEIGHTS:
            if name in after:
                assert through[name] < 1e-6 * total[name]
            else:
                assert through[name] > 1e-4 * total[name]
        assert all(value > 1e-6 for value in norms(found, "through", seam, 0).values() if np.isfinite(value) and value)
        assert max(norms(found, "through", seam, 2).values()) < 1e-6


def test_the_papers_claim_fails_beyond_one_block(setting):
    """Front: with a term in every block, subsequent weights are reached through the next block's term, and even in the
    last block the term changes their gradient."""
    model, items = setting
    found = vitlab.measure("gradient_reach", model, items)
    for block in (0, 1):
        through, total = norms(found, "through", "mlp.in", block), norms(found, "total", "mlp.in", block)
        assert through["mlp.fc1.weight"] > 1e-3 * total["mlp.fc1.weight"]
        assert through["mlp.fc2.weight"] > 1e-3 * total["mlp.fc2.weight"]
    assert norms(found, "through", "mlp.in", 2)["mlp.fc1.weight"] < 1e-6
    assert (
        norms(found, "changed", "mlp.in", 2)["mlp.fc1.weight"]
        > 1e-2 * norms(found, "total", "mlp.in", 2)["mlp.fc1.weight"]
    )


def test_mid_and_end_have_the_same_total_gradient(setting):
    """Averaging commutes with the affine fc2: the two models are one function, although `through` differs."""
    model, items = setting
    found = vitlab.measure("gradient_reach", model, items)
    mid, end = found.axes["seam"].index("mlp.mid"), found.axes["seam"].index("mlp.out")
    np.testing.assert_allclose(found.values["total"][mid], found.values["total"][end], rtol=1e-3, atol=1e-7)
    at = found.axes["weight"].index("mlp.fc2.weight")
    assert abs(found.values["through"][mid, -1, at] - found.values["through"][end, -1, at]) > 1e-4


@pytest.mark.parametrize("family", ["swin", "pvt_v2"])
def test_hierarchies(family):
    case = FAMILY[family]
    found = vitlab.measure("gradient_reach", sharp(case), [(pictures(case), torch.tensor([0, 1]))])
    assert np.isfinite(found.values["through"]).any()


@pytest.mark.parametrize(
    ("batches", "settings", "message"),
    [
        ("images", {}, "targets"),
        ("items", {"seams": ["mlp.outt"]}, "did you mean 'mlp.out'"),
        ("items", {"blocks": [9]}, "no block 9"),
    ],
)
def test_mistakes(setting, batches, settings, message):
    model, items = setting
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("gradient_reach", model, items if batches == "items" else [items[0][0]], **settings)


def test_a_family_without_the_seams():
    model = timm_model("resnet10t")()
    with pytest.raises(vitlab.VitlabError, match="no seam"):
        vitlab.measure("gradient_reach", model, [(torch.randn(2, 3, 64, 64), torch.tensor([0, 1]))])
