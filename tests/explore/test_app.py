"""The verb: an address, a page behind it, and a clean end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import vitlab
from cases.exploring import PLAIN, SCENES
from vitlab.cli import commands as cli
from vitlab.data.scene_set import TEST_SCENES
from vitlab.data.scenes import draw_scenes
from vitlab.explore.app import explore, listen, open_explorer

ROOT = Path(__file__).resolve().parent.parent.parent


def start(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "vitlab", "explore", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, cwd=folder, **pipes)


def test_serves_on_this_machine_only_and_ends_cleanly(tmp_path: Path) -> None:
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


def test_images_are_spread_over_the_test_set_and_drawn_when_they_are_looked_at() -> None:
    with ExitStack() as stack:
        collection = open_explorer([PLAIN], "scenes", None, 4, stack).images
        assert collection.images.indices.tolist() == [TEST_SCENES + place for place in (0, 500, 1000, 1500)]
        expected = draw_scenes(1, 32, start=TEST_SCENES + 1000).images[0].permute(1, 2, 0)
        assert (np.asarray(collection.picture("2")) == expected.numpy()).all()


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(vitlab.VitlabError, match="is not available"), listen(taken.getsockname()[1]):
            pass
        with pytest.raises(vitlab.VitlabError, match="--port 70000"), listen(70000):
            pass


@pytest.mark.parametrize("library", ["fastapi", "uvicorn"])
def test_without_the_extra_the_error_says_what_to_install(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(vitlab.VitlabError, match=rf"needs {library}: pip install 'vitlab\[explore\]'"):
        cli.explore([PLAIN])
