"""The evidence tables: every verdict from synthetic runs, numbers against scipy, and the committed page."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from vitlab.core.errors import VitlabError
from vitlab.core.verdicts import OUTCOMES

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "studies"))

from evidence.claims import CLAIMS, with_part  # noqa: E402
from evidence.collecting import collect  # noqa: E402
from evidence.comparing import by_arm, effects, judge_all  # noqa: E402
from evidence.conditions import CONDITIONS, Job, all_jobs, recipe_of  # noqa: E402
from evidence.costs import expected_minutes, minutes, missing_jobs  # noqa: E402
from evidence.metrics import METRICS, values_of  # noqa: E402
from evidence.picture import draw, points  # noqa: E402
from evidence.tables import page, write  # noqa: E402

RESULTS = ROOT / "docs/results"
NAME = "cifar100_evidence"


def run_of(job: Job, top1: float, entropy: float = 3.5) -> dict[str, Any]:
    """A run as the runner writes it: two layers of two heads, the deep one with the given entropy."""

    def measured(images: int = 1000, axes: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
        return {**values, "axes": axes or {}, "settings": {}, "images": images, "seconds": 0.1}

    found = {
        "calibration": measured(10_000, nll=1.5, ece=0.05),
        "attention_entropy": measured(mean=[[3.0, 3.2], [entropy, entropy]], class_row=[[1.0, 1.0], [2.0, 4.0]]),
        "attention_diversity": measured(head_similarity=[0.5, 0.7]),
        "diversified_rows": measured(row_similarity=[[0.2], [0.4]]),
        "token_overfocus": measured(gini_of_mean=[0.1, 0.3]),
        "attention_stability": measured(overall=0.9),
        "corruptions": measured(accuracy=[[0.5, 0.3], [0.6, 0.2]], mce=0.75),
        "occlusion": measured(accuracy=[0.4, 0.3], axes={"mask": ["centre 0.5", "patches 0.5"]}),
        "adversarial": measured(accuracy=[[0.2], [0.1]], axes={"attack": ["fgsm", "pgd"], "epsilon": [1.0]}),
    }
    if job.arm.name == "cb_s":
        found["broadcast_scale"] = measured(ratio=[0.1, 0.2], mean=[0.3, -0.4], mean_absolute=[0.5, 0.6])
    return {
        **{"condition": job.condition.name, "arm": job.arm.name, "seed": job.seed, "top1": top1},
        **{"holdout": job.condition.holdout, "epochs": recipe_of(job).epochs, "images_per_second": 50_000},
        "recipe": repr(recipe_of(job)),
        "measured": found,
        "seconds": {"training": 2.0 * recipe_of(job).epochs, "measuring": 20.0},
        "provenance": {
            **{"device": "a GPU", "vitlab": "0.1.0", "versions": {"torch": "2.0"}, "data": str(job.condition.holdout)},
            "command": "studies/cifar100_evidence.py --out /somewhere/evidence --workers 2",
        },
    }


def store(folder: Path, *runs: dict[str, Any]) -> Path:
    for run in runs:
        name = f"{run['condition']}-{run['arm']}-{run['seed']}"
        (folder / f"{name}.json").write_text(json.dumps(run), encoding="utf-8")
    return folder


def gains(asked: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Runs of arms with these gains in top-1 over their plain runs, whose accuracy varies much more."""
    found = []
    for text, values in asked.items():
        condition = next(job.condition for job in all_jobs([text]))
        baseline = all_jobs([f"{condition.baseline or condition.name}-plain"])
        pairs = zip(baseline, all_jobs([text]), values, strict=False)
        for index, (plain, job, gain) in enumerate(pairs):
            found += [run_of(plain, 60.0 + 3 * index), run_of(job, 60.0 + 3 * index + gain, 3.5 - gain / 10)]
    return found


def outcome_of(data: dict[str, Any], claim: str, label: str) -> str:
    return next(
        each.verdict.outcome
        for each in judge_all(by_arm(data))
        if each.claim.name == claim and each.case.label == label
    )


