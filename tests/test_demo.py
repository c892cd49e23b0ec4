"""The demo runs end to end, resumes, and its report opens in a browser."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from browser import browser_page, chromium  # noqa: F401 (fixtures)
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.demo import KINDS, MODELS, run

pytestmark = pytest.mark.slow


def demo(out: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "vitlab",
        "demo",
        "--out",
        str(out),
        "--epochs",
        "1",
        "--images",
        "96",
        "--json",
        "-q",
    ]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}  # another worker of the test run has the other core
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=alone)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("demo")
    return out, demo(out)


def test_a_folder_that_cannot_be_written_is_noticed_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VitlabError, match=r"demo cannot be written \(Not a directory\); give another --out"):
        run(tmp_path / "file" / "demo", show=False)


def test_three_models_are_trained_and_measured(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    assert len(result["sentences"]) == 3 and all(name in result["sentences"][0] for name in MODELS)
    for folder in (path for path in out.iterdir() if path.is_dir()):
        stored = [Measurement.load(path) for path in (folder / "measurements").rglob("*.json")]
        assert {"training", *(each.kind for each in stored)} == set(KINDS)
    assert Path(result["report"]).stat().st_size < 7e6


def raw(out: Path, kind: str) -> list[Measurement]:
    """The measurements of one kind: those of the plain ViT, with CB, and with TAP and ADL."""
    folders = [out / name.replace(" ", "_").replace("+", "and") for name in MODELS]
    return [Measurement.load(path) for folder in folders for path in sorted(folder.rglob(f"{kind}*.json"))]


#: A question, the title of the card that answers it (empty: the first screen), the words before the answer, the answer.
Question = tuple[str, str, str, str | float | bool]


def questions(out: Path) -> list[Question]:
    """Ten questions of a reader who knows ViTs and not vitlab, answered from the raw measurements."""
    plain, _, tap = raw(out, "adversarial")
    count, row = plain.provenance["images"], (plain.axes["attack"].index("pgd"), plain.axes["epsilon"].index(4.0))
    right = [np.asarray(each.values["correct"])[row].astype(bool) for each in (plain, tap)]
    gained, lost = int((right[1] & ~right[0]).sum()), int((right[0] & ~right[1]).sum())
    clear = gained + lost > 0 and bool(stats.binomtest(gained, gained + lost).pvalue < 0.05)
    first, second, _ = (np.exp(-each.values["nll_by_image"]) for each in raw(out, "calibration"))
    most = int(np.argmax(np.abs(first - second)))
    shown = f"{100 * first[most]:.0f} % → {100 * second[most]:.0f} %"
    strip = "Images on which plain ViT and ViT + CB differ most: probability of the label, plain ViT → ViT + CB"
    accuracy = 100 * float(np.mean(raw(out, "occlusion")[0].values["clean_correct"]))
    deep = " in the deep half of the layers, "
    attended, even = (
        float(np.mean([each.values[name][len(each.values[name]) // 2 :] for each in raw(out, kind)[:3]]))
        for kind, name in (("attention_distance", "attended"), ("attention_entropy", "normalised"))
    )
    return [
        ("Which model are the others compared with?", "", "", "Baseline: plain ViT."),
        ("What does TAP mean?", "", "", "TAP: token-aware average pooling"),
        ("Do the intervals cover other training seeds?", "", "One training run each:", "intervals do not cover"),
        ("On how many images were the models attacked?", "Adversarial", "", f"n = {count} images"),
        ("How many does the plain ViT still get right?", "Adversarial", "", f"{right[0].sum()} of {count} images"),
        ("Is the difference of TAP + ADL there clear?", "Adversarial", "Accuracy under PGD at ε = 4/255, %", clear),
        ("On which image do CB and the plain ViT differ most?", "Calibration", strip, shown),
        ("How often is the plain ViT right?", "Occlusion", "Accuracy on clean images, %", accuracy),
        ("How far does it attend?", "Attention distance", f"Attended distance per query{deep}image sides", attended),
        ("How even is that?", "Attention entropy", f"Entropy relative to its bound{deep}%", 100 * even),
    ]


def check(question: Question, cards: list[str]) -> None:
    """Find the answer: text soon after the words, the first number, or the second verdict, which is that of TAP."""
    _, title, before, answer = question
    card = next(each for each in cards if each.startswith(title))
    text = card[card.index(before) + len(before) :]
    if isinstance(answer, str):
        assert answer in (text[:80] if before else text), question
    elif isinstance(answer, bool):
        verdicts = re.findall(r"within the noise|noise not known|clear", text)
        assert (verdicts[1] == "clear") == answer, question
    else:
        printed = re.findall(r"[\d.]+", text)[0]
        digits = len(printed.partition(".")[2])
        assert float(printed) == pytest.approx(answer, abs=0.51 * 10.0**-digits), question


def cards_of(page: str) -> list[str]:
    """The text of the first screen and of each card."""
    shown = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL).partition("<main")[2]
    parts = re.split(r'<section class="card[^>]*>', shown)
    return [" ".join(html.unescape(re.sub("<[^>]+>", " ", each)).split()) for each in parts]


def test_ten_questions_are_answered_by_the_page(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    cards, asked = cards_of(Path(result["report"]).read_text(encoding="utf-8")), questions(out)
    assert len(asked) == 10
    for question in asked:
        check(question, cards)


def test_a_second_run_trains_and_measures_nothing_again(finished: tuple[Path, dict[str, Any]]) -> None:
    out, result = finished
    before = {path: path.stat().st_mtime_ns for path in out.rglob("measurements/*/*.*")}
    weights = {path: path.read_bytes() for path in out.rglob("model.safetensors")}
    assert demo(out)["sentences"] == result["sentences"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("measurements/*/*.*")} == before
    assert {path: path.read_bytes() for path in out.rglob("model.safetensors")} == weights


def test_the_report_opens_with_every_section_drawn(
    finished: tuple[Path, dict[str, Any]],
    browser_page: Any,  # noqa: F811
) -> None:
    browser_page.goto(Path(finished[1]["report"]).resolve().as_uri())
    titles = browser_page.locator("section .kind").evaluate_all("all => all.map(node => node.firstChild.textContent)")
    assert sorted(title.strip().lower() for title in titles) == sorted(kind.replace("_", " ") for kind in KINDS)
    browser_page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    figures = browser_page.locator("figure .plot")
    for index in range(figures.count()):
        figures.nth(index).scroll_into_view_if_needed()
        figures.nth(index).locator(".main-svg, canvas").first.wait_for(timeout=20_000)
    assert figures.count() >= len(KINDS)
