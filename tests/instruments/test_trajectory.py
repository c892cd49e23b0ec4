"""Polar coordinates against plane geometry and against numpy's arc cosine."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.core.store import write_tensors
from vitlab.instruments import measure
from vitlab.instruments.trajectory import polar


def plane(x: float, y: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.tensor([[x, y]])}


def linear(x: float, y: float) -> nn.Module:
    model = nn.Linear(2, 1, bias=False)
    model.load_state_dict(plane(x, y))
    return model


def test_plane_geometry() -> None:
    found = measure("trajectory", linear(1.0, 1.0), [], snapshots=[plane(5, 1), plane(3, 3), plane(1, 2), plane(1, 1)])
    np.testing.assert_allclose(found.values["radius"], [1.0, math.sqrt(8) / 4, 0.25, 0.0], rtol=1e-9)
    np.testing.assert_allclose(found.values["angle"], [0.0, math.pi / 4, math.pi / 2, math.nan], rtol=1e-9)


def test_random_offsets_against_the_arc_cosine() -> None:
    generator = torch.Generator().manual_seed(0)
    offset, start = torch.randn(2, 50, generator=generator).double()
    cosine = float(offset @ start / offset.norm() / start.norm())
    assert polar(offset, start) == pytest.approx((float(offset.norm() / start.norm()), math.acos(cosine)))
    assert polar(-start, start) == pytest.approx((1.0, math.pi))


def test_small_angles_are_accurate() -> None:
    start, offset = torch.tensor([1.0, 0.0]).double(), torch.tensor([1.0, 1e-10]).double()
    assert polar(offset, start)[1] == pytest.approx(1e-10, rel=1e-6)


def test_files_models_and_mappings_agree(tmp_path: Path) -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(3)]
    end, before = models.pop(), copy.deepcopy(models)
    paths = [tmp_path / f"epoch-{i}.safetensors" for i in range(2)]
    for path, model in zip(paths, models, strict=True):
        write_tensors(path, model.state_dict(), {})
    found = [
        measure("trajectory", end, [], snapshots=snapshots)
        for snapshots in (paths, models, [model.state_dict() for model in models], [str(path) for path in paths])
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].values["radius"], other.values["radius"])
        np.testing.assert_array_equal(found[0].values["angle"], other.values["angle"])
    assert found[0].axes["snapshot"] == tuple(map(str, paths))
    for model, old in zip(models, before, strict=True):
        assert all(torch.equal(value, old.state_dict()[name]) for name, value in model.state_dict().items())


def test_a_run_folder(tmp_path: Path) -> None:
    points = {0: (5, 1), 2: (3, 3), 10: (1, 2), 12345: (1, 1)}
    for epoch, point in points.items():
        write_tensors(tmp_path / "snapshots" / f"epoch-{epoch:04d}.safetensors", plane(*point), {})
    expected = measure("trajectory", linear(1.0, 1.0), [], snapshots=[plane(*point) for point in points.values()])
    for folder in (tmp_path, str(tmp_path), tmp_path / "snapshots"):
        found = measure("trajectory", linear(1.0, 1.0), [], snapshots=folder)
        np.testing.assert_array_equal(found.values["radius"], expected.values["radius"])
        assert found.axes["snapshot"] == ("epoch-0000", "epoch-0002", "epoch-0010", "epoch-12345")


def test_a_run_folder_without_initial_weights(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="has no snapshots"):
        measure("trajectory", linear(1.0, 1.0), [], snapshots=tmp_path)
    write_tensors(tmp_path / "snapshots" / "epoch-0005.safetensors", plane(3, 3), {})
    with pytest.raises(VitlabError, match=r"begin with epoch-0005.*epoch-0000"):
        measure("trajectory", linear(1.0, 1.0), [], snapshots=tmp_path)


def test_bad_input(tmp_path: Path) -> None:
    for snapshots, message in (
        ([], "needs snapshots="),
        (plane(1, 1), "expected text in quotes, or a Path, or a list"),
        ("run/snapshots", "invalid snapshots='run/snapshots'"),
        ([plane(1, 1)], "the first snapshot equals the model"),
        ([{}], r"of another model: 'weight' is missing; expected \(1, 2\)"),
        ([{"weight": torch.ones(1, 3)}], r"\(1, 3\); expected \(1, 2\)"),
        ([plane(2, 2), plane(math.nan, 0)], "snapshot 1 has weights that are not finite"),
        ([7], "a list, each text in quotes, or a Path, or a Module, or a dict"),
        ([tmp_path / "none.safetensors"], "there is no file"),
    ):
        with pytest.raises(VitlabError, match=message):
            measure("trajectory", linear(1.0, 1.0), [], snapshots=snapshots)