SIX_TENTHS = {  # half of the 1.2 points of CB's Table 2
    "holds": [0.9, 1.0, 1.1, 0.95, 1.05],
    "holds, smaller than published": [0.28, 0.30, 0.32, 0.29, 0.31],
    "does not hold": [-0.1, 0.1, 0.2, -0.2, 0.0],
    "inconclusive": [-1.0, 3.0, 0.5, 2.0, -0.5],
    "not run": [],
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_verdict_occurs(outcome: str, tmp_path: Path) -> None:
    runs = gains({"epochs50-cb": SIX_TENTHS[outcome], "one_head-cb": [1.0]})
    data = collect(store(tmp_path, *runs))
    assert outcome_of(data, "cb_top1", "epochs50: cb") == outcome
    row = next(line for line in page(data).splitlines() if line.startswith("| epochs50: cb | +1.2 | 0.6 |"))
    assert row.endswith(f"| {outcome} |")


def test_a_claimed_fall_is_judged_by_its_sign(tmp_path: Path) -> None:
    """Entropy falls by a tenth of the gain: the claim holds where the gain is positive."""
    gained = [0.9, 1.0, 1.1, 0.95, 1.05]
    data = collect(store(tmp_path, *gains({"epochs50-cb": gained, "mix_all-cb": [-gain for gain in gained]})))
    assert outcome_of(data, "cb_entropy", "epochs50: cb") == "holds"
    assert outcome_of(data, "cb_entropy", "mix_all: cb") == "does not hold"


def test_numbers_of_the_page_against_scipy(tmp_path: Path) -> None:
    values = {"epochs50-cb": [0.5, 0.9, 1.6, 0.8], "mix_all-cb": [0.1, 0.7, -0.2], "centre-cb": [0.4, 0.9]}
    text = page(collect(store(tmp_path, *gains(values))))
    accuracy = text.split("### Top-1 accuracy")[1].split("###")[0]
    rows = {
        line.split(" | ")[0][2:]: line.strip("| ").split(" | ") for line in accuracy.splitlines() if " | cb | " in line
    }
    assert set(rows) == {"epochs50", "mix_all", "centre"}
    p = {name: stats.ttest_1samp(each, 0.0).pvalue for name, each in values.items()}
    adjusted, largest = {}, 0.0
    for rank, name in enumerate(sorted(p, key=lambda name: p[name])):
        largest = max(largest, min(1.0, (6 - rank) * p[name]))  # six conditions are planned
        adjusted[name.split("-")[0]] = largest
    for name, each in values.items():
        cells = rows[name.split("-")[0]]
        theirs = stats.ttest_1samp(each, 0.0).confidence_interval(0.95)
        assert cells[4:6] == [f"{np.mean(each):+.2f}", f"{theirs.low:+.2f} to {theirs.high:+.2f}"]
        assert cells[6] == f"{len(each)} of {8 if name == 'centre-cb' else 5}"
        assert float(cells[7]) == pytest.approx(adjusted[cells[0]], abs=1e-4)
        assert float(cells[2]) == pytest.approx(60 + 3 * (len(each) - 1) / 2)
        assert float(cells[3]) - float(cells[2]) == pytest.approx(np.mean(each), abs=0.011)


def test_a_verdict_changed_by_the_correction_is_marked(tmp_path: Path) -> None:
    weak = [0.3, 0.9, 0.1, 0.6, 0.2]
    assert 0.05 / 6 < stats.ttest_1samp(weak, 0.0).pvalue < 0.05  # below 0.05 by itself, not as one of six planned
    text = page(collect(store(tmp_path, *gains({"epochs50-cb": weak}))))
    assert next(line for line in text.splitlines() if line.startswith("| epochs50 | cb | ")).endswith("| holds † |")


def test_verdicts_need_five_pairs_and_are_interim_until_complete(tmp_path: Path) -> None:
    runs = gains({"epochs50-cb": [0.9, 1.0, 1.1, 0.95], "centre-cb": [0.9, 1.0, 1.1, 0.95, 1.05]})
    text = page(collect(store(tmp_path, *runs)))
    ends = {row.split(" | ")[0]: row for row in text.splitlines() if " | 0.6 | " in row}
    assert ends["| epochs50: cb"].endswith("| inconclusive |") and "| 4 of 5 |" in ends["| epochs50: cb"]
    assert ends["| centre: cb"].endswith("| holds ‡ |") and "| 5 of 8 |" in ends["| centre: cb"]


def test_metrics_of_a_run() -> None:
    """Each by hand from the values in `run_of`."""
    found = values_of(run_of(all_jobs(["centre"])[0], 61.0, entropy=3.25))
    assert found == pytest.approx(
        {
            **{"top1": 61.0, "nll": 1.5, "ece": 5.0, "entropy_deep": 3.25, "class_entropy_deep": 3.0},
            **{"corruption_error": 60.0, "mce": 75.0, "stability": 0.9, "head_similarity": 0.6, "overfocus": 0.2},
            **{"row_similarity": 0.3, "occlusion": 40.0, "occlusion_patches": 30.0, "fgsm": 20.0, "pgd": 10.0},
        }
    )
    assert set(found) == {metric.name for metric in METRICS}


def test_missing_measurements_are_omitted() -> None:
    run = run_of(all_jobs(["one_head"])[0], 61.0)
    run["measured"]["attention_diversity"]["head_similarity"] = [None, None]
    del run["measured"]["adversarial"]
    assert {metric.name for metric in METRICS} - set(values_of(run)) == {"head_similarity", "fgsm", "pgd"}


def test_pairs_need_both_runs_of_a_seed(tmp_path: Path) -> None:
    plain, fitted = all_jobs(["centre-plain"]), all_jobs(["centre-cb"])
    runs = [run_of(plain[0], 60.0), run_of(plain[1], 61.0), run_of(fitted[1], 63.0), run_of(fitted[2], 64.0)]
    data = collect(store(tmp_path, *runs))
    assert effects(by_arm(data), "top1", with_part("centre", "cb")) == {101: 2.0}


def test_claims_name_arms_and_metrics_that_exist() -> None:
    arms = {(condition.name, arm.name) for condition in CONDITIONS for arm in condition.arms}
    for claim in CLAIMS:
        assert claim.metric in {metric.name for metric in METRICS} and claim.sign in (1, -1)
        for case in claim.cases:
            assert {term[1:] for term in case.terms} <= arms
            assert sum(term[0] for term in case.terms) == 0
            assert all(not condition.exploratory for condition in CONDITIONS if condition.name in str(case.terms))


def test_published_effects_are_the_differences_of_their_sources() -> None:
    """`72.2 → 73.4` in a source is the effect 1.2, in the direction of the claim."""
    checked = 0
    for claim in CLAIMS:
        for case in claim.cases:
            numbers = re.search(r"([\d.]+) → ([\d.]+)$", case.source)
            assert (numbers is None) == (case.paper is None), case
            if numbers:
                fell, rose = map(float, numbers.groups())
                assert case.paper == pytest.approx(abs(rose - fell)) and (rose > fell) == (claim.sign > 0)
                checked += 1
    assert checked > 15


def test_costs_of_what_is_missing(tmp_path: Path) -> None:
    """2 seconds an epoch and 20 of measuring, of two processes that share the device."""
    data = collect(store(tmp_path, *gains({"centre-cb": [1.0]})))
    assert minutes(data["runs"][0]) == pytest.approx((200 + 20) / 2 / 60)
    missing = missing_jobs(data["runs"])
    assert len(missing) == len(all_jobs()) - 2
    total = sum(2.0 * recipe_of(job).epochs + 20 for job in missing) / 2 / 60
    assert sum(expected_minutes(job, data["runs"]) for job in missing) == pytest.approx(total)
    assert f"{len(missing)} runs, about {total:.0f} GPU minutes" in page(data)


def test_scales_by_depth(tmp_path: Path) -> None:
    text = page(collect(store(tmp_path, *gains({"places-cb_s": [0.5, 0.6]}))))
    assert "| mean λ | 0.3 | -0.4 |" in text and "mean over seeds (2)" in text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"epochs": 1}, "leave trial runs out"),
        ({"seed": 999}, "names"),
        ({"holdout": 5}, "held out"),
    ],
)
def test_runs_that_are_not_comparable_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    run = run_of(all_jobs(["centre"])[0], 60.0) | change
    (tmp_path / "centre-plain-100.json").write_text(json.dumps(run), encoding="utf-8")
    with pytest.raises(VitlabError, match=message):
        collect(tmp_path)


