"""Outputs on noise images."""

from __future__ import annotations

import pytest
import torch

from cases import Case
from cases.everything import CASES
from vitlab.adapters.noise import noise_outputs, relative_change
from vitlab.surgery import retrofit


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.family)
def test_every_model_has_outputs_and_is_unchanged(case: Case) -> None:
    model = case.model().train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    outputs = noise_outputs(model, case.size)
    assert outputs.numel() and outputs.isfinite().all() and outputs.std() > 0
    torch.testing.assert_close(noise_outputs(model, case.size), outputs, rtol=0, atol=0)
    assert model.training and torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_the_change_is_that_of_the_logits() -> None:
    case = CASES[0]
    model = case.model()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(images)
        measured = noise_outputs(model)
        after = retrofit(model, "ContextBroadcast")(images)
    torch.testing.assert_close(measured, before.double().flatten())
    expected = ((after - before).square().sum() / before.square().sum()).sqrt().item()
    assert relative_change(measured, noise_outputs(model)) == pytest.approx(expected, rel=1e-4)
    assert relative_change(measured, measured[1:]) == float("inf")
