"""Pictures of experiments: the committed ones follow from their records, and show the numbers of paper and record."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.synthetic import effects_of, entry, layered
from experiments.test_contract import NAMES, example_of
from vitlab.core.experiment import Results
from vitlab.experiments.catalogue import experiment
from vitlab.experiments.pictures import _PICTURES, picture
from vitlab.experiments.record import read_records
from vitlab.experiments.record_numbers import results_of

RECORDS = Path(__file__).resolve().parents[2] / "docs/results/data/reproduce"
SVG = "{http://www.w3.org/2000/svg}"


def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDS / f"small/{name}.json").read_text(encoding="utf-8"))
    return found


def drawn(name: str) -> ElementTree.Element:
    return ElementTree.fromstring((RECORDS / f"small/{name}.svg").read_text(encoding="utf-8"))


def texts(root: ElementTree.Element, class_: str) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text") if class_ in each.get("class", "").split()]


def ours_by_row(root: ElementTree.Element) -> list[list[str]]:
    """Our numbers in a table, by row."""
    rows: dict[str, list[str]] = {}
    for each in root.iter(f"{SVG}text"):
        if each.get("class") == "ours end":
            rows.setdefault(each.get("y", ""), []).append(each.text or "")
    return list(rows.values())


def test_every_committed_picture_follows_from_its_record() -> None:
    records = read_records(RECORDS)
    assert {file.stem for file in RECORDS.glob("*/*.svg")} == {name for name, _ in records}
    for (name, scale), stored in records.items():
        expected = picture(experiment(name), results_of(stored["numbers"]), scale)
        assert (RECORDS / scale / f"{name}.svg").read_text(encoding="utf-8") == expected, name


@pytest.mark.parametrize("name", ["cb_table_s16", "cb_table_s17"])
def test_tables_have_the_papers_cells_in_order_and_our_counts(name: str) -> None:
    """Against the order of PAPER, which is the order of the paper's text, and the counts in the record."""
    root = drawn(name)
    printed = [each.value for each in experiment(name).published]
    cells = [text for text in texts(root, "paper") if text != "paper"]
    assert [None if cell == "–" else float(cell) for cell in cells] == printed
    counts = [entry["values"] for entry in record(name)["numbers"] if entry["job"]["procedure"] == "sizes"]
    expected = [each["added_macs"] or each["macs"] for each in counts]
    assert [f"{each / 1e6:.1f}" for each in expected] == [row[0] for row in ours_by_row(root)]


def test_table_1_has_flops_and_parameters() -> None:
    root = drawn("tapadl_table_1")
    cells = [float(text) for text in texts(root, "paper") if text != "paper"]
    assert cells == [each.value for each in experiment("tapadl_table_1").published]
    counts = [entry["values"] for entry in record("tapadl_table_1")["numbers"] if entry["job"]["procedure"] == "sizes"]
    pairs = [[f"{each['macs'] / 1e9:.1f}", f"{each['parameters'] / 1e6:.1f}"] for each in counts]
    assert [row[:2] for row in ours_by_row(root)] == pairs


TABLES = {
    "cb_table_1": "Acc@1 [%]",
    "cb_table_3": "Acc@1 [%]",
    "cb_table_4": "Acc@1 [%]",
    "cb_table_5": "Acc@1",
    "cb_table_s15": "Accuracy",
    "tapadl_table_2": "ImageNet",
    "tapadl_table_6": "ImageNet",
}


