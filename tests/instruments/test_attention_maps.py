from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import ATTENTION, FAMILY, dense, maps, pictures, sharp
from vitlab.instruments.attention_maps import emphasise


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_maps_are_those_of_the_model_with_windows_put_back(case):
    model, images = sharp(case), pictures(case, 4)
    layers = list(maps(model, images))
    found = vitlab.measure("attention_maps", model, [images[:3], images[3:]], images=(2, 0, 3), layers=layers)
    chosen = maps(model, images[[2, 0, 3]])
    for i, (name, (weights, queries, keys)) in enumerate(chosen.items()):
        expected = dense(weights, queries, keys)
        np.testing.assert_allclose(found.values[name], expected.numpy(), atol=1e-5)
        assert found.dims[name] == ("image", f"head of {name}", f"query of {name}", f"key of {name}")
        assert tuple(found.values["key_grid"][i]) == keys.grid and found.values["key_prefix"][i] == keys.prefix
        np.testing.assert_allclose(found.values[name].sum(-1), 1, atol=1e-5)
    assert found.axes["image"] == (2, 0, 3)


def test_choices():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    whole = vitlab.measure("attention_maps", model, [images], layers=["blocks.1"]).values["blocks.1"]
    some = vitlab.measure("attention_maps", model, [images], layers=[1, -2], heads=[2, 0], queries=[0, -1])
    assert list(some.values) == ["blocks.1", "key_grid", "key_prefix", "attended"]
    np.testing.assert_array_equal(some.values["blocks.1"], whole[:, [2, 0]][:, :, [0, 16]])
    assert some.axes["head of blocks.1"] == (2, 0) and some.axes["query of blocks.1"] == (0, 16)
    mean = vitlab.measure("attention_maps", model, [images], layers=[1], heads="mean").values["blocks.1"]
    np.testing.assert_allclose(mean, whole.mean(1, keepdims=True), atol=1e-6)


def test_threshold_and_min_max():
    case = FAMILY["swin"]
    model, images = sharp(case), pictures(case)
    plain = vitlab.measure("attention_maps", model, [images], layers=[1]).values
    name = next(iter(plain))
    cut = vitlab.measure("attention_maps", model, [images], layers=[1], threshold=1.0).values[name]
    below = plain[name] < 1 / 16  # windows of 4 × 4: uniform attention is 1/16, not one over the whole map
    np.testing.assert_array_equal(cut, np.where(below, 0, plain[name]))
    counted = vitlab.measure("attention_maps", model, [images], layers=[1], threshold=1.0).values["attended"]
    shares = [np.count_nonzero(cut[:, head]) / cut[:, head].size for head in range(cut.shape[1])]
    np.testing.assert_allclose(counted, [shares])
    stretched = vitlab.measure("attention_maps", model, [images], layers=[1], threshold=1.0, minmax=True).values[name]
    np.testing.assert_allclose(stretched.max(-1), 1, atol=1e-6)
    assert stretched.min() == 0
    assert torch.equal(emphasise(torch.full((1, 4), 0.25), minmax=True), torch.zeros(1, 4))


def test_reads_only_the_batches_that_it_needs():
    case = FAMILY["vit"]

    def batches():
        yield pictures(case)
        raise AssertionError("read on")

    assert vitlab.measure("attention_maps", sharp(case), batches(), images=[1]).values["blocks.2"].shape == (
        1,
        3,
        17,
        17,
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": ["blocks.9"]}, "blocks.2"),
        ({"layers": [3]}, "there are 3"),
        ({"heads": [3]}, "no head of blocks.2 3"),
        ({"queries": [17]}, "0 to 16"),
        ({"images": [2]}, "has 2 images"),
        ({"images": []}, "images"),
        ({"images": [-1]}, "an integer from 0"),
        ({"threshold": -1.0}, "threshold"),
    ],
)
def test_mistakes(settings, message):
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("attention_maps", sharp(case), [pictures(case)], **settings)
