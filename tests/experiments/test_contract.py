"""Every experiment file has what `core/experiment.py` requires, and no verdict is constant.

Experiments are found in the package, so that a new file is tested without a change here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from experiments.paper_text import TEXTS, captions_of, missing_rows, region_of, tables_of, title_of
from experiments.synthetic import effects_of
from vitlab.core import plugins
from vitlab.core.experiment import SCALES, Claim, Job, Published, Results
from vitlab.experiments.catalogue import experiment

ROOT = Path(__file__).resolve().parents[2]
NAMES = list(plugins.experiments())
every = pytest.mark.parametrize("name", NAMES)

#: Rows and columns that are no cells of their own: numbers of the text, a cell of several rows, intervals after ±.
APART = {
    "cb_table_1": ("additional parameters [%]",),
    "cb_table_6": ("# Params [M]",),
    "cb_table_9": ("ViT-S interval", "CB interval"),
    "cb_table_10": ("ViLT, as reported by its authors",),
}


@cache
def example_of(name: str) -> Callable[..., Results]:
    """The function `example` of an experiment's test file, or of `examples.py` for all experiments of a paper."""
    path = experiment(name).path.split(".")
    folder = ROOT / "tests/experiments" / path[-2]
    if (folder / "examples.py").is_file():
        return partial(importlib.import_module(f"experiments.{path[-2]}.examples").example, path[-1])
    file = folder / f"test_{path[-1]}.py"
    assert file.is_file(), f"{name} has no test file {file.relative_to(ROOT)}"
    spec = importlib.util.spec_from_file_location(f"example_of_{name}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., Results] = module.example
    return found


def papers() -> Path:
    """The folder with the texts of the papers."""
    folder = os.environ.get("VITLAB_PAPERS")
    if not folder:
        pytest.skip("no texts of the papers: set VITLAB_PAPERS to their folder")
    return Path(folder)


def test_every_table_and_figure_has_an_experiment() -> None:
    """The tables and figures of the papers but diagrams, and two statements of HDVW's text."""
    figures = {
        "cb": "3 4 5 7 8 9 10 s11 s12",
        "hdvw": "1 2 3 4 5 6 7 8 9 10 11 12 c1 c2 c3 c4 c5 c6 c7 d1 d2 d3 d4 d5 e1 f1",
        "tapadl": "1 3 4 5 6 7",
    }
    tables = {"cb": "1 2 3 4 5 6 7 8 9 10 11 s12 s13 s14 s15 s16 s17", "tapadl": "1 2 3 4 5 6 7"}
    expected = {f"{paper}_fig_{each}" for paper, numbers in figures.items() for each in numbers.split()}
    expected |= {f"{paper}_table_{each}" for paper, numbers in tables.items() for each in numbers.split()}
    assert len(expected) == 65
    assert expected | {"hdvw_spatial_smoothing", "hdvw_throughput"} <= set(NAMES)


@pytest.mark.parametrize(
    ("paper", "diagrams"), [("cb", ["Figure 1", "Figure 2", "Figure 6"]), ("hdvw", []), ("tapadl", ["Figure 2"])]
)
def test_every_caption_of_a_paper_has_an_experiment(paper: str, diagrams: list[str]) -> None:
    """Some captions of HDVW are missing in its text: these figures are known from the text that cites them."""
    captions = captions_of(papers() / TEXTS[paper][0])
    own = {title_of(name) for name in NAMES if name.startswith(f"{paper}_")} - {""}
    assert len(captions) >= 13 and captions - own == set(diagrams)


@every
def test_an_experiment_is_complete(name: str) -> None:
    found = experiment(name)
    assert found.title and all(isinstance(number, Published) for number in found.published)
    assert found.claims and all(isinstance(claim, Claim) for claim in found.claims)
    for values in ([claim.name for claim in found.claims], [claim.sentence for claim in found.claims]):
        assert len(values) == len(set(values))
    for claim in found.claims:
        assert claim.deterministic or (claim.paper or 0) >= 0, f"{claim.name}: an effect agrees with the claim if > 0"
        assert claim.smallest is None or claim.smallest >= 0
    rows = [(number.row, number.column) for number in found.published]
    assert len(rows) == len(set(rows)), "two numbers for one cell of the table"


@every
def test_an_experiment_imports_core_only(name: str) -> None:
    found = experiment(name)
    folder = ".".join(found.path.split(".")[:-1])
    for node in ast.walk(ast.parse((ROOT / found.file).read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            assert module.split(".")[0] not in ("torch", "timm", "torchvision"), f"{name} imports {module}"
            assert not module.startswith("vitlab") or module.startswith(("vitlab.core", folder)), module


@every
def test_jobs_have_unique_keys(name: str) -> None:
    """Jobs of an experiment have different identities, and each measurement of an arm is found by its seed."""
    for scale in SCALES:
        jobs = experiment(name).plan(scale)
        assert all(isinstance(job, Job) for job in jobs)
        identities = [(job.arm, job.seed, job.procedure, job.data, job.snapshot, job.images) for job in jobs]
        assert len(identities) == len(set(identities)), f"{name} at {scale}: two jobs with the same arm"
    assert experiment(name).plan("smoke"), f"{name} has no jobs at smoke"


@every
def test_no_claim_of_a_change_has_a_published_change_of_zero(name: str) -> None:
    """A statistical claim says that something is higher or lower: the paper's number must agree."""
    assert [claim.name for claim in experiment(name).claims if not claim.deterministic and claim.paper == 0] == []


@every
def test_without_results_verdicts_are_not_run(name: str) -> None:
    assert {verdict.outcome for verdict in experiment(name).check(Results())} == {"not run"}


@every
def test_every_claim_can_have_every_outcome(name: str) -> None:
    found = experiment(name)
    for index, claim in enumerate(found.claims):
        for outcome, effects in effects_of(claim).items():
            verdict = found.check(example_of(name)(claim, effects))[index]
            expected = {outcome, "holds, smaller than published"} if outcome == "holds" else {outcome}
            assert verdict.outcome in expected, f"{claim.name} with effects {effects}: {verdict}"


@every
def test_published_numbers_are_in_the_paper(name: str) -> None:
    """Each number occurs in the rows or the caption of its table or figure, or in a paragraph that cites it."""
    printed = numbers_of(region_of(name, papers()))
    for number in experiment(name).published:
        if number.value is not None:
            assert abs(number.value) in printed, f"{number} is not in the text of {title_of(name) or name}"


@pytest.mark.parametrize("name", [name for name in NAMES if title_of(name).startswith("Table")])
def test_published_tables_are_those_of_the_paper(name: str) -> None:
    """Every number is in its column of the row with its label."""
    apart = APART.get(name, ())
    numbers = [each for each in experiment(name).published if each.row not in apart and each.column not in apart]
    missing = min((missing_rows(numbers, table) for table in tables_of(name, papers())), key=len)
    assert numbers and missing == []


def numbers_of(text: str) -> set[float]:
    """All numbers of a text without their signs."""
    return {float(number) for number in re.findall(r"\d*\.?\d+", text.replace(",", ""))}


def test_the_region_of_a_table_has_only_its_own_numbers(tmp_path: Path) -> None:
    """A text written by hand: the rows of another table, and paragraphs that cite it, do not count."""
    text = "M\tAcc\nA\t1.5\n\nTable 1. First 2.5.\n\nSee Table 1, 3.5.\n\nTable 11 has 4.5.\n\nM\tAcc\nB\t5.5\n\n"
    (tmp_path / "robust_token_attention.txt").write_text(text + "Table 2. Second 6.5.", encoding="utf-8")
    assert {number for number in numbers_of(region_of("tapadl_table_1", tmp_path)) if number % 1} == {1.5, 2.5, 3.5}
    assert {number for number in numbers_of(region_of("tapadl_table_2", tmp_path)) if number % 1} == {5.5, 6.5}


@pytest.mark.parametrize("change", ["columns", "rows", "labels", "number"])
def test_a_table_with_a_mistake_differs_from_the_text(change: str) -> None:
    cells = [["Model", "", "x", "y"], ["ViT-S [3]", "X", "1", "2"], ["+ CB<sub>S</sub>", "✓", "<b>3</b> (+2)", "4"]]
    right = {("ViT-S", "x"): 1.0, ("ViT-S", "y"): 2.0, ("ViT-S + CB_S", "x"): 3.0, ("ViT-S + CB_S", "y"): 4.0}
    wrong = {
        "columns": dict(zip(right, (2.0, 1.0, 4.0, 3.0), strict=True)),
        "rows": dict(zip(right, (3.0, 4.0, 1.0, 2.0), strict=True)),
        "labels": {(row.replace("_S", ""), column): value for (row, column), value in right.items()},
        "number": {**right, ("ViT-S", "y"): 2.5},
    }[change]
    for numbers, same in ((right, True), (wrong, False)):
        published = [Published(*place, value) for place, value in numbers.items()]
        assert (missing_rows(published, cells) == []) == same
