"""Pixels in and out, who was right, standard errors, and what every stress test promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import pictures
from cases.stress import Linear, normalised, pixels, scene_batches, scenes_model
from vitlab.core import plugins
from vitlab.core.batches import Batches
from vitlab.data.scenes import MEAN, STD
from vitlab.stress_tests.trial import accuracies, put_on_trial

SMALL = {
    "corruptions": {"names": ("shot_noise", "fog"), "severities": (3,)},
    "occlusion": {"ratios": (0.5,), "grid": 4},
    "patch_shuffle": {"grids": (2,)},
    "adversarial": {"epsilons": (8,), "steps": 2},
    "frequency_noise": {"frequencies": (0.5, 1.0)},
    "shape_texture": {"count": 6},
}


def test_every_stress_test_is_here() -> None:
    assert set(SMALL) == set(plugins.stress_tests())


@pytest.mark.parametrize("name", SMALL)
def test_the_model_is_left_as_found(name: str) -> None:
    model = scenes_model().train()
    model.blocks[0].eval()
    modes = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = vitlab.stress(name, model, scene_batches(model), subject="tiny", **SMALL[name])
    assert found.subject == "tiny" and found.kind == name and found.provenance["data"] == "scenes[:12]"
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
    """The strain sees pixels in [0, 1]; the model sees what it would have seen without us."""
    seen = []

    class Model(torch.nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.mean((2, 3))

    images = pixels(4)
    shown = []
    batches = Batches([(normalised(images), torch.zeros(4, dtype=torch.long))], MEAN, STD)
    outcome = put_on_trial(Model(), batches, "test", [lambda batch: shown.append(batch.pixels) or batch.pixels * 0])
    torch.testing.assert_close(shown[0], images, rtol=0, atol=1e-6)
    torch.testing.assert_close(seen[1], normalised(images), rtol=0, atol=1e-5)
    torch.testing.assert_close(seen[-1], normalised(images * 0), rtol=0, atol=1e-5)
    expected = (normalised(images).mean((2, 3)).argmax(1) == 0).double().numpy()
    np.testing.assert_array_equal(outcome.clean, expected)


def test_paired_errors() -> None:
    """Against the closed form of a difference of two shares: (b + c − (b − c)² / n) / (n (n − 1))."""
    generator = np.random.default_rng(0)
    clean, strained = generator.integers(0, 2, (2, 40)).astype(float)
    outcome = put_on_trial(Linear(), _linear_batches(), "test", [])
    found = accuracies(type(outcome)(clean, strained[None], 2, {}))
    lost, won = ((clean > strained).sum(), (clean < strained).sum())
    assert found["drop"] == pytest.approx((lost - won) / 40)
    assert found["drop_error"] ** 2 == pytest.approx((lost + won - (lost - won) ** 2 / 40) / (40 * 39))
    p = strained.mean()
    assert found["standard_error"] ** 2 == pytest.approx(p * (1 - p) / 39)


def _linear_batches() -> Batches:
    return Batches([(torch.rand(4, 3, 8, 8), torch.arange(4))], (0.0,) * 3, (1.0,) * 3)


def test_a_plain_list_takes_the_models_own_normalisation() -> None:
    from cases import CASES

    case = CASES[0]  # mean and std ½
    found = vitlab.stress("patch_shuffle", case.model(), [(pictures(case, 4), torch.arange(4))], grids=[2], images=3)
    assert found.provenance["images"] == 3


@pytest.mark.parametrize(
    ("batches", "settings", "message"),
    [
        ([(torch.zeros(2, 3, 8, 8), torch.arange(2))], {}, "does not say how images were normalised"),
        (Batches([(torch.full((2, 3, 8, 8), 2.0), torch.arange(2))], MEAN, (1.0,) * 3), {}, r"not in \[0, 1\]"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(2))], (0.1, 0.2), (1.0,) * 3), {}, "do not fit"),
        (Batches([torch.zeros(2, 3, 8, 8)], MEAN, STD), {}, "needs labels"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(3))], MEAN, STD), {}, "class indices"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.tensor([0, 4]))], MEAN, STD), {}, "4 classes"),
        (Batches([(torch.zeros(1, 3, 8, 8), torch.arange(1))], MEAN, STD), {}, "at least two images; 1 given"),
        (Batches([], MEAN, STD), {}, "at least two images; 0 given"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(2))], MEAN, STD), {"images": 3}, "holds only 2"),
        (Batches([(torch.zeros(2, 3, 8, 8), torch.arange(2))], MEAN, STD), {"grid": 3}, "did you mean 'grids'"),
        (torch.zeros(2, 3, 8, 8), {}, "wrap one in a list"),
        (None, {}, "not NoneType"),
    ],
)
def test_mistakes(batches, settings, message) -> None:
    with pytest.raises(vitlab.VitlabError, match=message) as caught:
        vitlab.stress("patch_shuffle", Linear(), batches, **settings)
    assert len(str(caught.value).splitlines()) == 1


def test_unknown_name() -> None:
    with pytest.raises(vitlab.VitlabError, match=r"no stress test 'occlusions' \(did you mean 'occlusion'\?\)"):
        vitlab.stress("occlusions", Linear(), [])
