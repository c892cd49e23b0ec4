"""Contract of all attention instruments: model restored, one-line errors, plain data, batches of any size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch

import vitlab
from cases.attention import ATTENTION, FAMILY, pictures, sharp, state
from vitlab.core.measurement import Measurement
from vitlab.instruments import measure_together

WATCHES = ["attention_entropy", "attention_distance", "attention_diversity", "token_overfocus", "softmax_gradient"]
MAPS = [*WATCHES, "attention_stability", "attention_maps"]
MAY_BE_EMPTY = ("class_row", "scale")  # no class token; a softmax of the model's own, whose scale is not seen
PIXELS = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
SETTINGS = {"attention_stability": PIXELS, "attention_maps": {"images": (0, 1)}}

each = pytest.mark.parametrize("name", MAPS)
everything = pytest.mark.parametrize("name", [*MAPS, "gradient_reach"])


def run(name, model, batches):
    return vitlab.measure(name, model, batches, **SETTINGS.get(name, {}))


def items(name, images):
    return [(images, torch.zeros(len(images), dtype=torch.long))] if name == "gradient_reach" else [images]


@everything
def test_restores_the_model(name):
    case = FAMILY["vit"]
    model, images = sharp(case).train(), pictures(case)
    model.blocks[1].eval()
    model(images).sum().backward()
    before = state(model)
    run(name, model, items(name, images))
    assert state(model) == before


@each
def test_batches_of_any_size_give_the_same_numbers(name):
    case = FAMILY["swin"]
    model, images = sharp(case), pictures(case, 3)
    together, apart = run(name, model, [images]), run(name, model, [images[:2], images[2:]])
    for key, value in together.values.items():
        np.testing.assert_allclose(apart.values[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@each
def test_pieces_of_rows_give_the_same_numbers(name, monkeypatch):
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    whole = run(name, model, [images])
    monkeypatch.setattr("vitlab.kernels.attention_rows.CHUNK", 5 * images.shape[0] * 3 * 17)  # five rows at a time
    pieces = run(name, model, [images])
    for key, value in whole.values.items():
        np.testing.assert_allclose(pieces.values[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@each
@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_every_token_layout(name, case, tmp_path: Path):
    found = run(name, sharp(case), [pictures(case)])
    assert found.kind == name and found.provenance["images"] == 2
    back = Measurement.load(found.save(tmp_path / name))
    for key, value in found.values.items():
        assert np.isfinite(value).any() or key in MAY_BE_EMPTY, key
        np.testing.assert_array_equal(back.values[key], value)


@everything
def test_nan_weights_are_refused(name):
    case = FAMILY["vit"]
    model = sharp(case)
    model.blocks[1].attn.qkv.weight.data[0] = float("nan")
    with pytest.raises(vitlab.VitlabError, match="NaN"):
        run(name, model, items(name, pictures(case)))


@each
def test_a_model_without_attention_is_refused(name):
    model = timm.create_model("resnet10t", num_classes=7)
    with pytest.raises(vitlab.VitlabError, match="needs attention maps"):
        run(name, model, [torch.rand(2, 3, 64, 64)])


@everything
@pytest.mark.parametrize("batches", [[], [torch.zeros(0, 3, 32, 32)], [torch.zeros(3, 32, 32)]])
def test_no_images_are_refused(name, batches):
    with pytest.raises(vitlab.VitlabError):
        run(name, sharp(FAMILY["vit"]), batches)


def test_one_pass_gives_what_single_passes_give():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    together = measure_together(WATCHES, model, [images])
    assert list(together) == WATCHES
    for name, found in together.items():
        alone = run(name, model, [images])
        assert found.dims == alone.dims and found.axes == alone.axes and found.settings == alone.settings
        for key, value in found.values.items():
            np.testing.assert_array_equal(value, alone.values[key])


@pytest.mark.parametrize(
    ("names", "message"),
    [(["attention_stability"], "one pass"), (["attention_entropyy"], "did you mean"), ([], "none")],
)
def test_instruments_without_a_shared_pass_raise(names, message):
    with pytest.raises(vitlab.VitlabError, match=message):
        measure_together(names, sharp(FAMILY["vit"]), [pictures(FAMILY["vit"])])
