"""docs/tasks.md lists the instruments and stress tests that run on models of each task: all are tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vitlab import runner
from vitlab.core import plugins
from vitlab.core.errors import VitlabError

ROOT = Path(__file__).resolve().parent.parent.parent
VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3)"
SCENES = "scenes(train=8, test=8, objects=2, labels='shape')"
VILT = (
    "vitlab/vilt(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=29, "
    "max_position_embeddings=8, image_size=16, patch_size=8, vocab_size=40)"
)
MODELS = {
    "segmentation": (f"vitlab/upernet(backbone={VIT!r}, width=8, auxiliary_width=4, classes=6)", SCENES),
    "detection": (f"vitlab/mask_rcnn(backbone={VIT!r}, width=8, head=16, proposals=10, classes=5)", SCENES),
    "question answering": (VILT, "scene_questions(train=2, test=9, questions=4)"),
}
NOT_TRIED = {"trajectory"}  # needs a run folder


def listed(task: str) -> tuple[set[str], set[str]]:
    """The names in the row of a task: instruments and stress tests."""
    text = (ROOT / "docs/tasks.md").read_text(encoding="utf-8").partition("What runs on models")[2]
    rows = dict(re.findall(r"^\| ([a-z ]+) \| (.*)$", text, re.MULTILINE))
    instruments, tests = (set(re.findall(r"`(\w+)`", cell)) for cell in rows[task].split(" | "))
    return (instruments | listed("segmentation")[0] if "the same" in rows[task] else instruments), tests


def runs(function: Callable[..., Any], name: str, task: str, folder: Path) -> bool:
    model, data = MODELS[task]
    try:
        list(function([f"{model} | ScaledContextBroadcast"], [name], folder, data=data, images=4, show=False))
    except VitlabError as error:
        assert "\n" not in str(error)
        return False
    return True


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", MODELS)
def test_the_page_lists_what_runs(task: str, tmp_path: Path) -> None:
    instruments, tests = listed(task)
    found = {
        name for name in plugins.instruments() if name not in NOT_TRIED and runs(runner.measure, name, task, tmp_path)
    }
    assert found == instruments
    on_images = [name for name in plugins.stress_tests() if not name.startswith(("imagenet", "cifar"))]
    assert {name for name in on_images if runs(runner.stress, name, task, tmp_path)} == tests
