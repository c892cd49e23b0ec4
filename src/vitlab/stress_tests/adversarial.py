"""Accuracy under FGSM and PGD in pixel space; the attacked function includes the model's normalisation.

CB's tables of FGSM (8 and S13) do not state ε. The radii here are our choice.

Shape legend: B batch, C channels, h w pixels, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitlab.core.bounds import Choices, ImageCount, Length, Positive, Range, Seed
from vitlab.core.measurement import Card, Measurement
from vitlab.core.step_cache import inside
from vitlab.corruptions.randomness import Randomness
from vitlab.stress_tests.shared.pixel_evaluation import (
    Perturbation,
    PixelBatch,
    accuracies,
    evaluate_perturbations,
    numbers,
    result,
)

CARD = Card(
    title="Accuracy under FGSM and PGD",
    paper="Goodfellow et al., ICLR 2015 (FGSM); Madry et al., ICLR 2018 (PGD); CB Tables 8, S13: their ε is our choice",
    cost="for each epsilon 1 (FGSM) or `steps` (PGD) forwards and backwards, 11 by default",
    inputs="labelled images",
    passes="several",
    needs=("gradients",),
    higher_is_better=True,
)

Norm = Literal["linf", "l2"]
Classify = Callable[[Tensor], Tensor]
ATTACKS = ("fgsm", "pgd")
Attack = Annotated[str, Choices(ATTACKS)]
Radius = Annotated[float, Range(0, 1000)]


def input_gradient(classify: Classify, pixels: Tensor, labels: Tensor) -> Tensor:
    """Returns ∇_x of the cross-entropy of each image, (B, C, h, w). Gradients of parameters are not changed."""
    with torch.enable_grad():
        x = pixels.detach().requires_grad_()
        loss = F.cross_entropy(classify(x), labels, reduction="sum")
        return torch.autograd.grad(loss, x)[0]


def ascent(gradient: Tensor, norm: Norm) -> Tensor:
    """Returns the direction of steepest ascent with length 1, per image: sign(g) in L∞, g / ‖g‖₂ in L2.

    >>> ascent(torch.tensor([[[[3.0, -4.0]]]]), "l2"), ascent(torch.tensor([[[[3.0, -4.0]]]]), "linf")
    (tensor([[[[ 0.6000, -0.8000]]]]), tensor([[[[ 1., -1.]]]]))
    """
    if norm == "linf":
        return gradient.sign()
    return gradient / _length(gradient).clamp(min=1e-12)


def project(change: Tensor, epsilon: float, norm: Norm) -> Tensor:
    """Project a change onto the ball of radius ε.

    >>> project(torch.tensor([[[[3.0, -4.0]]]]), 1.0, "l2"), project(torch.tensor([[[[3.0, -0.5]]]]), 1.0, "linf")
    (tensor([[[[ 0.6000, -0.8000]]]]), tensor([[[[ 1.0000, -0.5000]]]]))
    """
    if norm == "linf":
        return change.clamp(-epsilon, epsilon)
    return change * (epsilon / _length(change).clamp(min=1e-12)).clamp(max=1)


def fgsm(classify: Classify, pixels: Tensor, labels: Tensor, epsilon: float, norm: Norm = "linf") -> Tensor:
    """Fast gradient sign method (Goodfellow et al., equation in section 4): clamp(x + ε · sign ∇_x L).

    Args:
        classify: maps pixels to logits (B, K).
        pixels: (B, C, h, w) in [0, 1].
        labels: (B,).
        epsilon: radius, for pixels in [0, 1].
        norm: `linf`; or `l2`, the fast gradient method.

    >>> two = lambda x: torch.stack([x.flatten(1).sum(1), -x.flatten(1).sum(1)], 1)  # class 0 for bright images
    >>> fgsm(two, torch.full((1, 1, 1, 2), 0.5), torch.tensor([0]), 0.125)
    tensor([[[[0.3750, 0.3750]]]])
    """
    return (pixels + epsilon * ascent(input_gradient(classify, pixels, labels), norm)).clamp(0, 1)


def pgd(
    classify: Classify,
    pixels: Tensor,
    labels: Tensor,
    epsilon: float,
    norm: Norm = "linf",
    *,
    steps: int = 10,
    step: float | None = None,
    start: Tensor | None = None,
) -> Tensor:
    """Projected gradient descent (Madry et al., section 2): x ← clamp(x₀ + Π_ε(x + α · ascent(∇_x L) − x₀)).

    Args:
        classify, pixels, labels, epsilon, norm: see `fgsm`.
        steps: number of steps.
        step: step size α, for pixels in [0, 1]; default 2.5 ε / steps, which can reach the boundary from any point of
            the ball.
        start: (B, C, h, w) initial change, within the ball; default zero.
    """
    step = 2.5 * epsilon / steps if step is None else step
    x = pixels if start is None else (pixels + start).clamp(0, 1)
    for taken in range(steps):
        inside(f"step {taken + 1:,} of {steps:,}")
        x = x + step * ascent(input_gradient(classify, x, labels), norm)
        x = (pixels + project(x - pixels, epsilon, norm)).clamp(0, 1)
    return x


def random_start(random: Randomness, shape: Sequence[int], epsilon: float, norm: Norm) -> Tensor:
    """Returns (B, *shape), uniform in the ball of radius ε. In L2: a normal direction, scaled to length ε · u^(1/n)."""
    if norm == "linf":
        return random.uniform(*shape, low=-epsilon, high=epsilon)
    direction = ascent(random.normal(*shape), "l2")
    radius: Tensor = epsilon * random.uniform(1, 1, 1, stream=1) ** (1 / direction[0].numel())
    return direction * radius


def _passes(steps: int) -> str:
    return f"{steps:,} steps are as many forwards and backwards for each batch and epsilon"


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    attacks: Attack | Annotated[Sequence[Attack], Length(1, 2, distinct=True)] = ATTACKS,
    norm: Norm = "linf",
    epsilons: Radius | Annotated[Sequence[Radius], Length(1, 100, distinct=True)] = (1.0,),
    steps: Annotated[int, Range(1, 1000, cost=_passes)] = 10,
    step: Positive | None = None,
    random: bool = True,
    seed: Seed = 0,
    images: ImageCount | None = None,
) -> Measurement:
    """Measure the accuracy under untargeted white-box attacks on the cross-entropy, bounded in pixel space.

    Args:
        model: a classifier; its state, gradients included, is restored on exit.
        batches: yields (images, targets), in the same order in each iteration; iterated once per condition.
        attacks: `fgsm`, `pgd` or both.
        norm: `linf` or `l2`.
        epsilons: radii in units of 1/255. The defaults are our choice: CB does not state ε.
        steps: number of steps of PGD.
        step: step size of PGD in units of 1/255; default 2.5 ε / steps.
        random: whether PGD starts at a random point of the ball, keyed by the seed and the index of the image.
        seed: any integer.
        images: number of images, from the start; default all.

    Returns:
        `accuracy`, `standard_error`, `drop`, `drop_error` (attack, epsilon), `clean_accuracy`, `clean_error` ().
    """
    names = (attacks,) if isinstance(attacks, str) else tuple(attacks)
    radii = tuple(map(float, numbers(epsilons)))
    common: dict[str, Any] = {"norm": norm, "steps": steps, "step": step, "random": random, "seed": seed}
    perturbations = [
        (f"{name} within {radius}/255", _perturbation(name, radius, **common)) for name in names for radius in radii
    ]
    outcome = evaluate_perturbations(model, batches, "adversarial", perturbations, images)
    values = accuracies(outcome, outcome.perturbed.reshape(len(names), len(radii), -1))
    settings = {"attacks": names, "epsilons": radii, **common, "images": images}
    return result("adversarial", model, values, {"attack": names, "epsilon": radii}, settings, outcome.about)


def _perturbation(
    name: str, radius: float, *, norm: Norm, steps: int, step: float | None, random: bool, seed: int
) -> Perturbation:
    epsilon = radius / 255

    def perturbation(batch: PixelBatch) -> Tensor:
        if name == "fgsm":
            return fgsm(batch.classify, batch.pixels, batch.labels, epsilon, norm)
        draws = Randomness.of(seed, "pgd", 0, batch.indices, batch.pixels.device)
        start = random_start(draws, batch.pixels.shape[1:], epsilon, norm) if random else None
        length = None if step is None else step / 255
        return pgd(batch.classify, batch.pixels, batch.labels, epsilon, norm, steps=steps, step=length, start=start)

    return perturbation


def _length(x: Tensor) -> Tensor:
    """Returns ‖x‖₂ of each image, (B, 1, 1, 1)."""
    length: Tensor = torch.linalg.vector_norm(x, dim=(1, 2, 3), keepdim=True)
    return length
