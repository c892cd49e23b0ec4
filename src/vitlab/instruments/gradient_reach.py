"""Gradient reach: gradient of the weights through the broadcast term at Front, Mid, End (CB Sec. 4.1, B.6).

    CB(x_i) = x_i / 2 + m / 2, m = (1/N) Σ_j x_j;   through(w) = ∇_w L − ∇_w L with m detached

Detaching m does not change activations, so the difference is exactly the sum over all paths from the loss to w that
cross at least one broadcast term.

The paper conjectures that End is best because "the preceding weights are updated by the gradient signals by uniform
attention", while at Front "the subsequent weights in the corresponding MLP block cannot receive the gradient signals".
For paths within one block this is true by construction, but it is of limited meaning: with CB in every block these
weights receive gradients through the term of the next block, the term changes their gradient as an activation
(`changed`), and Mid and End, whose `through` differ, are the same function of the weights, with the same total
gradient.

Shape legend: B batch, N tokens, D channels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.core.anatomy import SEAMS, Anatomy, Block
from vitlab.core.bounds import Choices, Length
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.instruments.shared.loss_surface import soft_targets
from vitlab.surgery import restore, retrofit

CARD = Card(
    title="Gradient that weights receive through context broadcasting, by its place in the block",
    paper="CB Sec. 4.1, B.6, Table 4b",
    cost="nine forwards with gradients",
    inputs="labelled images",
    passes="several",
    needs=("mlp.in, mlp.mid or mlp.out",),
    splittable=False,
)

Gradients = dict[str, Tensor]


class BroadcastTerm(nn.Module):
    """`ContextBroadcast` whose broadcast term can be detached or removed.

    Args:
        term: `"kept"`, `"constant"` (detached from the gradient) or `"removed"`.

    Returns:
        (B, N, D) for an input of (B, N, D).

    >>> x = torch.tensor([[[0.0], [2.0]]], requires_grad=True)
    >>> for term in BroadcastTerm.TERMS:
    ...     torch.autograd.grad(BroadcastTerm(term)(x)[:, 0].sum(), x)[0].flatten().tolist()
    [0.75, 0.25]
    [0.5, 0.0]
    [0.5, 0.0]
    """

    default_seam: ClassVar[str] = "mlp.out"
    TERMS: ClassVar[tuple[str, ...]] = ("kept", "constant", "removed")

    def __init__(self, term: str = "kept") -> None:
        super().__init__()
        self.term = term

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        if self.term == "removed":
            return 0.5 * x
        mean = x.mean(dim=1, keepdim=True)
        return 0.5 * x + 0.5 * (mean.detach() if self.term == "constant" else mean)


_SeamName = Annotated[str, Choices(SEAMS)]


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    seams: Annotated[Sequence[_SeamName], Length(distinct=True)] = ("mlp.in", "mlp.mid", "mlp.out"),
    blocks: str | Annotated[Sequence[int | str], Length(1, 10_000)] = "all",
) -> Measurement:
    """Gradient norms of every weight of every block with the broadcast term kept, detached and removed.

    The loss is the mean cross-entropy over all images. Gradients are computed on a copy of the model in
    evaluation mode.

    Args:
        model: a classifier; parts that were inserted before are removed from the copy.
        batches: yields (images, targets).
        seams: seams of the term: Front, Mid and End.
        blocks: blocks that receive a term, as in `retrofit`; a single block, for example `[5]`, isolates one term.

    Returns:
        All (seam, block, weight): `total`, the norm of the gradient; `through`, the norm of its part through a
        broadcast term; `changed`, the norm of the difference to the gradient of the same model with the term removed
        (x_i / 2 remains), which includes the effect of the term on activations. NaN for weights that a block does
        not have.
    """
    items = [_item(item) for item in batches]
    if not items:
        raise VitlabError("gradient_reach needs at least one batch of (images, targets)")
    plain = restore(copy.deepcopy(model)).eval().requires_grad_(True)
    size = (int(items[0][0].shape[-2]), int(items[0][0].shape[-1]))
    anatomy = describe(plain, size)
    _check(seams, anatomy)
    weights = _weights(plain, anatomy)
    labels = tuple(dict.fromkeys(label for names in weights.values() for label in names))
    shape = (len(seams), len(weights), len(labels))
    values = {name: np.full(shape, np.nan) for name in ("total", "through", "changed")}
    for i, seam in enumerate(seams):
        fitted = retrofit(copy.deepcopy(plain), BroadcastTerm, at=seam, blocks=blocks, input_size=size)
        kept, constant, removed = (_gradients(fitted, term, items) for term in BroadcastTerm.TERMS)
        for j, names in enumerate(weights.values()):
            for label, name in names.items():
                total = kept[name]
                norms = total.norm(), (total - constant[name]).norm(), (total - removed[name]).norm()
                for value, norm in zip(values.values(), norms, strict=True):
                    value[i, j, labels.index(label)] = float(norm)
    dims = dict.fromkeys(values, ("seam", "block", "weight"))
    axes = {"seam": tuple(seams), "block": tuple(weights), "weight": labels}
    about = provenance(images=sum(len(images) for images, _ in items), data=getattr(batches, "fingerprint", ""))
    settings = {"blocks": blocks if isinstance(blocks, str) else list(blocks)}
    return Measurement("gradient_reach", type(model).__name__, values, dims, axes, settings, about)


def _gradients(model: nn.Module, term: str, items: list[tuple[Tensor, Any]]) -> Gradients:
    """Gradient of the mean loss over all images, by weight name."""
    for part in model.modules():
        if isinstance(part, BroadcastTerm):
            part.term = term
    named = dict(model.named_parameters())
    device, count = next(iter(named.values())).device, sum(len(images) for images, _ in items)
    total = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in named.items()}
    with torch.enable_grad():
        for images, targets in items:
            logits = model(images.to(device))
            logits = getattr(logits, "logits", logits)
            truth = soft_targets(targets, logits.shape[1]).to(device, torch.float64)
            if len(truth) != len(images):
                raise VitlabError(f"gradient_reach: a batch has {len(images)} images but {len(truth)} targets")
            loss = F.cross_entropy(logits.double(), truth, reduction="sum") / count
            if not torch.isfinite(loss):
                raise VitlabError(
                    "gradient_reach: the loss is not finite; check the model's weights and the images for NaN"
                )
            gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            for name, gradient in zip(named, gradients, strict=True):
                if gradient is not None:
                    total[name] += gradient
    return total


def _weights(model: nn.Module, anatomy: Anatomy) -> dict[str, dict[str, str]]:
    """For each block, a mapping from weight names in the block to weight names in the model."""
    modules, names = dict(model.named_modules()), [name for name, _ in model.named_parameters()]

    def path(block: Block) -> str:
        return (block.name if block.name in modules else block.mixer.path.rpartition(".")[0]) + "."

    return {
        block.name: {name.removeprefix(path(block)): name for name in names if name.startswith(path(block))}
        for block in anatomy.blocks
    }


def _check(seams: Sequence[str], anatomy: Anatomy) -> None:
    for seam in seams:
        if seam not in SEAMS:
            raise unknown("seam", seam, anatomy.seams)
        if seam not in anatomy.seams:
            raise VitlabError(
                f"no seam {seam!r} in family {anatomy.family!r}; expected seams= from: {', '.join(anatomy.seams)}"
            )


def _item(item: Any) -> tuple[Tensor, Any]:
    if not isinstance(item, (tuple, list)) or len(item) < 2 or not isinstance(item[0], Tensor):
        raise VitlabError("invalid batch; gradient_reach needs batches of (images, targets)")
    if item[0].ndim != 4 or not len(item[0]):
        raise VitlabError("invalid batch; gradient_reach needs images of shape (B, C, h, w) with at least one image")
    return item[0], item[1]
