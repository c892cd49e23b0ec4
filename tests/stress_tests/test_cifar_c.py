"""CIFAR-C: severities are fifths of the rows, the set is chosen by the model's classes, invalid files raise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import vitlab
from cases.published import Colours
from vitlab import zoo
from vitlab.core import plugins
from vitlab.core.step_cache import step_cache
from vitlab.corruptions import CORRUPTIONS
from vitlab.stress_tests.shared.mce_baselines import BASELINES

EACH = 4
LABELS = {10: np.array([3, 0, 9, 3]), 100: np.array([33, 0, 99, 33])}


def paint(numbers: np.ndarray) -> np.ndarray:
    """(n, 32, 32, 3) images for which `Colours` answers these numbers."""
    digits = np.stack([numbers // 100, numbers // 10 % 10, numbers % 10], axis=1)
    return np.broadcast_to((10 + 25 * digits)[:, None, None], (len(numbers), 32, 32, 3)).astype(np.uint8)


def answers(name: str, severity: int, labels: np.ndarray) -> np.ndarray:
    """At severity s, the first images are wrong: more with the severity, and not the same for all corruptions."""
    wrong = (CORRUPTIONS.index(name) + severity) % (EACH + 1)
    return np.where(np.arange(EACH) < wrong, (labels + 1) % 10, labels)


def write(folder, classes=10, names=CORRUPTIONS) -> None:
    folder.mkdir(parents=True)
    labels = LABELS[classes]
    np.save(folder / "labels.npy", np.tile(labels, 5))
    for name in names:
        np.save(folder / f"{name}.npy", paint(np.concatenate([answers(name, s, labels) for s in range(1, 6)])))


def stress(root, model=None, **settings):
    return vitlab.stress("cifar_c", model or Colours(10, size=32), root, **settings)


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("direct", [False, True])
def test_errors_and_mce_against_loops(tmp_path, classes, direct) -> None:
    folder = tmp_path / f"CIFAR-{classes}-C"
    write(folder, classes)
    found = stress(folder if direct else tmp_path, Colours(classes, size=32))
    table = np.array(
        [[answers(name, s, LABELS[classes]) == LABELS[classes] for s in range(1, 6)] for name in CORRUPTIONS]
    )
    np.testing.assert_allclose(found.values["accuracy"], table.mean(2))
    alex = BASELINES[f"cifar{classes}"].mean
    ce = [(1 - table[i]).mean() / alex[name] for i, name in enumerate(CORRUPTIONS)]
    np.testing.assert_allclose(found.values["ce"], ce)
    assert found.values["mce"] == pytest.approx(np.mean(ce)) and found.values["mean_accuracy"] == pytest.approx(
        table.mean()
    )
    assert found.settings["baseline"] == f"cifar{classes}" and found.provenance["argmax"] == f"{classes}-way"
    assert found.provenance["partial"] is True and found.provenance["images"] == EACH


@pytest.mark.parametrize("kernel", [3, 5])
def test_the_convolutional_vits_of_hdvw(tmp_path, kernel) -> None:
    """Their claim about CIFAR-100-C can be tested: the recipe's model for each k, against a loop over the images."""
    write(tmp_path / "CIFAR-100-C", 100, ("fog",))
    pixels = np.random.default_rng(0).integers(0, 256, (5 * EACH, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "CIFAR-100-C" / "fog.npy", pixels)
    model = zoo.load(plugins.recipe(f"how_vits_work_cifar(network='conv_vit_k{kernel}')").model, seed=0).eval()
    with torch.no_grad():
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))  # else all logits are the same
        x = torch.tensor(pixels).movedim(-1, 1) / 255
        mean, std = (torch.tensor(v)[:, None, None] for v in ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)))
        guesses = torch.cat([model(image[None]).argmax(1) for image in (x - mean) / std])
    np.save(tmp_path / "CIFAR-100-C" / "labels.npy", np.tile(guesses[:EACH].numpy(), 5))
    found = stress(tmp_path, model, names="fog")
    expected = (guesses.reshape(5, EACH) == guesses[:EACH]).float().mean(1)
    np.testing.assert_allclose(found.values["accuracy"][0], expected)
    assert found.values["accuracy"][0, 0] == 1


