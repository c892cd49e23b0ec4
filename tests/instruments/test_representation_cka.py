from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.features import FAMILY, FEATURES, images
from vitlab.core.repeats import average
from vitlab.instruments.representation_cka import centre, gram, hsic


def nguyen(x, y):
    """HSIC₁ as Nguyen et al. (2021) print it in Eq. 3, in numpy."""
    k, m = x @ x.T, y @ y.T
    np.fill_diagonal(k, 0)
    np.fill_diagonal(m, 0)
    n, one = len(k), np.ones(len(k))
    inner = (
        np.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ k @ m @ one)
    )
    return inner / (n * (n - 3))


def features(model, pictures, size, at="block.out"):
    with torch.no_grad(), vitlab.record(model, "features", at=at, input_size=size) as tape:
        model(pictures)
    return [tape[key].double().flatten(1).numpy() for key in tape]


def brute(one, two, batches, size):
    cross, own, other = 0, 0, 0
    for pictures in batches:
        a, b = features(one, pictures, size), features(two, pictures, size)
        cross = cross + np.array([[nguyen(x, y) for y in b] for x in a])
        own = own + np.array([nguyen(x, x) for x in a])
        other = other + np.array([nguyen(y, y) for y in b])
    return cross / np.sqrt(own[:, None] * other)


@settings(deadline=None, max_examples=25)
@given(n=st.integers(4, 12), p=st.integers(1, 6), q=st.integers(1, 6), shift=st.floats(-5, 5), seed=st.integers(0, 99))
def test_hsic_as_printed(n, p, q, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, p, generator=generator, dtype=torch.float64) + shift
    y = torch.randn(n, q, generator=generator, dtype=torch.float64)
    found = hsic(centre(gram(x)[None]), centre(gram(y)[None]))
    assert float(found) == pytest.approx(nguyen(x.numpy(), y.numpy()), rel=1e-9, abs=1e-9)
    own = hsic(centre(gram(x)[None]), centre(gram(x)[None]))
    assert float(own) >= 0  # an inner product: its root is never NaN


@pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.family)
def test_against_brute_force(case):
    model, pictures = case.model(), images(case, 11)
    batches = [pictures[:6], pictures[6:]]
    found = vitlab.measure("representation_cka", model, batches)
    assert found.values["cka"] == pytest.approx(brute(model, model, batches, case.size), abs=1e-4)
    assert np.diag(found.values["cka"]) == pytest.approx(1)
    assert (found.values["cka"] <= 1 + 1e-9).all()
    assert found.provenance["images"] == 11


def test_two_models():
    vit, swin = FAMILY["vit"], FAMILY["resnet"]
    one, two = vit.model(), swin.model()
    batches = [torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    found = vitlab.measure("representation_cka", one, batches, other=two)
    assert found.values["cka"].shape == (3, 4) and found.settings["other"] == "ResNet"
    assert found.values["cka"] == pytest.approx(brute(one, two, batches, (32, 32)), abs=1e-4)


def test_unbiased_at_any_batch_size():
    """Features without relation have CKA 0 on average; the biased estimator would give about ½ at n = 8, D = 8."""
    generator = torch.Generator().manual_seed(0)
    sums = torch.zeros(3, dtype=torch.float64)
    for _ in range(2000):
        x, y = torch.randn(2, 8, 8, generator=generator, dtype=torch.float64)
        u, v = centre(gram(x)[None]), centre(gram(y)[None])
        sums += torch.stack([hsic(u, v), hsic(u, u), hsic(v, v)]).flatten()
    assert abs(float(sums[0] / (sums[1] * sums[2]).sqrt())) < 0.02


def test_places():
    case = FAMILY["vit"]
    found = vitlab.measure("representation_cka", case.model(), [images(case, 5)], at=("block.mid", "block.out"))
    assert found.axes["layer"][:2] == ("blocks.0 block.mid", "blocks.0 block.out")
    with pytest.raises(vitlab.VitlabError, match="no place"):
        vitlab.measure("representation_cka", case.model(), [images(case, 5)], at="block.end")
    with pytest.raises(vitlab.VitlabError, match="'resnet'"):
        vitlab.measure("representation_cka", FAMILY["resnet"].model(), [images(FAMILY["resnet"], 5)], at="block.mid")


def test_small_batches():
    case = FAMILY["vit"]
    model, pictures = case.model(), images(case, 7)
    whole = vitlab.measure("representation_cka", model, [pictures[:4]])
    found = vitlab.measure("representation_cka", model, [pictures[:4], pictures[4:]])
    np.testing.assert_array_equal(found.values["cka"], whole.values["cka"])
    assert found.provenance["left_out"] == 3 and found.provenance["images"] == 4
    for batches in ([pictures[:1]], [pictures[:3], pictures[3:6]], []):
        with pytest.raises(vitlab.VitlabError, match="at least 4 images"):
            vitlab.measure("representation_cka", model, batches)


def test_repeated_images_raise():
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=r"blocks\.0 has the same features"):
        vitlab.measure("representation_cka", case.model(), [images(case, 1).expand(6, -1, -1, -1)])


def test_parts_are_pooled_as_sums():
    case = FAMILY["vit"]
    model, pictures = case.model(), images(case, 12)
    whole = vitlab.measure("representation_cka", model, [pictures[:6], pictures[6:]]).values["cka"]
    parts = [vitlab.measure("representation_cka", model, [pictures[i : i + 6]]) for i in (0, 6)]
    parts = [replace(m, provenance={**m.provenance, "part": [i, 2], "data": f"d {i}"}) for i, m in enumerate(parts)]
    np.testing.assert_allclose(average(parts).values["cka"], whole)
    assert not np.allclose(np.mean([m.values["cka"] for m in parts], axis=0), whole, rtol=1e-6)