def test_other_images_are_refused(tmp_path: Path) -> None:
    one, other = (run_of(job, 60.0) for job in all_jobs(["centre-plain"])[:2])
    other["measured"]["corruptions"]["images"] = 32
    with pytest.raises(VitlabError, match="differ in corruptions"):
        collect(store(tmp_path, one, other))


def test_another_recipe_is_refused(tmp_path: Path) -> None:
    one, other = (run_of(job, 60.0) for job in all_jobs(["centre-plain"])[:2])
    collect(store(tmp_path, one, other))
    other["recipe"] = other["recipe"].replace("batch_size=512", "batch_size=256")
    with pytest.raises(VitlabError, match="differ in recipe of centre-plain"):
        collect(store(tmp_path, one, other))


def test_runs_without_a_newer_setting_are_comparable(tmp_path: Path) -> None:
    """The text of a stored recipe lacks settings that recipes gained later; their defaults apply."""
    one, other = (run_of(job, 60.0) for job in all_jobs(["centre-plain"])[:2])
    assert "task='classification'" in one["recipe"]
    one["recipe"] = one["recipe"].replace("task='classification', ", "")
    assert len(collect(store(tmp_path, one, other))["runs"]) == 2
    other["recipe"] = other["recipe"].replace("task='classification'", "task='segmentation'")
    with pytest.raises(VitlabError, match="differ in recipe of centre-plain"):
        collect(store(tmp_path, one, other))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="holds no results"):
        collect(tmp_path)


