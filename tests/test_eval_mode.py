"""Temporary evaluation mode: training modes and gradients are restored."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vitlab.eval_mode import eval_mode


@pytest.mark.parametrize("gradients", [True, False])
def test_modes_and_gradients_are_restored_also_after_an_error(gradients: bool) -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2).eval(), nn.Linear(2, 2)), nn.Dropout().eval())
    before = [module.training for module in model.modules()]
    assert True in before and False in before
    with torch.set_grad_enabled(gradients):
        with pytest.raises(ZeroDivisionError), eval_mode(model):
            assert not any(module.training for module in model.modules())
            assert not model(torch.ones(1, 2)).requires_grad
            raise ZeroDivisionError
        assert torch.is_grad_enabled() == gradients
    assert [module.training for module in model.modules()] == before
