"""Decisions of classifiers that follow a cue by construction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import vitlab
from cases.stress import scene_batches, scenes_model
from vitlab.data.scenes import MEAN, STD, draw_scenes
from vitlab.stress_tests.shape_texture import decide


class Knows(torch.nn.Module):
    """Finds the scenes by their pixels and predicts by a given rule."""

    def __init__(self, rule, classes) -> None:
        super().__init__()
        scenes = draw_scenes(20, 16, cues="conflict")
        self.known = (scenes.images.float() / 255 - torch.tensor(MEAN).view(-1, 1, 1)) / torch.tensor(STD).view(
            -1, 1, 1
        )
        self.answers = rule(scenes.shapes, scenes.textures)
        self.classes = classes

    def forward(self, x):
        nearest = torch.cdist(x.flatten(1), self.known.flatten(1)).argmin(1)
        return torch.nn.functional.one_hot(self.answers[nearest], self.classes).float()


@pytest.mark.parametrize(
    ("rule", "classes", "share"),
    [
        (lambda s, t: s, 5, (1, 0, 0, 0)),
        (lambda s, t: t, 5, (0, 1, 0, 0)),
        (lambda s, t: 5 * s + t, 25, (0, 0, 1, 0)),
        (lambda s, t: 6 * s, 25, (1, 0, 0, 0)),  # the class that both cues would agree on
        (lambda s, t: 6 * t, 25, (0, 1, 0, 0)),
        (lambda s, t: 5 * ((s + 1) % 5) + (t + 1) % 5, 25, (0, 0, 0, 1)),
    ],
)
def test_classifiers_that_follow_one_cue(rule, classes, share) -> None:
    found = vitlab.stress("shape_texture", Knows(rule, classes), None, count=20, size=16, batch_size=7).values
    assert tuple(found["share"]) == share and (found["standard_error"] == 0).all()
    expected = {(1, 0): 1.0, (0, 1): 0.0, (0, 0): np.nan}[share[:2]]
    np.testing.assert_equal(float(found["shape_bias"]), expected)
    assert found["shape_accuracy"] == share[0] + share[2] and found["texture_accuracy"] == share[1] + share[2]


def test_errors_are_those_of_a_mean_over_scenes() -> None:
    model = Knows(lambda s, t: torch.where(t < 2, 5 * s + t, 24 - t), 25)
    found = vitlab.stress("shape_texture", model, None, count=40, size=16, batch_size=9)
    for name in ("shape_accuracy", "texture_accuracy"):
        right = round(40 * float(found.values[name]))
        assert found.values[found.errors[name]] == pytest.approx(stats.sem([1] * right + [0] * (40 - right)))


def test_decide_against_a_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randint(0, 25, (200,), generator=generator)
    shapes, textures = torch.randint(0, 5, (2, 200), generator=generator)
    for p, s, t, found in zip(
        *(x.tolist() for x in (predicted, shapes, textures)), decide(predicted, shapes, textures, 25), strict=True
    ):
        assert (
            int(found)
            == {(True, False): 0, (False, True): 1, (True, True): 2, (False, False): 3}[p // 5 == s, p % 5 == t]
        )


def test_size_and_normalisation_come_from_model_or_batches() -> None:
    model = scenes_model()
    found = vitlab.stress("shape_texture", model, None, count=10)
    assert found.values["share"].sum() == pytest.approx(1) and found.provenance["images"] == 10
    with_batches = vitlab.stress("shape_texture", model, scene_batches(model), count=10)
    images = draw_scenes(10, 32, cues="conflict")
    for result, mean, std in ((found, (0.5,) * 3, (0.5,) * 3), (with_batches, MEAN, STD)):
        x = (images.images / 255 - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
        with torch.no_grad():
            kinds = decide(model(x).argmax(1), images.shapes, images.textures, 25)
        np.testing.assert_allclose(result.values["share"], [(kinds == k).double().mean() for k in range(4)])


def test_mistakes() -> None:
    with pytest.raises(vitlab.VitlabError, match="this model has 7"):
        vitlab.stress("shape_texture", scenes_model(7), None, count=2)
    with pytest.raises(vitlab.VitlabError, match="count=1"):
        vitlab.stress("shape_texture", scenes_model(), None, count=1)


def test_provenance_names_the_scenes_not_the_batches() -> None:
    model = scenes_model()
    found = vitlab.stress("shape_texture", model, scene_batches(model, 4), count=6, start=10, seed=3)
    assert found.provenance["data"] == "scenes(cues='conflict', seed=3) 32x32, scenes 10 to 15"
