"""Forms of labels and of l2 against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vitlab.core.errors import VitlabError
from vitlab.instruments.shared.loss_surface import (
    cross_entropy,
    l2_term,
    logits_at,
    soft_target_batches,
    soft_targets,
    split_mini_batches,
    weights_of,
)


def test_all_forms_of_targets_give_pytorchs_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 4, generator=generator)
    labels, partners = torch.randint(4, (2, 6), generator=generator)
    share = torch.rand(6, generator=generator)
    mixed = share * F.cross_entropy(logits, labels, reduction="none")
    mixed = (mixed + (1 - share) * F.cross_entropy(logits, partners, reduction="none")).mean()
    torch.testing.assert_close(cross_entropy(logits, soft_targets((labels, partners, share), 4)), mixed)
    torch.testing.assert_close(cross_entropy(logits, soft_targets(labels, 4)), F.cross_entropy(logits, labels))
    soft = torch.softmax(torch.randn(6, 4, generator=generator), 1)
    torch.testing.assert_close(cross_entropy(logits, soft_targets(soft, 4)), F.cross_entropy(logits, soft))


def test_one_share_for_the_whole_batch() -> None:
    found = soft_targets((torch.tensor([0, 1]), torch.tensor([1, 0]), 0.25), 2)
    torch.testing.assert_close(found, torch.tensor([[0.25, 0.75], [0.75, 0.25]]))


def test_norms_have_derivatives_at_zero() -> None:
    weights = [torch.zeros(3, requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)]
    (gradient, other) = torch.autograd.grad(l2_term(weights, "norms", 1.0), weights, create_graph=True)
    assert not gradient.any()
    torch.testing.assert_close(other, torch.tensor([0.6, 0.8]))
    second = torch.autograd.grad(gradient.sum() + other.sum(), weights)
    assert all(tensor.isfinite().all() for tensor in second)


def test_half_precision_models_are_measured_in_float32() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).to(torch.bfloat16).eval()
    weights = weights_of(model)
    images, targets = next(soft_target_batches(model, weights, [(torch.ones(2, 3), torch.tensor([0, 1]))]))
    assert logits_at(model, weights, images).dtype == targets.dtype == torch.float32
    assert model[0].running_mean.dtype == torch.bfloat16


def test_split_mini_batches_stops_at_the_count() -> None:
    endless = ((torch.zeros(4, 1), torch.zeros(4, 2)) for _ in iter(int, 1))
    assert len(list(split_mini_batches(endless, 4, 3))) == 3


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([torch.ones(2, 3)], "needs labels"),
        ([(torch.ones(2, 3), torch.tensor([0, 7]))], "labels run from 0 to 7; the model has 2 classes"),
        ([(torch.ones(2, 3), torch.tensor([0]))], "2 images but 1 targets"),
        ([(torch.ones(2, 3), torch.ones(2, 5))], r"targets are \(2, 5\) float32; the model has 2 classes"),
        ([(torch.ones(0, 3), torch.tensor([]))], "at least one image"),
        ([(torch.ones(2, 3), "cat")], "invalid targets"),
        ([], "no batches"),
    ],
)
def test_mistakes_in_batches(batches: list, message: str) -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(VitlabError, match=message):
        list(soft_target_batches(model, weights_of(model), batches))


def test_mistakes_in_models() -> None:
    with pytest.raises(VitlabError, match="meta device"):
        weights_of(nn.Linear(2, 2, device="meta"))
    with pytest.raises(VitlabError, match="'weight' is not finite"):
        model = nn.Linear(2, 2)
        nn.init.constant_(model.weight, float("nan"))
        weights_of(model)
    with pytest.raises(VitlabError, match="no parameters"):
        weights_of(nn.Identity())
    with pytest.raises(VitlabError, match="does not return logits"):
        logits_at(nn.Flatten(0), {}, torch.ones(2, 2))
    with pytest.raises(VitlabError, match="no form of l2 'l1'"):
        l2_term([torch.ones(1)], "l1", 0.1)  # type: ignore[arg-type]
