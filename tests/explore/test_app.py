"""The command: it prints an address, serves the page, and shuts down."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import vitlab
from cases.exploring import PLAIN, SCENES
from vitlab.cli import commands as cli
from vitlab.core.anatomy import Anatomy, Block, Mixer, TokenLayout
from vitlab.data.scene_set import TEST_SCENES
from vitlab.data.scenes import draw_scenes
from vitlab.explore.app import explore, listen, open_explorer, page_grid, short_names

ROOT = Path(__file__).resolve().parent.parent.parent


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "vitlab", "explore", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, cwd=folder, **pipes)


def test_serves_on_localhost_only_and_shuts_down(tmp_path: Path) -> None:
    process = start(PLAIN, "--data", SCENES, "--images", "2", folder=tmp_path)
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), process.communicate()[1]
    with urllib.request.urlopen(address) as page:
        assert b"vitlab" in page.read()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and not errors
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_no_classifier_is_refused_beside_one_that_is() -> None:
    tokens = PLAIN.replace("num_classes=25", "num_classes=0, global_pool=''")
    with pytest.raises(vitlab.VitlabError, match="cannot be explored: .* needs a classifier"):
        explore([PLAIN, tokens], data=SCENES)


def test_a_mistake_in_the_data_is_reported_before_a_model_is_loaded() -> None:
    with pytest.raises(vitlab.VitlabError, match="test=0"):
        explore(["timm/none"], data="scenes(test=0)")


def test_images_are_spread_over_the_test_set_and_drawn_on_demand() -> None:
    collection = open_explorer([PLAIN], "scenes", None, 4).images
    assert collection.images.indices.tolist() == [TEST_SCENES + place for place in (0, 500, 1000, 1500)]
    expected = draw_scenes(1, 32, start=TEST_SCENES + 1000).images[0].permute(1, 2, 0)
    assert (np.asarray(collection.picture("2")) == expected.numpy()).all()


def test_the_device_is_checked_first_and_used() -> None:
    with pytest.raises(vitlab.VitlabError, match="device 'gpu'"):
        explore(["timm/none"], data=SCENES, device="gpu")
    with pytest.raises(vitlab.VitlabError, match="device 'gpu'"):
        cli.explore(["timm/none"], data=SCENES, device="gpu", quiet=True)
    shown = open_explorer([PLAIN], SCENES, None, 2, "cpu").models[0]
    assert {parameter.device.type for parameter in shown.model.parameters()} == {"cpu"}


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(vitlab.VitlabError, match="is not available"), listen(taken.getsockname()[1]):
            pass
        with pytest.raises(vitlab.VitlabError, match="--port 70000"), listen(70000):
            pass


@pytest.mark.parametrize("library", ["fastapi", "uvicorn"])
def test_without_the_extra_the_error_names_it(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(vitlab.VitlabError, match=rf"needs {library}: pip install 'vitlab\[explore\]'"):
        cli.explore([PLAIN])


def test_the_grid_of_patches() -> None:
    def blocks(*grids: tuple[int, int]) -> Anatomy:
        mixers = [Mixer("attention", "", TokenLayout(grid), TokenLayout(grid)) for grid in grids]
        return Anatomy("x", tuple(Block(str(i), i, 0, mixer) for i, mixer in enumerate(mixers)), (224, 224))

    assert page_grid(blocks((56, 56), (28, 28), (14, 14), (7, 7))) == (14, 14)
    assert page_grid(blocks((4, 6))) == (4, 6)
    assert page_grid(blocks()) == (14, 14)


def test_two_models_have_distinct_names() -> None:
    assert short_names([PLAIN, f"{PLAIN} | ContextBroadcast()"]) == [
        "deit_tiny_patch16_224",
        "deit_tiny_patch16_224 | ContextBroadcast",
    ]
    assert short_names([PLAIN, "timm/deit_tiny_patch16_224"]) == [PLAIN, "timm/deit_tiny_patch16_224"]


@pytest.mark.parametrize(
    ("models", "images", "message"),
    [([], 2, "expected one or two"), ([PLAIN] * 3, 2, "models: 3"), ([PLAIN], 0, "invalid --images 0")],
)
def test_mistakes(models: list[str], images: int, message: str) -> None:
    with pytest.raises(vitlab.VitlabError, match=message):
        open_explorer(models, SCENES, None, images)
