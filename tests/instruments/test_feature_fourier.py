from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.features import FAMILY, FEATURES, images, streams
from cases.others import CASES as OTHERS
from vitlab.instruments.feature_fourier import frequencies, half_diagonal, log_amplitude


def released(map):
    """HDVW's method: fft2, log, roll, mean, diagonal from the centre on, relative to its start."""
    logs = (torch.fft.fft2(map).abs() + 1e-6).log()
    h, w = map.shape[-2:]
    logs = logs.roll((h // 2, w // 2), (-2, -1)).mean((0, 1))
    half = logs.diag()[h // 2 :]
    return half - half[0]


@pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.family)
def test_against_fft2(case):
    model, pictures = case.model(), images(case, 3)
    found = vitlab.measure("feature_fourier", model, [pictures[:2], pictures[2:]])
    expected = {
        f"{block} {place.removeprefix('block.')}": map
        for (block, place), map in streams(model, pictures).items()
        if map.shape[-2] * map.shape[-1] > 1
    }
    assert list(found.axes["place"]) == list(expected)
    for i, map in enumerate(expected.values()):
        h, w = map.shape[-2:]
        whole = (torch.fft.fft2(map).abs() + 1e-6).log().mean((0, 1))
        row = np.array([float(whole[y, x] - whole[0, 0]) for y, x in half_diagonal((h, w))])
        assert found.values["amplitude"][i, : len(row)] == pytest.approx(row, abs=1e-3)
        assert np.isnan(found.values["amplitude"][i, len(row) :]).all()
        assert found.values["grid"][i].tolist() == [h, w]
        if h == w:
            assert row == pytest.approx(released(map).numpy(), abs=1e-9)
        if len(row) > 1:
            assert found.values["high"][i] == found.values["amplitude"][i, len(row) - 1]
        else:
            assert np.isnan(found.values["high"][i])


@settings(deadline=None, max_examples=20)
@given(n=st.integers(2, 15), batch=st.integers(1, 3), channels=st.integers(1, 4), seed=st.integers(0, 99))
def test_square_maps_as_released(n, batch, channels, seed):
    map = torch.randn(batch, channels, n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = log_amplitude(map.flatten(2).transpose(1, 2), (n, n))
    assert (found - found[0]).numpy() == pytest.approx(released(map).numpy(), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(h=st.integers(1, 20), w=st.integers(1, 20), nyquist=st.booleans())
def test_the_diagonal_of_any_grid(h, w, nyquist):
    found = half_diagonal((h, w), nyquist)
    assert found[0] == (0, 0) and found == sorted(set(found))
    for (y, x), frequency in zip(found, frequencies((h, w), nyquist), strict=True):
        assert y <= h // 2 and x <= w // 2
        # As near to the diagonal as the longer side allows; the shorter side lies on it.
        assert abs(2 * y / h - frequency) <= 1 / h + 1e-9 and abs(2 * x / w - frequency) <= 1 / w + 1e-9
    if nyquist and min(h, w) % 2 == 0:
        assert frequencies((h, w), nyquist)[-1] == 1
    else:
        assert frequencies((h, w), nyquist)[-1] < 1


def test_steps_are_differences_of_their_ends():
    case = FAMILY["vit"]
    found = vitlab.measure("feature_fourier", case.model(), [images(case)])
    assert found.axes["step"][:3] == ("blocks.0 MSA", "blocks.0 MLP", "blocks.1 MSA")
    high = dict(zip(found.axes["place"], found.values["high"], strict=True))
    for name, change in zip(found.axes["step"], found.values["change"], strict=True):
        block, kind = name.split()
        ends = ("in", "mid") if kind == "MSA" else ("mid", "out")
        assert change == high[f"{block} {ends[1]}"] - high[f"{block} {ends[0]}"]


def test_uniform_attention_removes_high_frequencies():
    """Uniform attention, added many times to the stream, leaves only the mean: Prop. B.1 in a model."""
    case = FAMILY["vit"]
    model = case.model()
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight[:48])
        torch.nn.init.zeros_(block.attn.qkv.bias[:48])
        block.attn.proj.weight.data.mul_(100)
    found = vitlab.measure("feature_fourier", model, [images(case)])
    changes = dict(zip(found.axes["step"], found.values["change"], strict=True))
    assert all(change < 0 for name, change in changes.items() if name.endswith("MSA"))


def test_a_convolutional_network_has_steps_of_convolution():
    case = FAMILY["alternet"]
    found = vitlab.measure("feature_fourier", case.model(), [images(case)])
    assert {name.split()[-1] for name in found.axes["step"]} == {"Conv", "MSA"}


def test_a_model_with_tokens_of_unknown_order_is_refused_with_the_reason():
    case = next(case for case in OTHERS if case.family == "hf_vilt")
    text = {"input_ids": torch.zeros(4, 6, dtype=torch.long), "pixel_values": images(case)}
    with pytest.raises(vitlab.VitlabError, match="order of its tokens is not known"):
        vitlab.measure("feature_fourier", case.model(), [text])


def test_nyquist_ends_at_pi():
    case = FAMILY["vit"]
    found = vitlab.measure("feature_fourier", case.model(), [images(case)], nyquist=True)
    assert (found.values["frequency"][:, -1] == 1).all() and found.settings["nyquist"] is True
    plain = vitlab.measure("feature_fourier", case.model(), [images(case)])
    assert plain.values["frequency"][:, -1] == pytest.approx(0.5)
    assert found.values["amplitude"][:, :2] == pytest.approx(plain.values["amplitude"], abs=1e-5)


def test_half_precision_is_read_in_float32():
    case = FAMILY["vit"]
    pictures = images(case)
    with torch.autocast("cpu", torch.bfloat16):
        found = vitlab.measure("feature_fourier", case.model(), [pictures]).values["amplitude"]
    whole = vitlab.measure("feature_fourier", case.model(), [pictures]).values["amplitude"]
    assert found == pytest.approx(whole, abs=0.1)
    assert math.isfinite(found.sum())


def test_features_changed_in_place_are_recorded_before_the_change():
    """A cached summary is not reused if a block modifies its input in place."""
    case = FAMILY["vit"]
    model = case.model()
    plain = vitlab.measure("feature_variance", model, [images(case)]).values["variance"]
    handle = model.blocks[1].register_forward_pre_hook(lambda module, given: (given[0].mul_(3),))
    found = vitlab.measure("feature_variance", model, [images(case)]).values["variance"]
    handle.remove()
    assert found[:3] == pytest.approx(plain[:3]) and found[3] == pytest.approx(9 * plain[2], rel=1e-5)