def test_the_picture_has_a_mark_at_every_point(tmp_path: Path) -> None:
    runs = by_arm(
        collect(
            store(tmp_path, *gains({"centre-cb": [1.0, 1.2, 0.9], "places-gate": [-0.4], "tapadl-adl": [0.1, 0.3]}))
        )
    )
    found = points(runs)
    assert [(point.label, point.kind) for point in found] == [
        ("centre: cb", "schedule"),
        ("places: gate", "form"),
        ("tapadl: adl", "tapadl"),
    ]
    assert found[0].gain[0] == pytest.approx(3.1 / 3) and found[0].drop[0] == pytest.approx(0.31 / 3)
    root = ElementTree.fromstring(draw(runs))
    shapes = [node for node in root if "mark" in node.get("class", "")]
    assert len(shapes) == 2 * len(found)  # in the plot and in the legend
    assert len([node for node in root if node.get("class", "").startswith("bar")]) == 4  # one pair has no interval


def test_writing_twice_gives_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    data = collect(store(tmp_path / "runs", *gains({"centre-cb": [1.0, 1.2]})))
    write(data, tmp_path / "first")
    write(json.loads((tmp_path / f"first/data/{NAME}.json").read_text(encoding="utf-8")), tmp_path / "second")
    for name in (f"data/{NAME}.json", f"{NAME}.md", f"{NAME}.svg"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert "/somewhere" not in (tmp_path / f"first/data/{NAME}.json").read_text(encoding="utf-8")


@pytest.mark.skipif(not (RESULTS / f"data/{NAME}.json").exists(), reason="no results are committed yet")
def test_the_committed_page_and_picture_follow_from_the_committed_data() -> None:
    data = json.loads((RESULTS / f"data/{NAME}.json").read_text(encoding="utf-8"))
    assert (RESULTS / f"{NAME}.md").read_text(encoding="utf-8") == page(data)
    assert (RESULTS / f"{NAME}.svg").read_text(encoding="utf-8") == draw(by_arm(data))
