"""HDVW's jobs: recipes are valid, networks share tiny trainings, and block plans are those of the models."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

import vitlab
from vitlab.core import plugins
from vitlab.core.experiment import SCALES, Job, Results
from vitlab.core.recipe import change
from vitlab.experiments.catalogue import experiment, select
from vitlab.experiments.runner import measured, trained
from vitlab.experiments.work import all_work, work_of

EXPERIMENTS = select(paper="hdvw")
FIGURES = [
    *map(str, range(1, 13)),
    *(f"c{i}" for i in range(1, 8)),
    *(f"d{i}" for i in range(1, 6)),
    *("e1", "f1"),
]


def test_all_figures_are_experiments() -> None:
    names = {each.name for each in EXPERIMENTS}
    assert {f"hdvw_fig_{figure}" for figure in FIGURES} <= names
    assert len(FIGURES) == 26


def test_smoke_trains_few_networks() -> None:
    trainings, works = all_work(job for each in EXPERIMENTS for job in each.plan("smoke"))
    assert 1 <= len(trainings) <= 6 and not any(run.first for run in trainings)
    assert len(works) <= 100


@pytest.mark.parametrize("scale", SCALES)
def test_recipes_are_valid_and_have_the_snapshots(scale: str) -> None:
    jobs = {job for each in EXPERIMENTS for job in each.plan(scale) if job.recipe}  # type: ignore[arg-type]
    for job in jobs:
        recipe = change(plugins.recipe(job.recipe), job.changes)
        assert job.snapshot is None or job.snapshot in recipe.snapshots, job
        assert max(recipe.snapshots, default=0) <= recipe.epochs, job
    for job in jobs if scale in ("small", "full") else ():
        assert job.gpu_minutes > 0 and (job.needs or job.kind == "speed"), job


@pytest.mark.parametrize("arm", ["resnet50", "vit_tiny", "pit_tiny", "swin_tiny"])
def test_the_authors_weights_of_cifar_load(arm: str, tmp_path: Path) -> None:
    """Random tensors of the released keys and shapes, under the released name, load by the expression of the job."""
    job = next(job for job in experiment("hdvw_fig_12").plan("released") if (job.arm, job.kind) == (arm, "train_fit"))
    (file,) = (need for need in job.needs if need.startswith("weights/"))
    released = {"resnet50": "resnet_50", "vit_tiny": "vit_ti", "pit_tiny": "pit_ti", "swin_tiny": "swin_ti"}[arm]
    assert file.startswith(f"weights/{released}_cifar100_") and job.data == "cifar100"
    lists = json.loads(gzip.decompress((Path(__file__).parents[2] / "models/published/keys.json.gz").read_bytes()))
    (tmp_path / "weights").mkdir()
    torch.save({"state_dict": {k: torch.zeros(v) for k, v in lists[f"{released}_cifar100"].items()}}, tmp_path / file)
    model = vitlab.load(job.model.replace("{root}", str(tmp_path)))
    assert all(not parameter.any() for parameter in model.parameters())


@pytest.mark.parametrize("figure", ["5", "9", "10", "12", "d1", "d3", "d4"])
def test_figures_of_cifar_have_the_authors_weights_of_cifar(figure: str) -> None:
    """The paper measures variance, CKA and lesions of networks on CIFAR-100 (Sec. 3, 4.1), not on ImageNet."""
    jobs = experiment(f"hdvw_fig_{figure}").plan("released")
    assert jobs and {job.data for job in jobs if job.kind != "cifar_c"} == {"cifar100"}
    assert all("{root}/weights/" in job.model for job in jobs)


def test_released_networks_of_cifar_are_those_of_the_figure() -> None:
    assert {job.arm for job in experiment("hdvw_fig_10").plan("released")} == {"resnet50", "swin_tiny"}
    kinds = {job.kind: job.needs[0] for job in experiment("hdvw_fig_12").plan("released")}
    assert kinds == {"train_fit": "cifar-100-binary", "cifar_c": "CIFAR-100-C"}


@pytest.mark.parametrize("arm", ["resnet50", "vit_tiny"])
def test_a_trajectory_reads_the_run_of_its_job(arm: str, tmp_path: Path) -> None:
    job = next(job for job in experiment("hdvw_fig_1").plan("smoke") if (job.arm, job.kind) == (arm, "trajectory"))
    work = work_of(job)
    assert work.training is not None
    trained(work.training, tmp_path, device="cpu")
    (found,) = measured(work, tmp_path, device="cpu")
    assert found.axes["snapshot"] == ("epoch-0000", "epoch-0001", "epoch-0002", "epoch-0003")
    assert found.values["radius"][0] == 1 and found.values["radius"][-1] == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hdvw_fig_3", ["holds", "holds", "holds"]),
        ("hdvw_fig_11", ["holds", "holds", "holds", "does not hold"]),
        ("hdvw_fig_d5", ["holds", "holds", "holds"]),
    ],
)
def test_block_plans_of_the_models(name: str, expected: list[str], tmp_path: Path) -> None:
    """An MSA block of stage 3 has 106 M multiply-accumulates and the Conv block 71 M (`models/alternet.py`)."""
    found: list[tuple[Job, object]] = []
    for job in experiment(name).plan("smoke"):
        found += [(job, each) for each in measured(work_of(job), tmp_path, device="cpu")]
    verdicts = experiment(name).check(Results(found))  # type: ignore[arg-type]
    assert [verdict.outcome for verdict in verdicts] == expected
    if name == "hdvw_fig_11":
        assert verdicts[-1].our_value == pytest.approx(106 / 71, abs=0.02)
