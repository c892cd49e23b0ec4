from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from torch.nn.functional import cross_entropy

import vitlab
from cases.features import FAMILY, images, labels
from vitlab.core.pooling import pool


def test_against_torch_and_scipy():
    case = FAMILY["vit"]
    model = case.model()
    sets = {"train": (images(case, 12, seed=1), labels(12)), "test": (images(case, 9, seed=2), labels(9))}
    cut = {name: list(zip(x.split(5), y.split(5), strict=True)) for name, (x, y) in sets.items()}
    found = vitlab.measure("train_fit", model, cut["train"], test=cut["test"]).values
    for name, (x, y) in sets.items():
        with torch.no_grad():
            logits = model(x)
        nll = cross_entropy(logits, y, reduction="none").double().numpy()
        wrong = int((logits.argmax(1) != y).sum())
        assert found[f"{name}_nll"] == pytest.approx(nll.mean(), rel=1e-5)
        interval = scipy.stats.t.interval(0.95, len(y) - 1, nll.mean(), scipy.stats.sem(nll))
        assert found[f"{name}_nll_interval"] == pytest.approx(interval, rel=1e-4)
        assert found[f"{name}_error"] == wrong / len(y)
        wilson = scipy.stats.binomtest(wrong, len(y)).proportion_ci(method="wilson")
        assert found[f"{name}_error_interval"] == pytest.approx((wilson.low, wilson.high), abs=1e-4)
        assert found[f"{name}_images"] == len(y)


def test_mixed_targets():
    """NLL of Mixup's targets is the mixture of both labels' NLL."""
    case = FAMILY["vit"]
    model, pictures, share = case.model(), images(case, 4), torch.tensor([0.7, 0.7, 0.2, 1.0])
    own, partner = labels(4), labels(4).flip(0)
    found = vitlab.measure("train_fit", model, [(pictures, (own, partner, share))], test=[(pictures, own)]).values
    with torch.no_grad():
        logits = model(pictures)
    mixed = share * cross_entropy(logits, own, reduction="none") + (1 - share) * cross_entropy(
        logits, partner, reduction="none"
    )
    assert found["train_nll"] == pytest.approx(float(mixed.mean()), rel=1e-5)
    first = vitlab.measure(
        "train_fit", model, [(pictures, (own, partner, share))], test=[(pictures, own)], images=2
    ).values
    assert first["train_nll"] == pytest.approx(float(mixed[:2].mean()), rel=1e-5)


def test_one_image_has_no_interval():
    case = FAMILY["vit"]
    pair = [(images(case, 1), labels(1))]
    found = vitlab.measure("train_fit", case.model(), pair, test=pair).values
    assert found["train_nll_interval"].tolist() == [-np.inf, np.inf]
    assert found["test_nll"] == found["train_nll"]


def test_parts_of_the_images_give_the_intervals_of_all_images():
    case = FAMILY["vit"]
    model, (x, y) = case.model(), (images(case, 11), labels(11))
    cuts = [slice(0, 4), slice(4, 8), slice(8, 11)]
    whole = vitlab.measure("train_fit", model, [(x, y)], test=[(x, y)])
    parts = [vitlab.measure("train_fit", model, [(x[c], y[c])], test=[(x[c], y[c])]) for c in cuts]
    pooled = pool(parts)
    for name, value in whole.values.items():
        np.testing.assert_allclose(pooled.values[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "give test="), ({"test": []}, "test set"), ({"images": 5}, "only 4")],
)
def test_missing_inputs_raise(settings, message):
    case = FAMILY["vit"]
    pair = [(images(case, 4), labels(4))]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("train_fit", case.model(), pair, **({"test": pair} | settings if settings else {}))
