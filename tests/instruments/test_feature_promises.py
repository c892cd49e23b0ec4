"""Contract of the instruments of features and predictions: model restored, one-line errors, plain data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import state
from cases.features import FAMILY, FEATURES, images, labels
from vitlab.core.measurement import Measurement

FEATURE = ["feature_fourier", "feature_variance", "representation_cka"]
LABELS = ["lesion", "calibration", "train_fit"]

everything = pytest.mark.parametrize("name", [*FEATURE, *LABELS])
each = pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.family)
need_labels = pytest.mark.parametrize("name", LABELS)


def run(name, model, batches):
    return vitlab.measure(name, model, batches, **({"test": batches} if name == "train_fit" else {}))


def items(case, count=5):
    return [(images(case, count), labels(count))]


@everything
@pytest.mark.parametrize("family", ["vit", "swin_v2", "alternet"])
def test_restores_the_model(name, family):
    case = FAMILY[family]
    model = case.model().train()
    next(model.children()).eval()
    model(images(case)).sum().backward()
    before = state(model)
    run(name, model, items(case))
    assert state(model) == before


@everything
def test_restores_the_model_after_an_error(name):
    case = FAMILY["vit"]
    model = case.model().train()
    before = state(model)
    with pytest.raises(vitlab.VitlabError):
        run(name, model, [*items(case), (torch.zeros(4, 5, *case.size), labels(4))])
    assert state(model) == before


@everything
@each
def test_plain_data(name, case, tmp_path: Path):
    found = run(name, case.model(), items(case))
    assert found.kind == name and found.provenance["images"] in (5, 10)
    back = Measurement.load(found.save(tmp_path / name))
    for key, value in found.values.items():
        assert (value != "").all() if value.dtype.kind == "U" else np.isfinite(value).any(), key
        np.testing.assert_array_equal(back.values[key], value)


@everything
def test_nan_weights_are_refused(name):
    case = FAMILY["vit"]
    model = case.model()
    model.blocks[1].mlp.fc1.weight.data[0] = float("nan")
    with pytest.raises(vitlab.VitlabError, match="NaN") as caught:
        run(name, model, items(case))
    assert "\n" not in str(caught.value)
    assert ("blocks.1" if name in FEATURE else "logits") in str(caught.value)


@everything
@pytest.mark.parametrize(
    "batches", [[], [(torch.zeros(0, 3, 32, 32), labels(0))], [(torch.zeros(3, 32, 32), labels(3))]]
)
def test_no_images_are_refused(name, batches):
    with pytest.raises(vitlab.VitlabError):
        run(name, FAMILY["vit"].model(), batches)


@need_labels
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (None, "needs labels"),
        (torch.tensor([0, 1]), "3 images but 2 targets"),
        (torch.tensor([0, 1, 7]), "7 classes"),
        (torch.zeros(3, 5), "7 classes"),
    ],
)
def test_labels_that_do_not_fit(name, targets, message):
    case = FAMILY["vit"]
    batch = images(case, 3) if targets is None else (images(case, 3), targets)
    with pytest.raises(vitlab.VitlabError, match=message):
        run(name, case.model(), [batch])
