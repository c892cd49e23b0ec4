"""Errors by corruption and severity, mCE and relative mCE against loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import vitlab
from cases.stress import answers, pixels, scene_batches, scenes_model
from vitlab.core.repeats import average
from vitlab.corruptions import CORRUPTIONS, corrupt
from vitlab.stress_tests.shared.mce_baselines import BASELINES


def test_errors_are_those_of_the_corrupted_images() -> None:
    model, images = scenes_model(), pixels(12)
    labels = answers(model, images)
    names, severities = ("gaussian_noise", "speckle_noise", "contrast"), (2, 5)
    found = vitlab.stress("corruptions", model, scene_batches(model), names=names, severities=severities, seed=3)
    for i, name in enumerate(names):
        for j, severity in enumerate(severities):
            wrong = answers(model, corrupt(images, name, severity, seed=3)) != labels
            assert found.values["error"][i, j] == pytest.approx(wrong.double().mean().item()), (name, severity)
    assert found.values["error"].max() > 0, "nothing was tested"
    assert found.values["mean_accuracy"] == pytest.approx(found.values["accuracy"].mean())
    assert found.values["clean_accuracy"] == 1 and found.provenance["partial"] is True
    assert np.isnan(found.values["ce"]).all() and np.isnan(found.values["mce"])  # 25 classes have no baseline


def test_mce_against_loops() -> None:
    """All 15 × 5, against the definition written out."""
    model = scenes_model()
    found = vitlab.stress("corruptions", model, scene_batches(model, 6), baseline="imagenet").values
    alex = BASELINES["imagenet"]
    ce = [found["error"][i].sum() / (5 * alex.mean[name]) for i, name in enumerate(CORRUPTIONS)]
    clean = 1 - found["clean_accuracy"]
    relative = [
        (found["error"][i] - clean).sum() / (5 * (alex.mean[name] - alex.clean)) for i, name in enumerate(CORRUPTIONS)
    ]
    np.testing.assert_allclose(found["ce"], ce)
    assert found["mce"] == pytest.approx(np.mean(ce)) and found["relative_mce"] == pytest.approx(np.mean(relative))
    assert 0 < found["mce_error"] < 1 and found["relative_mce_error"] > 0


@pytest.mark.parametrize(
    ("classes", "settings", "used"),
    [
        (1000, {}, ("none", "cifar")),
        (1000, {"parameters": "imagenet"}, ("imagenet", "imagenet")),
        (1000, {"parameters": "imagecorruptions"}, ("none", "imagecorruptions")),
        (1000, {"baseline": "imagenet"}, ("imagenet", "cifar")),
        (100, {}, ("cifar100", "cifar")),
        (10, {}, ("cifar10", "cifar")),
        (10, {"parameters": "imagenet"}, ("none", "imagenet")),
        (10, {"baseline": "none"}, ("none", "cifar")),
        (25, {}, ("none", "cifar")),
    ],
)
def test_errors_are_divided_by_those_under_the_same_strengths_only(classes, settings, used) -> None:
    model = scenes_model(classes)
    found = vitlab.stress("corruptions", model, scene_batches(model, 4), names="fog", **settings)
    assert (found.settings["baseline"], found.settings["parameters"]) == used
    assert np.isnan(found.values["ce"]).all() == (used[0] == "none")
    if used[0] != "none":
        expected = found.values["error"].mean() / BASELINES[used[0]].mean["fog"]
        assert found.values["ce"] == pytest.approx(expected)


def test_a_model_that_is_always_wrong() -> None:
    """Its CE is 1 / AlexNet's error, its relative CE 0, without any spread; some severities use their own baseline."""
    model = scenes_model()
    items = [(images, (labels + 1) % 25) for images, labels in scene_batches(model, 6)]
    batches = vitlab.core.batches.Batches(items, *_normalisation())
    settings = {"names": ("brightness", "jpeg_compression"), "severities": (1,), "baseline": "imagenet"}
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.arange(25) == 24)
    items[:] = [(images, labels * 0) for images, labels in items]
    found = vitlab.stress("corruptions", model, batches, **settings).values
    np.testing.assert_allclose(found["ce"], [1 / 0.4514, np.nan])
    assert found["relative_ce"][0] == 0 and found["ce_error"][0] == 0 and np.isnan(found["mce"])


def test_baselines() -> None:
    for baseline in BASELINES.values():
        assert set(baseline.mean) == set(CORRUPTIONS)
        for name, errors in baseline.by_severity.items():
            assert len(errors) == 5 and np.mean(errors) == pytest.approx(baseline.mean[name], abs=5e-6), name
    assert BASELINES["cifar10"].mean["glass_blur"] == 0.3043 and BASELINES["cifar100"].mean["snow"] == 0.5874


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": "fogg"}, "did you mean 'fog'"),
        ({"severities": 3.0}, "expected an integer from 1 to 5, or a list"),
        ({"severities": (0,)}, "an integer from 1 to 5"),
        ({"names": ()}, "a list of 1 or more distinct such values"),
        ({"names": ("fog", "fog")}, "a list of 1 or more distinct such values"),
        ({"names": "brightness", "severities": 1, "baseline": "alexnet"}, "expected one of 'imagenet', 'cifar10'"),
    ],
)
def test_mistakes(settings, message) -> None:
    model = scenes_model()
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.stress("corruptions", model, scene_batches(model), **settings)


def _normalisation():
    from vitlab.data.scenes import MEAN, STD

    return MEAN, STD


def test_parts_of_the_images_give_the_mce_of_all_of_them() -> None:
    """Parts of different size: what counts is how many images are wrong, not the mean over parts."""
    model = scenes_model()
    batches = scene_batches(model, 9)
    images, labels = (torch.cat(each) for each in zip(*batches, strict=True))
    given = [(slice(0, 3), 0), (slice(3, 9), 1)]
    settings = {"names": ("fog", "contrast"), "severities": (5,), "baseline": "imagenet"}
    parts = []
    for where, i in given:
        one = vitlab.stress("corruptions", model, replace(batches, items=[(images[where], labels[where])]), **settings)
        parts.append(replace(one, provenance={**one.provenance, "part": [i, 2], "data": f"d {i}"}))
    pooled = average(parts)
    right = np.concatenate([part.values["correct"] for part in parts], -1)
    assert right.shape == (2, 1, 9) and 0 < right.mean() < 1
    alex = [BASELINES["imagenet"].error(name, (5,)) for name in settings["names"]]
    np.testing.assert_allclose(pooled.values["ce"], (1 - right.mean((1, 2))) / alex)
    each = (1 - right.mean(1)) / np.array(alex)[:, None]
    np.testing.assert_allclose(pooled.values["ce_error"], each.std(1, ddof=1) / 3)
