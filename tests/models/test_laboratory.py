"""Instruments and stress tests run on every architecture of vitlab, or raise a one-line error."""

from __future__ import annotations

import pytest
import torch

import vitlab
from cases import Case, alternet, rvt_fan, small
from vitlab.core.batches import Batches

OWN = [*alternet.CASES, *rvt_fan.CASES, *small.CASES]
INSTRUMENTS = ["feature_fourier", "feature_variance", "representation_cka", "calibration", "lesion"]
ATTENTION = ["attention_entropy", "token_overfocus"]
STRESS = [("occlusion", {}), ("patch_shuffle", {"grids": (2,)}), ("adversarial", {}), ("frequency_noise", {})]


@pytest.mark.parametrize("case", OWN, ids=lambda case: case.family)
def test_every_instrument_and_stress_test_runs(case: Case) -> None:
    model = case.model()
    pixels = torch.rand(4, 3, *case.size, generator=torch.Generator().manual_seed(0))
    batches = Batches([((pixels - 0.5) / 0.25, torch.arange(4) % 7)], (0.5,) * 3, (0.25,) * 3, tuple("abcdefg"), "x")
    logits = case.logits(model)
    for name in INSTRUMENTS:
        assert vitlab.measure(name, model, batches).values
    for name, settings in STRESS:
        assert vitlab.stress(name, model, batches, **settings).values
    has_maps = any(block.mixer.queries is not None for block in vitlab.describe(model, case.size).blocks)
    for name in ATTENTION:
        if has_maps:
            assert vitlab.measure(name, model, batches).values
        else:
            with pytest.raises(vitlab.VitlabError, match="needs attention maps"):
                vitlab.measure(name, model, batches)
    assert torch.equal(case.logits(model), logits), "something was left behind"
