"""Long instruments resume at the next step and give the numbers of an uninterrupted run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from torch import nn

from cases import redraw
from vitlab.core.errors import VitlabError
from vitlab.core.step_cache import step_cache
from vitlab.instruments import measure

LONG = {
    "lesion": ({}, 1 + 2 * 2),
    "loss_landscape": ({"points": 4}, 4),
    "hessian_spectrum": ({"batch_size": 2, "count": 2, "limit": 30, "training": True}, 3),
}


def model() -> nn.Module:
    made = timm.models.VisionTransformer(
        img_size=8, patch_size=4, num_classes=5, embed_dim=8, depth=2, num_heads=2, proj_drop_rate=0.3
    )
    return redraw(made, 1)


def data() -> list:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(n, 3, 8, 8, generator=generator), torch.randint(5, (n,), generator=generator)) for n in (4, 3)]


class Stop:
    """Progress callback that interrupts after a number of steps."""

    def __init__(self, after: int | None = None) -> None:
        self.after, self.total, self.states = after, 0, []

    def __call__(self, name: str, total: int, state: str) -> None:
        if state == "inside":
            return
        self.total = total
        self.states.append(state)
        if self.states.count("done") == self.after and state == "begun":
            raise KeyboardInterrupt


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("after", [1, 2])
def test_resume_at_the_next_step(name: str, after: int, tmp_path: Path) -> None:
    settings, steps = LONG[name]
    whole = measure(name, model(), data(), **settings)
    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path, Stop(after)):
        measure(name, model(), data(), **settings)
    progress = Stop()
    with step_cache(tmp_path, progress):
        again = measure(name, model(), data(), **settings)
    assert progress.total == steps
    assert progress.states == ["kept"] * after + ["begun", "done"] * (steps - after)
    assert set(again.values) == set(whole.values) and again.axes == whole.axes
    for key, value in whole.values.items():
        np.testing.assert_array_equal(again.values[key], value, err_msg=key)
        assert again.values[key].dtype == value.dtype
    assert again.provenance["images"] == whole.provenance["images"]


@pytest.mark.parametrize("name", LONG)
def test_an_iterator_gives_the_numbers_of_a_list(name: str) -> None:
    settings, _ = LONG[name]
    whole, streamed = (measure(name, model(), batches, **settings) for batches in (data(), iter(data())))
    for key, value in whole.values.items():
        np.testing.assert_array_equal(streamed.values[key], value, err_msg=key)


class Shuffled:
    """Batches in another order at each iteration."""

    iterations = 0

    def __iter__(self):
        self.iterations += 1
        return iter(data()[:: (-1) ** self.iterations])


@pytest.mark.parametrize("name", ["lesion", "loss_landscape"])
def test_shuffled_batches_are_an_error(name: str) -> None:
    with pytest.raises(VitlabError, match="shuffled"):
        measure(name, model(), Shuffled(), **LONG[name][0])


@pytest.mark.parametrize(("make", "total"), [(list, 2), (iter, 2), (lambda items: (item for item in items), None)])
def test_one_pass_reports_its_batches(make, total: int | None) -> None:
    seen: list[tuple[object, ...]] = []
    with step_cache(report_progress=lambda *report: seen.append(report)):
        measure("feature_variance", model(), make(data()))
    assert seen == [("4 images", total, "done"), ("7 images", total, "done")]
