"""Code of extensions that fails: one line that names the extension, and what does not need it continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import vitlab
from vitlab.core import extensions, plugins
from vitlab.core.errors import ExtensionError, VitlabError
from vitlab.experiments.catalogue import select
from vitlab.tasks.extra_losses import extra_losses

SOURCE = Path(vitlab.__file__).resolve().parents[1]
SMALL = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=2)"
BROKEN = """
from pathlib import Path
import numpy as np
import torch
from torch import nn
from vitlab.extend import Claim, Figure, ImageFiles, Job, from_splits

VITLAB = {
    "recipes": ["divides", "no_recipe"],
    "data": ["no_data", "unreadable", "photos"],
    "losses": ["per_image", "without_labels", "number"],
    "figures": ["raising", "no_list", "no_plot"],
    "experiments": ["no_plan"],
    "adapters": ["flat"],
}

def divides(): return 1 / 0
def no_recipe(): return {"epochs": 1}
def no_data(location): return None
def unreadable(location): raise OSError("the disk failed")

def photos(location):
    paths = sorted(str(path.relative_to(location.root)) for path in (location.root / "photos").glob("*.png"))
    files = ImageFiles(location.root, np.array(paths, dtype=bytes), torch.arange(len(paths)) % 2, ("a", "b"))
    return from_splits("photos", None, files)

def per_image(logits, labels): return logits.sum(1)
def without_labels(logits): return logits.sum()
def number(logits, labels): return 3.0

def raising(measurements): raise RuntimeError("first line\\nsecond line")
def no_list(measurements): return None
def no_plot(measurements): return [Figure("a title", "", None)]

class no_plan:
    TITLE, PAPER, CLAIMS = "Fails", (), (Claim("a", "b"),)
    def plan(scale): raise KeyError("scale")
    def check(results): return []

class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 32 * 32, 2)
    def forward(self, images): return self.head(images.flatten(1))

class flat:
    FAMILIES, CLASSES, ABSENT = {"flat": "Flat()"}, (f"{__name__}.Flat",), {}
    def family(model): return "flat"
    def blocks(model, flow): return model.layers
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN, encoding="utf-8")
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    monkeypatch.setattr(extensions, "_REPORTED", set())
    return path


def line_of(text: str) -> int:
    return BROKEN.splitlines().index(text) + 1


def measurement(kind: str) -> vitlab.Measurement:
    return vitlab.Measurement(kind, "a model", {"a": np.arange(2.0)}, {"a": ("layer",)}, {"layer": ("one", "two")})


def test_objects_of_a_wrong_type_name_the_extension(file: Path) -> None:
    with pytest.raises(ExtensionError, match=r"recipe 'no_recipe' of file .* returned dict; expected a Recipe"):
        plugins.recipe("no_recipe")
    with pytest.raises(ExtensionError, match=r"data set 'no_data' of file .* returned NoneType; expected a DataSet"):
        vitlab.batches_for(vitlab.load(SMALL), "no_data")
    with pytest.raises(ExtensionError, match=r"loss 'without_labels' of .* takes \(logits\); expected \(logits, la"):
        extra_losses(["without_labels"])
    logits, labels = torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64)
    for name, returned in (("per_image", r"a tensor of shape \(4,\)"), ("number", "float")):
        (loss,) = extra_losses([name])
        with pytest.raises(ExtensionError, match=rf"loss '{name}' of .* returned {returned}; expected a scalar tensor"):
            loss(logits, labels, [])


@pytest.mark.parametrize(
    ("arguments", "function", "code", "reason"),
    [
        (("train", "divides"), "divides", "def divides(): return 1 / 0", "ZeroDivisionError: division by zero"),
        (
            ("measure", SMALL, "--with", "attention_entropy", "--data", "unreadable", "--device", "cpu"),
            "unreadable",
            'def unreadable(location): raise OSError("the disk failed")',
            "OSError: the disk failed",
        ),
    ],
)
def test_an_error_of_its_code_is_one_line_on_the_command_line(
    arguments: tuple[str, ...], function: str, code: str, reason: str, file: Path
) -> None:
    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", **variables}
        command = [sys.executable, "-m", "vitlab", *arguments]
        return subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, text=True)

    ended = run()
    expected = f"file {file} failed in {function}, line {line_of(code)} ({reason}); VITLAB_DEBUG=1 shows the traceback"
    assert ended.returncode == 1 and f"vitlab: {expected}\n" in ended.stderr and "Traceback" not in ended.stderr
    assert "Traceback" in run(VITLAB_DEBUG="1").stderr


def test_an_error_of_other_code_is_of_no_extension(file: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        print(1 / 0)
    assert extensions.failed_in(caught.value) == ""


def test_figures_that_fail_do_not_stop_the_report(file: Path, tmp_path: Path) -> None:
    kinds = ["raising", "no_list", "no_plot", "complete"]
    with pytest.warns(UserWarning) as caught:
        page = vitlab.report([measurement(kind) for kind in kinds], tmp_path / "report.html").read_text("utf-8")
    reasons = {
        "raising": "RuntimeError: first line second line",
        "no_list": "it returned NoneType; expected a list of Figures",
        "no_plot": "its plot is of type NoneType; expected a plotly figure",
    }
    lines = [f"figure '{kind}' of file {file} failed: {reason}" for kind, reason in reasons.items()]
    assert sorted(str(each.message) for each in caught) == sorted(lines)
    plain = page.replace("&#39;", "'")
    assert all(f"The {line}; each value is drawn by its axes instead." in plain for line in lines)


def test_an_experiment_that_fails_does_not_stop_the_others(file: Path) -> None:
    with pytest.warns(UserWarning, match=r"experiment 'no_plan' of file .* failed: KeyError: 'scale'; it is skipped"):
        found = select(all_=True)
    assert "cb_table_9" in [each.name for each in found] and "no_plan" not in [each.name for each in found]
    with pytest.raises(ExtensionError, match=r"experiment 'no_plan' of file .* failed: KeyError: 'scale'$"):
        select(["cb_table_9", "no_plan"])


def test_an_adapter_that_fails_is_named(file: Path) -> None:
    flat: nn.Module = extensions.resolve(f"{file}:Flat")()
    place = f"file {file} failed in blocks, line {line_of('    def blocks(model, flow): return model.layers')}"
    with pytest.raises(ExtensionError, match="Flat cannot be described: ") as caught:
        vitlab.describe(flat, 32)
    assert f"{place} (AttributeError: " in str(caught.value)


def test_a_data_set_reads_files_below_the_root(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    for index, grey in enumerate((0, 255)):
        Image.new("RGB", (32, 32), (grey, grey, grey)).save(tmp_path / f"photos/{index}.png")
    model = vitlab.load(SMALL, seed=0)
    images, labels = next(iter(vitlab.batches_for(model, "photos", root=tmp_path, classes={"a": 0, "b": 1})))
    assert labels.tolist() == [0, 1] and images[0].unique().numel() <= 3 and (images[1] > images[0]).all()
    monkeypatch.delenv("VITLAB_DATA", raising=False)
    with pytest.raises(VitlabError, match="photos is read from a folder; set root= or the .* VITLAB_DATA$"):
        vitlab.batches_for(model, "photos")
