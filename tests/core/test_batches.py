"""Batches are walked more than once, and know their way back to pixels."""

from __future__ import annotations

import pytest
import torch

from vitlab.core.batches import Batches


def test_they_are_walked_as_often_as_one_likes() -> None:
    items = [(torch.zeros(2, 3, 4, 4), torch.tensor([0, 1])), (torch.ones(1, 3, 4, 4), torch.tensor([1]))]
    batches = Batches(items, (0.5,) * 3, (0.25,) * 3, ("cat", "dog"), "abc")
    assert len(batches) == 2
    for _ in range(2):
        assert [len(targets) for _, targets in batches] == [2, 1]
    with pytest.raises(AttributeError):
        batches.fingerprint = "other"


def test_a_stream_has_no_length() -> None:
    with pytest.raises(TypeError):
        len(Batches(iter([]), (0.5,), (0.5,)))
