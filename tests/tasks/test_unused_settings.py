"""Settings that a task does not use are refused before anything is opened. The oracle is the recipe of each task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.recipe import change
from vitlab.tasks import segmentation, vqa

RUNS = {
    "quick_segmentation": (segmentation.run, "segmentation"),
    "quick_vqa": (vqa.run, "question answering"),
}

UNUSED = [
    ("augment.mixup", 0.8, "0.0"),
    ("augment.erasing", 0.25, "0.0"),
    ("augment.randaugment", "rand-m9-n2", "''"),
    ("objective.smoothing", 0.2, "0.1"),
    ("objective.distillation", "soft", "''"),
    ("objective.extra", ("sparse",), r"\(\)"),
]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("key", "value", "default"), UNUSED)
def test_a_setting_without_effect_is_one_line(name: str, key: str, value: Any, default: str, tmp_path: Path) -> None:
    run, task = RUNS[name]
    recipe = change(plugins.recipe(name), {key: value})
    with pytest.raises(VitlabError, match=rf"invalid {key}=.*: {task} has no such setting; set {key}={default}$"):
        run(recipe, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("key", "value"), [("augment.flip", 0.5), ("objective.diversification", 1.0)])
def test_questions_about_sides_are_not_flipped(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match=rf"invalid {key}={value}: question answering has no such setting; set"):
        vqa.run(change(plugins.recipe("quick_vqa"), {key: value}), tmp_path / "run", device="cpu")
