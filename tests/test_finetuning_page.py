"""The page on fine-tuning: it follows from the committed runs, its numbers equal scipy's, other runs raise."""

from __future__ import annotations

import json
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.reporting.label_maps import class_colour

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "studies"))

from evidence.finetuning_picture import draw, drawn  # noqa: E402
from evidence.finetuning_results import load  # noqa: E402
from evidence.finetuning_scenes import scenes  # noqa: E402
from evidence.finetuning_tables import page  # noqa: E402

RESULTS = ROOT / "docs/results"
RUNS = RESULTS / "data/finetuning"


def values(experiment: str, arm: str, *path: str | int) -> np.ndarray:
    """A number of the committed files, by seed."""
    found = []
    for seed in range(3):
        value = json.loads((RUNS / experiment / f"{arm}-{seed}.json").read_text(encoding="utf-8"))
        for key in path:
            value = value[key]
        found.append(float(np.mean(value)))
    return np.array(found)


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the committed page."""
    text = (RESULTS / "finetuning.md").read_text(encoding="utf-8").replace("−", "-").replace("*", "")
    section = text.split(f"{heading}\n")[1].split("\n#")[0]
    return [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+", text)]


def expected(plain: np.ndarray, other: np.ndarray) -> list[float]:
    """Mean difference and 95 % interval by scipy's paired test."""
    test = stats.ttest_rel(other, plain)
    return [float((other - plain).mean()), *map(float, test.confidence_interval(0.95))]


def test_the_committed_page_and_picture_follow_from_the_committed_runs() -> None:
    runs = load(RUNS)
    assert (RESULTS / "finetuning.md").read_text(encoding="utf-8") == page(runs)
    assert (RESULTS / "finetuning.svg").read_text(encoding="utf-8") == draw(runs)


@pytest.mark.parametrize(
    "first, experiment, path, scale",
    [
        (0, "deit_tiny_cifar100", ("top1",), 1),
        (4, "deit_tiny_cifar100", ("nll",), 1),
        (8, "deit_tiny_cifar100", ("corruptions", "accuracy"), 100),
        (12, "camvid_upernet", ("context_broadcasting", "clean_miou"), 100),
        (20, "camvid_upernet", ("context_broadcasting", "corruption_miou"), 100),
        (24, "camvid_upernet", ("cityscapes_c", "miou"), 100),  # each corruption has three severities
    ],
)
def test_rows_of_the_first_table_are_paired_tests(first: int, experiment: str, path: tuple, scale: float) -> None:
    table = rows("## Results")
    plain = scale * values(experiment, "plain", *path)
    digits = 1e-4 if path == ("nll",) else 1e-2
    assert numbers(table[first][3])[0] == pytest.approx(plain.mean(), abs=0.51 * digits)
    for row, arm in zip(table[first + 1 : first + 4], ("cb_s", "tap", "adl"), strict=True):
        want = expected(plain, scale * values(experiment, arm, *path))
        assert numbers(row[4] + row[5]) == pytest.approx(want, abs=0.51 * digits), row
        assert ("unclear" in row[7]) == (want[1] < 0 < want[2])


def test_p_values_are_adjusted_over_all_comparisons() -> None:
    """Holm by hand: the smallest of 21 p values is multiplied by 21."""
    table = rows("## Results")
    compared = [row for row in table if row[6].strip()]
    assert len(compared) == 21
    plain, adl = (values("camvid_upernet", arm, "corrupted") for arm in ("plain", "adl"))
    smallest = stats.ttest_rel(adl, plain).pvalue
    assert float(table[27][6]) == min(float(row[6]) for row in compared) == pytest.approx(21 * smallest, abs=6e-4)


@pytest.mark.parametrize(
    "heading, suite, axis, name",
    [
        ("### CamVid: mIoU by group of Cityscapes-C (%)", "cityscapes_c", "group", "group_miou"),
        ("### CamVid: IoU by class on clean images (%)", "cityscapes_c", "class", "clean_class_iou"),
    ],
)
def test_rows_of_the_other_tables(heading: str, suite: str, axis: str, name: str) -> None:
    first = json.loads((RUNS / "camvid_upernet/plain-0.json").read_text(encoding="utf-8"))
    table = rows(heading)
    assert [row[0].strip() for row in table] == first[suite]["axes"][axis]
    for index, row in enumerate(table):
        plain = 100 * values("camvid_upernet", "plain", suite, name, index)
        for cell, arm in zip(row[2:], ("cb_s", "tap", "adl"), strict=True):
            want = expected(plain, 100 * values("camvid_upernet", arm, suite, name, index))
            assert numbers(cell) == pytest.approx(want, abs=0.0051)


def test_the_picture_has_an_interval_for_every_variant() -> None:
    runs = load(RUNS)
    root = ElementTree.fromstring(draw(runs))
    bars = [node for node in root if node.get("class", "").startswith("bar")]
    assert len(bars) == 3 * len(drawn(runs)) == 30
    zero = next(float(node.get("x1", "")) for node in root if node.get("class") == "zero")
    adl = bars[2]  # top-1 of ADL: its interval lies below 0
    assert float(adl.get("x1", "")) < float(adl.get("x2", "")) < zero


def test_runs_that_cannot_be_compared_raise(tmp_path: Path) -> None:
    shutil.copytree(RUNS, tmp_path / "runs")
    path = tmp_path / "runs/camvid_upernet/tap-1.json"
    run = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(run | {"recipe": run["recipe"].replace("epochs=40", "epochs=20")}), encoding="utf-8")
    with pytest.raises(VitlabError, match="differ in data, schedule or conditions"):
        load(tmp_path / "runs")
    path.write_text(json.dumps(run | {"seed": 7}), encoding="utf-8")
    with pytest.raises(VitlabError, match="holds the run tap-7"):
        load(tmp_path / "runs")
    path.unlink()
    with pytest.raises(VitlabError, match="other seeds"):
        load(tmp_path / "runs")


def test_scenes_show_predictions_in_the_colours_of_their_classes(tmp_path: Path) -> None:
    for index, arm in enumerate(("plain", "cb_s", "tap", "adl")):
        pictures = {
            "example_image": np.full((1, 20, 60, 3), 100).tolist(),
            "example_truth": np.full((1, 20, 60), 255).tolist(),
            "example_prediction": np.full((1, 20, 60), index).tolist(),
        }
        run = {"cityscapes_c": {"axes": {"class": ["a", "b", "c", "d"]}}, "pictures": pictures}
        (tmp_path / f"{arm}-0.json").write_text(json.dumps(run), encoding="utf-8")
    sheet = scenes(tmp_path)
    middle = [sheet.getpixel((8 + column * 66 + 30, 8 + 24 + 10)) for column in range(6)]
    assert middle == [(100, 100, 100), (0, 0, 0), *(class_colour(index) for index in range(4))]


def test_the_committed_scenes_are_small() -> None:
    path = RESULTS / "finetuning.png"
    assert path.stat().st_size < 400_000
    with Image.open(path) as picture:
        assert picture.width > picture.height > 300
