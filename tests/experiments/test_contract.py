"""Every experiment file has what `core/experiment.py` says, and no verdict is constant.

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

from experiments.synthetic import effects_of
from vitlab.core import plugins
from vitlab.core.experiment import SCALES, Claim, Job, Published, Results
from vitlab.experiments.catalogue import experiment

ROOT = Path(__file__).resolve().parents[2]
NAMES = list(plugins.experiments())
every = pytest.mark.parametrize("name", NAMES)

#: The texts of the papers, in the folder VITLAB_PAPERS.
TEXTS = {
    "cb": ("context_broadcasting.txt", "context_broadcasting_supplement.txt"),
    "hdvw": ("how_do_vits_work.txt",),
    "tapadl": ("robust_token_attention.txt",),
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
def test_jobs_are_told_apart(name: str) -> None:
    """Jobs of an experiment have different identities, and each measurement of an arm is found by its seed."""
    for scale in SCALES:
        jobs = experiment(name).plan(scale)
        assert all(isinstance(job, Job) for job in jobs)
        identities = [(job.arm, job.seed, job.procedure, job.data, job.snapshot, job.images) for job in jobs]
        assert len(identities) == len(set(identities)), f"{name} at {scale}: two jobs with the same arm"
    assert experiment(name).plan("smoke"), f"{name} has no jobs at smoke"


@every
def test_without_results_nothing_was_run(name: str) -> None:
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
    """Each number stands in the text of the paper; a number like 0.9 may be printed as +0.9, .9 or 90 %."""
    folder = os.environ.get("VITLAB_PAPERS")
    if not folder:
        pytest.skip("no texts of the papers: set VITLAB_PAPERS to their folder")
    found = experiment(name)
    text = "\n".join(Path(folder, file).read_text(encoding="utf-8") for file in TEXTS[found.paper])
    printed = {float(number) for number in re.findall(r"\d*\.?\d+", text.replace(",", ""))}
    for number in found.published:
        if number.value is not None:
            assert abs(number.value) in printed, f"{number} is not in the text of the paper"