@pytest.mark.parametrize("name", list(TABLES))
def test_tables_have_the_papers_rows_and_our_accuracies(name: str) -> None:
    """Against PAPER, and the last epoch of the runs in the record."""
    root, published = drawn(name), experiment(name).published
    shown = [each.text for each in root.iter(f"{SVG}text")]
    rows = list(dict.fromkeys(each.row for each in published))
    assert [text for text in shown if text in rows] == rows, "in the order of the paper"
    column = [each.value for each in published if each.column == TABLES[name] and each.value is not None]
    assert {f"{value:.{2 if name == 'cb_table_s15' else 1}f}" for value in column} <= set(texts(root, "paper"))
    runs = [entry for entry in record(name)["numbers"] if entry["job"]["procedure"] == "training"]
    arms: dict[str, list[float]] = {}
    for run in runs:
        arms.setdefault(run["job"]["arm"], []).append(np.ravel(run["values"]["top1"])[-1])
    means = {f"{np.mean(values):.{2 if name == 'cb_table_s15' else 1}f}" for values in arms.values()}
    assert means <= {text for row in ours_by_row(root) for text in row} and means


def test_training_curves_end_at_the_numbers_of_the_record() -> None:
    """The last point of each curve, mapped back by the ticks of its panel, is the mean over the runs."""
    root = drawn("cb_fig_s11")
    entries = [entry for entry in record("cb_fig_s11")["numbers"] if entry["job"]["arm"] in ("plain", "cb")]
    frames = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "frame"]
    assert len(frames) == 4
    heads = [text for text in texts(root, "head") if text]
    assert heads == ["Top-1 accuracy [%]", "Top-5 accuracy [%]", "Training loss", "Evaluation loss"]
    lines = list(root.iter(f"{SVG}polyline"))[:8]  # two in each panel, without and with CB
    values = ("top1", "top5", "train_loss", "loss")
    for (value, frame), (plain, cb) in zip(zip(values, frames, strict=True), batched(lines, 2), strict=True):
        low, high = float(frame.get("y", "")), float(frame.get("y", "")) + float(frame.get("height", ""))
        ticks = [
            (float(text.get("y", "nan")) - 4, float(text.text or ""))
            for text in root.iter(f"{SVG}text")
            if text.get("class") == "soft small end"
            and low <= float(text.get("y", "nan")) - 4 <= high
            and 0 < float(frame.get("x", "")) - float(text.get("x", "nan")) < 20
        ]
        slope, offset = np.polyfit([y for y, _ in ticks], [number for _, number in ticks], 1)
        for line, arm in ((plain, "plain"), (cb, "cb")):
            last = float(line.get("points", "").split()[-1].partition(",")[2])
            runs = [entry["values"][value][-1] for entry in entries if entry["job"]["arm"] == arm]
            assert slope * last + offset == pytest.approx(np.mean(runs), abs=0.06 * abs(slope))


def batched(items: list[ElementTree.Element], size: int) -> list[list[ElementTree.Element]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def test_every_row_that_is_run_has_our_counts() -> None:
    rows = ours_by_row(drawn("tapadl_table_2"))
    assert len(rows) == 8 and min(map(len, rows)) >= 2, "quoted rows have none"


def test_every_committed_picture_is_drawn_like_its_table_or_figure() -> None:
    assert {name for name, _ in read_records(RECORDS)} <= set(_PICTURES)


def test_the_curve_of_figure_8_is_the_measured_one() -> None:
    """Pixels of the circles, mapped back by the labels of the axis, are the amplitudes of the record."""
    root = drawn("hdvw_fig_8")
    ticks = [
        (float(text.get("y", "nan")) - 4, float((text.text or "").replace("−", "-")))
        for text in root.iter(f"{SVG}text")
        if text.get("class") == "soft small end"
    ]
    slope, offset = np.polyfit([y for y, _ in ticks], [value for _, value in ticks], 1)
    circles = [float(circle.get("cy", "nan")) for circle in root.iter(f"{SVG}circle")]
    entries = results_of(record("hdvw_fig_8")["numbers"]).entries
    high = np.mean([found.values["high"] for _, found in entries], axis=0).reshape(-1, 3)
    expected = [*high[:, :2].reshape(-1), high[-1, 2]]
    np.testing.assert_allclose(slope * np.array(circles) + offset, expected, atol=2e-3)
    shaded = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "shade"]
    assert len(shaded) == len(high), "one area per MSA"


