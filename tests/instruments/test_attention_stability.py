from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import ATTENTION, FAMILY, dense, maps, pictures, sharp
from vitlab.core.batches import Batches
from vitlab.corruptions import corrupt

HALF = ((0.5,) * 3, (0.5,) * 3)


def batches(images):
    return Batches([images[:2], images[2:]] if len(images) > 2 else [images], *HALF, fingerprint="pictures")


def cosine(a, b):
    return float(a.flatten() @ b.flatten() / (a.norm() * b.norm()))


@pytest.mark.parametrize("case", ATTENTION, ids=lambda case: case.family)
def test_against_two_separate_forwards(case):
    """Pixels are inverted: both passes are run one by one and dense maps are compared, image by image."""
    model, images = sharp(case), pictures(case, 3)
    found = vitlab.measure("attention_stability", model, batches(images), corruption=lambda x: 1 - x)
    rows = vitlab.measure("attention_stability", model, batches(images), corruption=lambda x: 1 - x, unit="row").values
    clean, other = maps(model, images), maps(model, -images)
    every = []
    for i, name in enumerate(clean):
        a, b = dense(*clean[name]), dense(*other[name])
        likeness = np.array([[cosine(x, y) for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)])
        heads = likeness.shape[1]
        every.append(likeness.ravel())
        assert found.values["mean"][i, :heads] == pytest.approx(likeness.mean(0), rel=1e-4)
        quantiles = np.quantile(likeness, found.axes["quantile"], axis=0)
        assert found.values["quantiles"][:, i, :heads] == pytest.approx(quantiles, rel=1e-4)
        assert found.values["histogram"][i, :heads].sum(-1) == pytest.approx(1)
        each = torch.nn.functional.cosine_similarity(clean[name][0], other[name][0], dim=-1).mean((0, 2))
        assert rows["mean"][i, :heads] == pytest.approx(each.numpy(), rel=1e-4)
    assert found.values["overall"] == pytest.approx(np.concatenate(every).mean(), rel=1e-4)
    assert found.values["distribution"] == pytest.approx(
        np.histogram(np.concatenate(every), 50, (0, 1))[0] / sum(map(len, every)), abs=0.05
    )
    assert found.provenance["data"] == "pictures" and found.provenance["images"] == 3


def test_identity_corruptions_have_stability_one():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    for settings in ({"corruption": lambda x: x}, {"sigma": 0.0}):
        found = vitlab.measure("attention_stability", model, batches(images), **settings).values
        assert found["mean"] == pytest.approx(1, abs=1e-5)
        assert found["distribution"][-1] == pytest.approx(1)


def test_more_noise_is_less_stable_and_noise_belongs_to_the_image():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case, 4)
    found = [
        vitlab.measure("attention_stability", model, batches(images), sigma=s).values["overall"] for s in (0.02, 0.3)
    ]
    assert found[0] > found[1]
    apart = Batches([images[:1], images[1:]], *HALF)
    assert vitlab.measure("attention_stability", model, apart, sigma=0.3).values["overall"] == pytest.approx(
        found[1], rel=1e-5
    )
    other = vitlab.measure("attention_stability", model, batches(images), sigma=0.3, seed=1).values["overall"]
    assert other != pytest.approx(found[1], rel=1e-6)


def test_a_named_corruption_is_the_one_of_imagenet_c():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    found = vitlab.measure(
        "attention_stability", model, batches(images), corruption="contrast", severity=5, seed=3
    ).values
    pixels = corrupt((images / 2 + 0.5).clamp(0, 1), "contrast", 5, seed=3)
    clean, other = maps(model, images), maps(model, pixels * 2 - 1)
    for i, name in enumerate(clean):
        expected = [
            np.mean([cosine(a[h], b[h]) for a, b in zip(clean[name][0], other[name][0], strict=True)]) for h in range(3)
        ]
        assert found["mean"][i] == pytest.approx(expected, rel=1e-4)


def test_normalisation_comes_from_settings_batches_or_model():
    case = FAMILY["vit"]
    model, images = sharp(case), pictures(case)
    model.pretrained_cfg = {"mean": HALF[0], "std": HALF[1]}
    expected = vitlab.measure("attention_stability", model, batches(images)).values["mean"]
    np.testing.assert_array_equal(vitlab.measure("attention_stability", model, [images]).values["mean"], expected)
    model.pretrained_cfg = None
    given = vitlab.measure("attention_stability", model, [images], mean=HALF[0], std=HALF[1]).values["mean"]
    np.testing.assert_array_equal(given, expected)
    with pytest.raises(vitlab.VitlabError, match="mean= and std="):
        vitlab.measure("attention_stability", model, [images])


@pytest.mark.parametrize("name", ["attention_stability", "causal_trace"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": (0.5,)}, "mean= was given without std="),
        ({"std": (0.5,)}, "std= was given without mean="),
        ({"mean": (0.5,), "std": (0.5,) * 4}, "expected one number for each of 3 channels"),
        ({"mean": (0.5,) * 2, "std": (0.5,)}, "expected one number for each of 3 channels"),
    ],
)
def test_mean_and_std_are_checked_together(name, settings, message):
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure(name, sharp(case), batches(pictures(case)), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corruption": "gaussian"}, "gaussian_noise"),
        ({"corruption": 3}, "or a function"),
        ({"sigma": -1.0}, "sigma"),
        ({"unit": "maps"}, "did you mean 'map'"),
        ({"bins": 0}, "bins"),
        ({"severity": 9}, "severity"),
        ({"mean": (0.0,) * 3, "std": (1.0,) * 3}, "not 0 to 1"),
        ({"mean": (0.5,) * 2, "std": (0.5,) * 2}, "one number for each of 3 channels"),
    ],
)
def test_mistakes(settings, message):
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("attention_stability", sharp(case), batches(pictures(case)), **settings)
