"""Conditions of the page: hidden cells, and what a condition is compared with."""

from __future__ import annotations

import pytest
import torch

import vitlab
from vitlab.explore.conditions import Ablation, Condition, hide


def test_hiding_covers_exactly_its_cells() -> None:
    image = torch.ones(3, 10, 7)
    hidden = hide(image, [0, 5], (2, 3))
    expected = image.clone()
    for y in range(10):
        for x in range(7):
            if (y * 2 // 10) * 3 + x * 3 // 7 in (0, 5):
                expected[:, y, x] = 0
    assert torch.equal(hidden, expected)
    with pytest.raises(vitlab.VitlabError, match="invalid patch 6"):
        hide(image, [6], (2, 3))


def test_a_condition_is_compared_with_the_whole_model_or_with_the_clean_image() -> None:
    ablation = Ablation(1, "mlp")
    assert Condition("0").reference() is None
    assert Condition("0", "fog", 3, (1,)).reference() == ("the clean image", Condition("0"))
    both = Condition("0", "fog", 3, (1,), (ablation,))
    assert both.reference() == ("the model without ablations", Condition("0", "fog", 3, (1,)))
    assert both.clean() == Condition("0", ablations=(ablation,)) and both.changes_input
    assert not Condition("0", ablations=(ablation,)).changes_input
