"""Attacks against foolbox, and against closed forms on a linear model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.stress import Linear, answers, normalised, pixels, scene_batches, scenes_model
from vitlab.corruptions.randomness import Randomness
from vitlab.data.scenes import MEAN, STD
from vitlab.stress_tests.adversarial import fgsm, pgd, random_start

RADII = {"linf": 4 / 255, "l2": 128 / 255}


@pytest.fixture
def scene():
    model = scenes_model()
    images = pixels(6)
    return model, images, answers(model, images), lambda x: model(normalised(x))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_against_foolbox(scene, norm) -> None:
    foolbox = pytest.importorskip("foolbox")
    model, images, labels, classify = scene
    reference = foolbox.PyTorchModel(
        model, bounds=(0, 1), preprocessing={"mean": list(MEAN), "std": list(STD), "axis": -3}, device="cpu"
    )
    radius = RADII[norm]
    attacks = foolbox.attacks
    single = {"linf": attacks.LinfFastGradientAttack, "l2": attacks.L2FastGradientAttack}[norm](random_start=False)
    many = {"linf": attacks.LinfPGD, "l2": attacks.L2PGD}[norm](steps=7, abs_stepsize=radius / 3, random_start=False)
    theirs = [attack(reference, images, labels, epsilons=radius)[0] for attack in (single, many)]
    ours = [
        fgsm(classify, images, labels, radius, norm),
        pgd(classify, images, labels, radius, norm, steps=7, step=radius / 3),
    ]
    for found, expected in zip(ours, theirs, strict=True):
        # L∞ is equal bit for bit here; L2 steps of a sharp model carry rounding on (2e-4 after seven steps).
        assert (found - images).abs().amax() > 0.01
        assert ((found - expected).abs() > 1e-3).double().mean() < 1e-3, (
            "elsewhere the sign of a tiny gradient may flip"
        )


def test_closed_form_of_a_linear_model() -> None:
    """Two classes with logits ±w·x: the gradient of the loss points along −w for class 0, so both attacks end there."""
    model = Linear(classes=1)
    w = model.weight.detach().view(1, 3, 8, 8)

    def classify(x):
        return torch.cat([model(x), -model(x)], 1)

    images, labels = torch.full((1, 3, 8, 8), 0.5), torch.tensor([0])
    for attack in (fgsm, pgd):
        torch.testing.assert_close(attack(classify, images, labels, 0.1, "linf"), images - 0.1 * w.sign())
        torch.testing.assert_close(attack(classify, images, labels, 0.1, "l2"), images - 0.1 * w / w.norm())


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_attacks_stay_in_the_ball_and_raise_the_loss(scene, norm) -> None:
    _, images, labels, classify = scene
    start = random_start(Randomness.of(0, "pgd", 0, range(6)), images.shape[1:], RADII[norm], norm)
    found = pgd(classify, images, labels, RADII[norm], norm, start=start)
    change = (found - images).flatten(1)
    length = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert (length <= RADII[norm] * (1 + 1e-5)).all() and found.min() >= 0 and found.max() <= 1
    with torch.no_grad():
        before, after = (
            torch.nn.functional.cross_entropy(classify(x), labels, reduction="none") for x in (images, found)
        )
    assert (after > before).all()


def test_random_starts_are_uniform_in_the_ball() -> None:
    random = Randomness.of(0, "pgd", 0, range(2000))
    box, ball = random_start(random, (1, 1, 3), 2.0, "linf"), random_start(random, (1, 1, 3), 2.0, "l2")
    assert box.abs().max() < 2 and box.std() == pytest.approx(2 / 3**0.5, rel=0.03)
    radius = ball.flatten(1).norm(dim=1)
    assert radius.max() <= 2 * (1 + 1e-6) and radius.mean() == pytest.approx(2 * 3 / 4, rel=0.03)  # E r = ε n / (n + 1)


def test_measure(scene) -> None:
    model, images, labels, classify = scene
    found = vitlab.stress("adversarial", model, scene_batches(model, 6), epsilons=(0, 8), random=False, steps=3)
    assert found.dims["accuracy"] == ("attack", "epsilon") and found.axes["attack"] == ("fgsm", "pgd")
    assert (found.values["accuracy"][:, 0] == found.values["clean_accuracy"]).all() and found.values["drop"][1, 1] > 0
    attacked = [
        fgsm(classify, images, labels, 8 / 255),
        pgd(classify, images, labels, 8 / 255, steps=3, step=2.5 * 8 / 255 / 3),
    ]
    expected = [(answers(model, x) == labels).double().mean().item() for x in attacked]
    np.testing.assert_allclose(found.values["accuracy"][:, 1], expected)


def test_gradients_of_parameters_are_not_touched() -> None:
    model = scenes_model()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    vitlab.stress("adversarial", model, scene_batches(model), steps=2)
    assert all((parameter.grad == 1).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attacks": "pdg"}, "did you mean 'pgd'"),
        ({"norm": "l1"}, "expected 'linf' or 'l2'"),
        ({"epsilons": (-1,)}, "a number from 0 to 1,000"),
        ({"steps": 0}, "an integer from 1 to 1,000"),
    ],
)
def test_mistakes(settings, message) -> None:
    model = scenes_model()
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.stress("adversarial", model, scene_batches(model), **settings)
