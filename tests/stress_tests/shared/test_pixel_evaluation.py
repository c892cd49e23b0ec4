"""Pixels, per-image correctness, standard errors, and the properties of every stress test."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import pictures
from cases.stress import Linear, answers, normalised, pixels, scene_batches, scenes_model
from vitlab.core import descriptions, plugins
from vitlab.core.batches import Batches
from vitlab.core.step_cache import step_cache
from vitlab.corruptions import corrupt
from vitlab.data.scenes import MEAN, STD
from vitlab.stress_tests.shared.pixel_evaluation import accuracies, evaluate_perturbations

SMALL = {
    "corruptions": {"names": ("shot_noise", "fog"), "severities": (3,)},
    "occlusion": {"ratios": (0.5,), "grid": 4},
    "patch_shuffle": {"grids": (2,)},
    "adversarial": {"epsilons": (8,), "steps": 2},
    "frequency_noise": {"frequencies": (0.5, 1.0)},
    "shape_texture": {"count": 6},
}


def test_every_stress_test_of_labelled_images_is_here() -> None:
    """Tests on files and on masks have separate test files."""
    taken = {name: descriptions.card(module)["inputs"] for name, module in plugins.stress_tests().items()}
    assert set(SMALL) == {name for name in taken if taken[name] not in ("files", "image and mask pairs")}


@pytest.mark.parametrize("name", SMALL)
def test_the_state_of_the_model_is_restored(name: str) -> None:
    model = scenes_model().train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = vitlab.stress(name, model, scene_batches(model), name="tiny", **SMALL[name])
    assert found.subject == "tiny" and found.kind == name and found.provenance["images"] == SMALL[name].get("count", 12)
    drawn = "scenes(cues='conflict', seed=0) 32x32, scenes 0 to 5"  # shape_texture makes its own images
    assert found.provenance["data"] == (drawn if name == "shape_texture" else "scenes[:12]")
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())
    assert torch.get_rng_state().equal(state) and torch.is_grad_enabled()


@pytest.mark.parametrize("name", SMALL)
def test_batch_size_changes_nothing(name: str) -> None:
    model = scenes_model()
    one, other = (vitlab.stress(name, model, scene_batches(model, 12, size), **SMALL[name]) for size in (12, 5))
    for key, value in one.values.items():
        np.testing.assert_array_equal(value, other.values[key], err_msg=key)


@pytest.mark.parametrize("name", SMALL)
def test_it_can_be_stored(name: str, tmp_path) -> None:
    model = scenes_model()
    found = vitlab.stress(name, model, scene_batches(model), **SMALL[name])
    again = vitlab.core.measurement.Measurement.load(found.save(tmp_path / name))
    assert set(again.values) == set(found.values) and again.axes == {k: tuple(v) for k, v in found.axes.items()}


def test_pixels_and_normalisation() -> None:
    """The perturbation sees pixels in [0, 1]; the model gets its normal input."""
    seen = []

    class Model(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.mean((2, 3))

    images = pixels(4)
    shown = []
    batches = Batches([(normalised(images), torch.zeros(4, dtype=torch.long))], MEAN, STD)
    perturbations = [("black", lambda batch: shown.append(batch.pixels) or batch.pixels * 0)]
    outcome = evaluate_perturbations(Model(), batches, "test", perturbations)
    torch.testing.assert_close(shown[0], images, rtol=0, atol=1e-6)
    clean, black = seen
    torch.testing.assert_close(clean, normalised(images), rtol=0, atol=1e-5)
    torch.testing.assert_close(black, normalised(images * 0), rtol=0, atol=1e-5)
    expected = (normalised(images).mean((2, 3)).argmax(1) == 0).double().numpy()
    np.testing.assert_array_equal(outcome.clean, expected)


def test_paired_errors() -> None:
    """Against the closed form of a difference of two shares: (b + c − (b − c)² / n) / (n (n − 1))."""
    generator = np.random.default_rng(0)
    clean, perturbed = generator.integers(0, 2, (2, 40)).astype(float)
    outcome = evaluate_perturbations(Linear(), _linear_batches(), "test", [])
    found = accuracies(type(outcome)(clean, perturbed[None], 2, (8, 8), {}))
    lost, won = ((clean > perturbed).sum(), (clean < perturbed).sum())
    assert found["drop"] == pytest.approx((lost - won) / 40)
    assert found["drop_error"] ** 2 == pytest.approx((lost + won - (lost - won) ** 2 / 40) / (40 * 39))
    p = perturbed.mean()
    assert found["standard_error"] ** 2 == pytest.approx(p * (1 - p) / 39)


def _linear_batches() -> Batches:
    return Batches([(torch.rand(4, 3, 8, 8), torch.arange(4))], (0.0,) * 3, (1.0,) * 3)


def test_a_plain_list_uses_the_models_normalisation() -> None:
    from cases import CASES

    case = CASES[0]  # mean and std ½
    found = vitlab.stress("patch_shuffle", case.model(), [(pictures(case, 4), torch.arange(4))], grids=[2], images=3)
    assert found.provenance["images"] == 3


@pytest.mark.parametrize(
    ("batches", "settings", "message"),
    [
        ([(torch.zeros(2, 3, 8, 8), torch.arange(2))], {}, "does not declare one"),
        (Batches([(torch.full((2, 3, 8, 8), 2.0), torch.arange(2))], MEAN, (1.0,) * 3), {}, r"not in \[0, 1\]"),
        (
            Batches([(torch.zeros(2, 3, 8, 8), torch.arange(2))], (0.1, 0.2), (1.0,) * 3),
            {},
            "each of 3 channels",
        ),
        (Batches([torch.zeros(2, 3, 8, 8)], MEAN, STD), {}, "needs labels"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(3))], MEAN, STD), {}, "class indices"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.tensor([0, 4]))], MEAN, STD), {}, "4 classes"),
        (Batches([(torch.zeros(1, 3, 8, 8), torch.arange(1))], MEAN, STD), {}, "at least two images; got 1"),
        (Batches([], MEAN, STD), {}, "at least two images; got 0"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(2))], MEAN, STD), {"images": 3}, "has only 2"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(2))], MEAN, STD), {"grid": 3}, "did you mean 'grids'"),
        (torch.zeros(2, 3, 8, 8), {}, "wrap a single batch in a list"),
        (None, {}, "invalid batches of type NoneType"),
    ],
)
def test_mistakes(batches, settings, message) -> None:
    with pytest.raises(vitlab.VitlabError, match=message) as caught:
        vitlab.stress("patch_shuffle", Linear(), batches, **settings)
    assert len(str(caught.value).splitlines()) == 1


def test_unknown_name() -> None:
    with pytest.raises(vitlab.VitlabError, match=r"no stress test 'occlusions' \(did you mean 'occlusion'\?\)"):
        vitlab.stress("occlusions", Linear(), [])


# -- steps ------------------------------------------------------------------------------------------------------------

STEPS = {  # of SMALL: the clean images, and each perturbation
    "corruptions": ["clean", "shot_noise at 3", "fog at 3"],
    "occlusion": ["clean", "centre 0.5", "patches 0.5"],
    "patch_shuffle": ["clean", "2 x 2 patches"],
    "adversarial": ["clean", "fgsm within 8.0/255", "pgd within 8.0/255"],
    "frequency_noise": ["clean", "frequency 0.5 π", "frequency 1.0 π"],
}


def run_recorded(name: str, folder, stop_at: str = "") -> tuple[list[tuple[str, str]], dict[str, np.ndarray]]:
    """The reported steps of a stress test, and its values; it is interrupted when step `stop_at` begins."""
    reported: list[tuple[str, str]] = []

    def report(step: str, total: int | None, state: str) -> None:
        if state == "inside":  # the iterations of PGD
            return
        assert total == len(STEPS[name])
        reported.append((step, state))
        if state == "begun" and step == stop_at:
            raise KeyboardInterrupt

    model = scenes_model()
    with step_cache(folder, report):
        try:
            return reported, dict(vitlab.stress(name, model, scene_batches(model), **SMALL[name]).values)
        except KeyboardInterrupt:
            return reported, {}


@pytest.mark.parametrize("name", STEPS)
def test_an_interrupted_test_resumes_at_the_next_perturbation(name: str, tmp_path) -> None:
    last = STEPS[name][-1]
    reported, whole = run_recorded(name, None)
    assert reported == [(step, state) for step in STEPS[name] for state in ("begun", "done")]
    reported, nothing = run_recorded(name, tmp_path, stop_at=last)
    assert not nothing and reported[-1] == (last, "begun")
    reported, values = run_recorded(name, tmp_path)
    assert reported == [*((step, "kept") for step in STEPS[name][:-1]), (last, "begun"), (last, "done")]
    assert set(values) == set(whole)
    for key, value in whole.items():
        np.testing.assert_array_equal(values[key], value, err_msg=key)


def test_against_the_other_order_of_loops() -> None:
    """A plain loop over batches with all perturbations of each batch inside."""
    model = scenes_model()
    batches = scene_batches(model, 12, 5)
    found = vitlab.stress("corruptions", model, batches, names=("shot_noise", "fog"), severities=(1, 5), seed=3)
    wrong, count = np.zeros((2, 2)), 0
    for images, labels in batches:
        shown = (images * torch.tensor(STD).view(-1, 1, 1) + torch.tensor(MEAN).view(-1, 1, 1)).clamp(0, 1)
        for i, name in enumerate(("shot_noise", "fog")):
            for j, severity in enumerate((1, 5)):
                spoilt = corrupt(shown, name, severity, seed=3, indices=range(count, count + len(shown)))
                wrong[i, j] += int((answers(model, spoilt.clamp(0, 1)) != labels).sum())
        count += len(shown)
    assert count == 12 and wrong.min() < wrong.max()
    np.testing.assert_allclose(found.values["error"], wrong / 12)


def test_a_stream_equals_a_list() -> None:
    model = scenes_model()
    items = list(scene_batches(model))
    for streamed in (Batches(iter(items), MEAN, STD), Batches(Loader(items), MEAN, STD)):
        found = vitlab.stress("corruptions", model, streamed, images=7, **SMALL["corruptions"])
        listed = vitlab.stress("corruptions", model, Batches(items, MEAN, STD), images=7, **SMALL["corruptions"])
        for key, value in listed.values.items():
            np.testing.assert_array_equal(found.values[key], value, err_msg=key)


class Loader:
    """Returns its batches in each iteration; if shuffled, in alternating order."""

    def __init__(self, items: list, shuffled: bool = False) -> None:
        self.items, self.shuffled, self.iterations = items, shuffled, 0

    def __iter__(self):
        self.iterations += 1
        return iter(self.items[:: -1 if self.shuffled and self.iterations % 2 else 1])


def test_shuffled_batches_raise() -> None:
    model = scenes_model()
    batches = Batches(Loader(list(scene_batches(model)), shuffled=True), MEAN, STD)
    with pytest.raises(vitlab.VitlabError, match="shuffled"):
        vitlab.stress("patch_shuffle", model, batches, grids=[2])