def test_block_plans_have_the_blocks_of_the_record() -> None:
    """Against the lists of the record: grey blocks are attention, with their heads; blue ones have a smaller output."""
    root = drawn("hdvw_fig_11")
    entries = [entry["values"] for entry in record("hdvw_fig_11")["numbers"] if entry["job"]["procedure"] == "blocks"]
    heads = [str(each) for entry in entries for each in entry["heads"] if each]
    blocks = [each.get("class") for each in root.iter(f"{SVG}rect") if "box" in each.get("class", "")]
    assert blocks.count("msa box") == len(heads) + 1, "and one in the legend"
    assert blocks.count("sub box") == 3 * len(entries) + 1
    assert [text for text in texts(root, "middle") if text] == heads


def test_figure_4_draws_the_mean_over_heads_and_parts() -> None:
    root = drawn("cb_fig_4")
    circles = [float(circle.get("cy", "nan")) for circle in root.iter(f"{SVG}circle")]
    entries = results_of(record("cb_fig_4")["numbers"]).entries
    mean = np.mean([found.values["mean"] for _, found in entries], axis=(0, 2))
    pixels = 340 - mean / 6 * 250  # the axis from 0 to 6 nats
    np.testing.assert_allclose(circles, pixels, atol=0.06)
    assert texts(root, "middle").count("not run at this scale") == 2


@pytest.mark.parametrize("name", [name for name in NAMES if name not in _PICTURES])
def test_other_experiments_show_their_claims(name: str) -> None:
    found = experiment(name)
    claim = found.claims[0]
    effects = effects_of(claim)["holds"]
    for results in (example_of(name)(claim, effects), Results()):
        root = ElementTree.fromstring(picture(found, results, "small"))
        shown = [each.text for each in root.iter(f"{SVG}text")]
        assert all(each.sentence in shown for each in found.claims)
    assert "not run" in " ".join(text or "" for text in shown)


@pytest.mark.parametrize("name", list(_PICTURES))
def test_pictures_without_results_show_the_claims(name: str) -> None:
    root = ElementTree.fromstring(picture(experiment(name), Results(), "full"))
    assert experiment(name).claims[0].sentence in [each.text for each in root.iter(f"{SVG}text")]


#: Those of Tables S16 and S17 are compared with the records.
DRAWN_TABLES = [name for name in _PICTURES if "_table_" in name and name not in ("cb_table_s16", "cb_table_s17")]
#: Claims whose number in the paper is not the difference of two cells.
NO_DIFFERENCE = {"best_on_most", "noise", *(f"evaluated_{name}" for name in ("top1", "mce"))}


def cells_of(root: ElementTree.Element) -> list[tuple[str, float, float | None, float]]:
    """The cells of a drawn table with a number of ours: row, place of the column, the paper's number, ours."""
    lines: dict[float, list[tuple[float, str, str]]] = {}
    for each in root.iter(f"{SVG}text"):
        place = (float(each.get("x", "nan")), each.get("class", ""), each.text or "")
        lines.setdefault(float(each.get("y", "nan")), []).append(place)
    found = []
    for line in lines.values():
        numbers = [each for each in line if each[1] in ("paper end", "ours end", "soft end")]
        label = "".join(text for _, class_, text in line if class_ == "")
        for (_, _, paper), (x, class_, ours) in zip(numbers[::2], numbers[1::2], strict=True):
            if class_ == "ours end":
                found.append((label, x, None if paper == "–" else float(paper), float(ours)))
    return found