def test_the_set_with_the_models_classes_is_used(tmp_path) -> None:
    write(tmp_path / "CIFAR-10-C", 10, ("fog",))
    write(tmp_path / "CIFAR-100-C", 100, ("fog",))
    for classes in (10, 100):
        found = stress(tmp_path, Colours(classes, size=32), names="fog", severities=1)
        wrong = answers("fog", 1, LABELS[classes]) != LABELS[classes]
        assert found.values["error"][0, 0] == pytest.approx(wrong.mean())


def test_missing_corruptions_and_resuming(tmp_path) -> None:
    write(tmp_path / "data" / "CIFAR-10-C", names=("fog", "snow"))

    class Falls(Colours):
        def forward(self, images):
            if self.calls == 4:
                raise KeyboardInterrupt
            return super().forward(images)

    settings = {"names": ("snow", "frost", "fog"), "severities": (1, 2)}
    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path / "steps"):
        stress(tmp_path / "data", Falls(10, size=32), **settings)
    model = Colours(10, size=32)
    with step_cache(tmp_path / "steps"):
        found = stress(tmp_path / "data", model, **settings)
    assert model.calls == 1 + 1, "a blank image and the last set"
    assert found.provenance["missing_sets"] == ["frost 1", "frost 2"] and np.isnan(found.values["error"][1]).all()
    np.testing.assert_allclose(
        found.values["accuracy"][2], [np.mean(answers("fog", s, LABELS[10]) == LABELS[10]) for s in (1, 2)]
    )


class Plain(nn.Module):
    """Declares no preprocessing; stores its inputs."""

    def __init__(self, classes) -> None:
        super().__init__()
        self.classes, self.seen = classes, None

    def forward(self, images):
        self.seen = images
        return torch.zeros(len(images), self.classes)


@pytest.mark.parametrize(("classes", "mean", "std"), [(10, 0.4914, 0.2470), (100, 0.5071, 0.2675)])
def test_an_undeclared_model_gets_the_normalisation_of_cifar(tmp_path, classes, mean, std) -> None:
    write(tmp_path / f"CIFAR-{classes}-C", classes, ("fog",))
    model = Plain(classes)
    stress(tmp_path, model, names="fog", severities=5)
    red = paint(answers("fog", 5, LABELS[classes]))[:, 0, 0, 0] / 255
    assert model.seen.shape == (EACH, 3, 32, 32)
    np.testing.assert_allclose(model.seen[:, 0, 5, 5], (red - mean) / std, rtol=1e-4)


def test_invalid_files(tmp_path) -> None:
    with pytest.raises(vitlab.VitlabError, match=r"no CIFAR-10-C in .*expected:\n  ROOT/CIFAR-10-C/\{labels.npy"):
        stress(tmp_path)
    with pytest.raises(vitlab.VitlabError, match="10 or 100 classes; this model has 1000"):
        stress(tmp_path, Colours(1000, size=32))
    ten, hundred = tmp_path / "ten", tmp_path / "hundred"
    write(ten, 10, ("fog",))
    write(hundred, 100, ("fog",))
    with pytest.raises(vitlab.VitlabError, match=r"none of the requested files; the first is snow\.npy"):
        stress(ten, names="snow")
    with pytest.raises(vitlab.VitlabError, match="labels from 0 to 9"):
        stress(ten, Colours(100, size=32))
    with pytest.raises(vitlab.VitlabError, match="same data set"):
        stress(hundred)
    np.save(ten / "fog.npy", np.zeros((3, 32, 32, 3), dtype=np.uint8))
    with pytest.raises(vitlab.VitlabError, match=r"fog.npy is uint8 of shape \(3, 32, 32, 3\) with 20 labels"):
        stress(ten)
    np.save(ten / "fog.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(vitlab.VitlabError, match="cannot read the array"):
        stress(ten)
    with pytest.raises(vitlab.VitlabError, match="expected one of 'imagenet', 'cifar10'"):
        stress(ten, baseline="alexnet")
