"""Run folders and weights that earlier versions wrote (tests/stored) can be resumed and loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import vitlab
from vitlab.core.recipe import stored_recipe
from vitlab.core.store import Run, read_about, read_tensors
from vitlab.identity import weights_digest
from vitlab.tasks.classification import run

STORED = Path(__file__).parents[1] / "stored"
VERSIONS = ("without_markers", "with_markers")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_checkpoint_is_resumed(version: str, tmp_path: Path) -> None:
    """The oracle is the old version's own uninterrupted run: its final weights were stored."""
    folder = tmp_path / "run"
    shutil.copytree(STORED / version / "interrupted", folder)
    recipe = stored_recipe(json.loads((folder / "recipe.json").read_text()))
    before = [row["train_loss"] for row in Run(folder).metrics()]
    row = run(recipe, folder, device="cpu")
    assert row["step"] == 8 and row["epoch"] == 2
    assert [row["train_loss"] for row in Run(folder).metrics()][: len(before)] == before  # no step was repeated
    for name in ("model.safetensors", "model_ema.safetensors"):
        expected, resumed = read_tensors(STORED / version / name)[0], read_tensors(folder / name)[0]
        assert expected.keys() <= resumed.keys()
        for key, tensor in expected.items():
            torch.testing.assert_close(resumed[key], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.filterwarnings("ignore:the state dict has no marker")
def test_old_weights_load_as_a_model(version: str) -> None:
    path = STORED / version / "model.safetensors"
    model = vitlab.load(f"file/{path}").eval()
    stored = read_tensors(path)[0]
    state = model.state_dict()
    assert stored.keys() <= state.keys()
    assert all(torch.equal(state[key], tensor) for key, tensor in stored.items())
    plain = vitlab.load(read_about(path)["model"].partition(" | ")[0]).eval()
    plain.load_state_dict({key: value for key, value in stored.items() if "vitlab_" not in key})
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(model(images), plain(images))  # the part is in the loaded model


def test_the_digest_of_old_weights_is_unchanged() -> None:
    """Reports group measurements by this digest: another one would separate old results from new ones."""
    path = STORED / "with_markers" / "model.safetensors"
    model = vitlab.load(f"file/{path}")
    assert weights_digest(model, model.state_dict()) == read_about(path)["weights"]
