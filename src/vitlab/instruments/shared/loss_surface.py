"""The loss as a function of the weights; the model itself is not modified.

    L(w) = (1/B) Σ_b −Σ_c y_bc log softmax(f(x_b; w))_c + l2(w)

Shape legend: B batch, C classes, P weights in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from vitlab.core.errors import VitlabError, unknown

L2 = Literal["none", "squared", "norms"]
Weights = Mapping[str, Tensor]
Pair = tuple[Tensor, Tensor]


def soft_targets(targets: Any, classes: int) -> Tensor:
    """Convert any form of targets to class probabilities.

    Args:
        targets: (B,) class indices, (B, C) probabilities, or (labels, partners, share) of Mixup and CutMix: the label
            has weight `share`, the partner's label 1 − share.
        classes: C.

    Returns:
        (B, C).

    >>> soft_targets((torch.tensor([0]), torch.tensor([2]), torch.tensor([0.75])), 3)
    tensor([[0.7500, 0.0000, 0.2500]])
    """
    if isinstance(targets, (tuple, list)) and len(targets) == 3:
        labels, partners, share = targets
        own, other = soft_targets(labels, classes), soft_targets(partners, classes)
        return torch.lerp(other, own, torch.as_tensor(share, dtype=own.dtype, device=own.device).reshape(-1, 1))
    if not isinstance(targets, Tensor) or targets.ndim not in (1, 2) or not len(targets):
        raise VitlabError(
            "invalid targets; expected class indices (B,), probabilities (B, C) or (labels, partners, share)"
        )
    if targets.ndim == 2 and targets.is_floating_point() and targets.shape[1] == classes:
        return targets.float()
    if targets.ndim == 2 or targets.is_floating_point():
        kind = f"{tuple(targets.shape)} {targets.dtype}".replace("torch.", "")
        raise VitlabError(
            f"targets are {kind}; the model has {classes} classes; expected (B,) integers or (B, {classes}) floats"
        )
    if int(targets.min()) < 0 or int(targets.max()) >= classes:
        raise VitlabError(
            f"labels run from {int(targets.min())} to {int(targets.max())}; the model has {classes} classes; "
            f"expected labels from 0 to {classes - 1}"
        )
    return F.one_hot(targets.long(), classes).float()


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over the batch of −Σ_c y_c log softmax(z)_c, both (B, C).

    >>> cross_entropy(torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))  # log 4
    tensor(1.3863)
    """
    return -(targets * logits.log_softmax(1)).sum(1).mean()


def l2_term(weights: Sequence[Tensor], form: L2, decay: float) -> Tensor:
    """The l2 regularisation term of the loss.

    `squared`: decay/2 Σ w², whose Hessian is decay · identity. `norms`: decay Σ_tensors ‖w‖, not squared, as HDVW's
    released landscape code adds it. The paper does not state which of them its Hessian includes.

    >>> l2_term([torch.tensor([3.0, 4.0])], "squared", 0.1), l2_term([torch.tensor([3.0, 4.0])], "norms", 0.1)
    (tensor(1.2500), tensor(0.5000))
    """
    if form not in get_args(L2):
        raise unknown("form of l2", form, get_args(L2))
    squares = torch.stack([weight.square().sum() for weight in weights])
    if form == "none":
        return torch.zeros_like(squares[0])
    if form == "squared":
        return decay / 2 * squares.sum()
    # ‖w‖ has no derivative at 0, a common value of biases: such a tensor is treated as a constant.
    return decay * torch.where(squares > 0, torch.where(squares > 0, squares, 1.0).sqrt(), 0.0).sum()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters by name, detached, in float32 or float64; raise an error if any is missing or not finite."""
    found = {name: parameter.detach() for name, parameter in model.named_parameters()}
    if not found:
        raise VitlabError(f"{type(model).__name__} has no parameters; expected a model with weights")
    for name, weight in found.items():
        if weight.is_meta:
            raise VitlabError(f"the model is on the meta device and has no weights ({name}); load its weights first")
        if not bool(weight.isfinite().all()):
            raise VitlabError(f"weight {name!r} is not finite (NaN or infinite); check the checkpoint")
    # Derivatives of half-precision losses are dominated by rounding errors.
    double = any(weight.dtype == torch.float64 for weight in found.values())
    return {name: weight.to(torch.float64 if double else torch.float32) for name, weight in found.items()}


def logits_at(model: nn.Module, weights: Weights, images: Tensor) -> Tensor:
    """(B, C) logits of the model at the given weights; buffers are copied, so that BatchNorm does not modify them."""
    dtype = images.dtype
    buffers = {
        name: b.to(dtype, copy=True) if b.is_floating_point() else b.clone() for name, b in model.named_buffers()
    }
    output = functional_call(model, {**buffers, **weights}, (images,))
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise VitlabError(f"{type(model).__name__} does not return logits (B, C); expected a classifier")
    return logits


def soft_target_batches(model: nn.Module, weights: Weights, batches: Iterable[Any]) -> Iterator[Pair]:
    """Yield (images, soft targets) with the device and dtype of the weights."""
    reference = next(iter(weights.values()))
    classes = 0
    for item in batches:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise VitlabError("the loss needs labels: batches must yield (images, targets)")
        if not isinstance(item[0], Tensor) or not item[0].ndim or not len(item[0]):
            raise VitlabError("the loss needs images: batches must yield (images, targets) with at least one image")
        images = item[0].to(reference)
        if not classes:
            with torch.no_grad():
                classes = logits_at(model, weights, images).shape[1]
        targets = soft_targets(item[1], classes).to(reference)
        if len(targets) != len(images):
            raise VitlabError(f"a batch has {len(images)} images but {len(targets)} targets")
        yield images, targets
    if not classes:
        raise VitlabError("there are no batches; expected at least one")


def split_mini_batches(pairs: Iterable[Pair], size: int, count: int | None = None) -> Iterator[Pair]:
    """Split batches into mini-batches of exactly `size` images, `count` of them or all; drop the rest of each batch.

    >>> [len(images) for images, _ in split_mini_batches([(torch.zeros(5, 2), torch.zeros(5, 3))], 2)]
    [2, 2]
    """
    largest = made = 0
    for images, targets in pairs:
        largest = max(largest, len(images))
        for start in range(0, len(images) - size + 1, size):
            yield images[start : start + size], targets[start : start + size]
            made += 1
            if made == count:
                return
    if not made:
        raise VitlabError(
            f"invalid batch_size={size}; no batch has more than {largest} images; "
            "use larger batches (more images, or fewer repeats), or a smaller batch_size="
        )
    if count is not None and made < count:
        raise VitlabError(f"invalid mini_batches={count}; the batches have only {made} mini-batches of {size} images")


@contextmanager
def seeded_mode(model: nn.Module, *, training: bool = False, seed: int = 0) -> Iterator[None]:
    """Temporarily set training or evaluation mode and seed the random numbers; restore both on exit."""
    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices)):
        torch.manual_seed(seed)
        model.train(training)
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
