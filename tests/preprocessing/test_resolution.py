from __future__ import annotations

import pytest
import torch
from torch import nn

import vitlab
from vitlab.core.batches import Batches
from vitlab.preprocessing import described, preprocessing_of


class Classifier(nn.Module):
    """Without a declaration, as a user's own module."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(images.mean((2, 3)))


def test_plain_batches_of_an_undeclared_module_need_preprocessing() -> None:
    torch.manual_seed(0)
    pixels = torch.rand(6, 3, 8, 8)
    items = [((pixels - 0.3) / 0.2, torch.arange(6) % 4)]
    with pytest.raises(vitlab.VitlabError, match="does not declare one; set preprocessing= with mean and std"):
        vitlab.stress("occlusion", Classifier(), items, grid=4)
    how = {"mean": (0.3,) * 3, "std": (0.2,) * 3, "size": 8}
    found = vitlab.stress("occlusion", Classifier(), items, grid=4, preprocessing=how)
    same = vitlab.stress("occlusion", Classifier(), Batches(items, (0.3,) * 3, (0.2,) * 3), grid=4)
    assert found.provenance["preprocessing"]["mean"] == [0.3] * 3
    assert found.values["clean_accuracy"].shape == same.values["clean_accuracy"].shape


def test_preprocessing_stated_by_batches_has_priority() -> None:
    with pytest.raises(vitlab.VitlabError, match="these Batches state their own preprocessing"):
        described(Classifier(), Batches([], (0.5,) * 3, (0.5,) * 3), {"mean": (0.3,) * 3, "std": (0.2,) * 3})


def test_a_complete_description_is_used_unchanged() -> None:
    given = vitlab.preprocessing.Preprocessing((8, 8))
    assert preprocessing_of(Classifier(), given) is given