@pytest.mark.parametrize("name", DRAWN_TABLES)
def test_our_numbers_are_beside_the_published_ones(name: str) -> None:
    """Synthetic results for one claim: of two cells that differ by its effect, the paper's differ by its number."""
    found = experiment(name)
    compared = 0
    for claim in found.claims:
        if claim.deterministic or claim.name in NO_DIFFERENCE or claim.name.endswith(": gap") or not claim.paper:
            continue
        root = ElementTree.fromstring(picture(found, example_of(name)(claim, [5.0, 5.0]), "full"))
        cells = cells_of(root)
        differences = [
            (own[2] - other[2]) * np.sign(own[3] - other[3])
            for own in cells
            for other in cells
            if own[2] is not None and other[2] is not None and own[3] > other[3]
            if abs(own[3] - other[3] - 5.0) < 0.06 and (own[1] == other[1] or own[0] == other[0])
        ]
        if not differences and len(cells) < 3:  # one of the two cells is not in the paper, or it has one number
            continue
        assert any(abs(abs(each) - claim.paper) < 0.011 for each in differences), (claim, cells)
        compared += 1
    assert compared, "no claim was compared"


@pytest.mark.parametrize("name", DRAWN_TABLES)
def test_tables_have_all_published_numbers(name: str) -> None:
    """At a scale with results each printed number is in the picture, rows in the order of the paper."""
    found = experiment(name)
    claim = next(each for each in found.claims if not each.deterministic)
    root = ElementTree.fromstring(picture(found, example_of(name)(claim, [1.0, 1.0]), "full"))
    shown = texts(root, "paper")
    for each in found.published:
        if (
            each.value is not None
            and not each.column.startswith(("additional", "ViT-S interval", "CB interval"))
            and each.runs
        ):
            assert {f"{each.value:.{digits}f}" for digits in range(3)} & set(shown), each


@pytest.mark.parametrize(
    ("name", "networks"), [("hdvw_fig_9", "resnet50 vit_tiny"), ("hdvw_fig_d1", "pit_tiny swin_tiny")]
)
def test_variances_are_drawn_at_their_axis_value(name: str, networks: str) -> None:
    """Circles, mapped back by the ticks of their panel, are the mean over two runs of a network."""
    given = {
        arm: np.array([1.0, 3.0, 2.0, 6.0]) * factor for arm, factor in zip(networks.split(), (1, 10), strict=True)
    }
    places = {"place": ("1.0 in", "1.0 mid", "1.0 out", "2.0 in"), "step": ("1.0 MSA", "1.0 MLP")}
    grid = ("place", "side"), [[4, 4]] * 3 + [[2, 2]]
    results = Results(
        [
            entry(
                arm,
                layered(
                    "feature_variance",
                    places,
                    variance=(("place",), values + add),
                    change=(("step",), [0, 0]),
                    grid=grid,
                ),
                i,
            )
            for arm, values in given.items()
            for i, add in enumerate((-0.5, 0.5))
        ]
    )
    root = ElementTree.fromstring(picture(experiment(name), results, "small"))
    frames = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "frame"]
    circles = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in root.iter(f"{SVG}circle")]
    assert len(frames) == 2 and len(circles) == 8
    areas = [
        (each.get("class"), float(each.get("x", "")))
        for each in root.iter(f"{SVG}rect")
        if each.get("class") in ("shade", "sub")
    ]
    places_of = {x for x, _ in circles}
    assert [kind for kind, _ in areas] == ["sub", "shade"] * 2, "subsampling after the third place, MSA after the first"
    assert {x for _, x in areas} <= places_of
    for frame, values in zip(frames, given.values(), strict=True):
        left, right = float(frame.get("x", "")), float(frame.get("x", "")) + float(frame.get("width", ""))
        ticks = [
            (float(text.get("y", "nan")) - 4, float(text.text or ""))
            for text in root.iter(f"{SVG}text")
            if text.get("class") == "soft small end" and 0 < left - float(text.get("x", "nan")) < 20
        ]
        slope, offset = np.polyfit([y for y, _ in ticks], [number for _, number in ticks], 1)
        own = [slope * y + offset for x, y in circles if left <= x <= right]
        np.testing.assert_allclose(own, values, atol=0.01 * values.max())
