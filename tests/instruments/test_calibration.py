from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.features import FAMILY, images, labels
from vitlab.core.formulas import bin_count, bin_mean, expected_calibration_error, signed_calibration_error
from vitlab.core.pooling import without_examples
from vitlab.core.repeats import average


class Says(torch.nn.Module):
    """Model that returns its input (B, C, 1, 1) as logits."""

    def forward(self, x):
        return x.flatten(1)


def handed(logits, targets):
    return vitlab.measure("calibration", Says(), [(logits[:, :, None, None], targets)])


def brute(confidence, correct, bins):
    """Sums over (lo, hi], one prediction at a time."""
    error = signed = 0.0
    for m in range(bins):
        inside = [i for i, c in enumerate(confidence) if m / bins < c <= (m + 1) / bins]
        if inside:
            gap = np.mean(confidence[inside]) - np.mean(correct[inside])
            error += len(inside) / len(confidence) * abs(gap)
            signed += len(inside) / len(confidence) * gap
    return error, signed


@settings(deadline=None, max_examples=30)
@given(count=st.integers(1, 40), bins=st.integers(1, 20), seed=st.integers(0, 999), exact=st.booleans())
def test_bins(count, bins, seed, exact):
    generator = np.random.default_rng(seed)
    # Half of the time confidences that are edges themselves, 1 included: powers of two, so that nothing is rounded.
    bins = 8 if exact else bins
    confidence = generator.integers(1, 9, count) / 8 if exact else 1 - generator.random(count)
    correct = generator.integers(0, 2, count).astype(float)
    edges = np.linspace(0.0, 1.0, bins + 1)
    counts = bin_count(confidence, edges)
    diagram = counts, bin_mean(correct, confidence, edges), bin_mean(confidence, confidence, edges)
    signed = signed_calibration_error(*diagram)
    assert (expected_calibration_error(*diagram), signed) == pytest.approx(brute(confidence, correct, bins))
    assert signed == pytest.approx(confidence.mean() - correct.mean())
    assert counts.sum() == count
    assert (np.isnan(diagram[1]) == (counts == 0)).all()


def test_parts_of_the_images_are_pooled_and_not_averaged():
    """The mean of ECE over small parts is far too large; pooled parts give the value of all images."""
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(48, 6, generator=generator), torch.randint(0, 6, (48,), generator=generator)
    whole = handed(logits, targets)
    parts = [handed(logits[i : i + 16], targets[i : i + 16]) for i in (0, 16, 32)]
    parts = [replace(m, provenance={**m.provenance, "part": [i + 1, 3], "data": f"d {i}"}) for i, m in enumerate(parts)]
    pooled = average(parts)
    assert float(np.mean([m.values["ece"] for m in parts])) > 1.1 * float(whole.values["ece"])
    for name in without_examples(whole).values:
        np.testing.assert_allclose(pooled.values[name], whole.values[name], err_msg=name)
    confidence, correct = whole.values["confidence_by_image"], whole.values["correct_by_image"]
    without = [brute(np.delete(confidence, i), np.delete(correct, i), 10)[0] for i in range(48)]
    jackknife = np.sqrt(47 / 48 * ((without - np.mean(without)) ** 2).sum())
    assert pooled.values[pooled.errors["ece"]] == pytest.approx(jackknife)


def test_against_torchmetrics():
    pytest.importorskip("torchmetrics")
    from torchmetrics.functional.classification import multiclass_calibration_error

    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(500, 6, generator=generator)
    targets = torch.randint(0, 6, (500,), generator=generator)
    for bins in (5, 10, 15):
        found = vitlab.measure("calibration", Says(), [(logits[:, :, None, None], targets)], bins=bins).values["ece"]
        assert found == pytest.approx(float(multiclass_calibration_error(logits, targets, 6, n_bins=bins)), abs=1e-6)


def test_proper_scores():
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(50, 6, generator=generator), torch.randint(0, 6, (50,), generator=generator)
    found = handed(logits, targets).values
    probability = logits.double().softmax(1).numpy()
    loops = [
        sum((p - (c == y)) ** 2 for c, p in enumerate(row))
        for row, y in zip(probability, targets.tolist(), strict=True)
    ]
    assert found["brier"] == pytest.approx(np.mean(loops))
    assert found["nll"] == pytest.approx(float(torch.nn.functional.cross_entropy(logits, targets)), rel=1e-6)
    assert found["accuracy"] == pytest.approx((probability.argmax(1) == targets.numpy()).mean())
    assert found["confidence"] == pytest.approx(probability.max(1).mean())
    low, high = found["accuracy_interval"]
    assert 0 <= low < found["accuracy"] < high <= 1
    assert found["nll_interval"][0] < found["nll"] < found["nll_interval"][1]


def test_overconfidence_is_positive():
    """Confidence 1 and always wrong: the largest possible error, in the last bin."""
    found = handed(torch.tensor([[1e4, 0.0], [1e4, 0.0]]), torch.tensor([1, 1])).values
    assert found["ece"] == found["signed_ece"] == 1 and found["brier"] == 2
    assert found["bin_count"].tolist() == [0] * 9 + [2]
    assert handed(torch.zeros(2, 4), torch.tensor([0, 0])).values["signed_ece"] == pytest.approx(-0.75)


def test_probabilities_as_targets_mean_their_largest():
    logits, targets = torch.randn(9, 4, generator=torch.Generator().manual_seed(2)), labels(9, 4)
    hard, soft = handed(logits, targets), handed(logits, torch.nn.functional.one_hot(targets, 4).float())
    for name, value in without_examples(hard).values.items():
        np.testing.assert_allclose(soft.values[name], value, rtol=1e-6, equal_nan=True)


def test_a_real_model_in_any_batches():
    case = FAMILY["vit"]
    model, pictures, targets = case.model(), images(case, 9), labels(9)
    whole = vitlab.measure("calibration", model, [(pictures, targets)])
    parts = vitlab.measure("calibration", model, zip(pictures.split(4), targets.split(4), strict=True))
    for name, value in without_examples(whole).values.items():
        np.testing.assert_allclose(parts.values[name], value, rtol=1e-5, equal_nan=True)
    first = vitlab.measure("calibration", model, zip(pictures.split(4), targets.split(4), strict=True), images=6)
    assert first.provenance["images"] == 6
    expected = vitlab.measure("calibration", model, [(pictures[:6], targets[:6])])
    assert first.values["nll"] == pytest.approx(expected.values["nll"], rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"), [({"bins": 0}, "bins=0"), ({"images": 10}, "only 9"), ({"images": 0}, "images=0")]
)
def test_settings(settings, message):
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("calibration", case.model(), [(images(case, 9), labels(9))], **settings)
