"""The evidence runs: conditions, order of the queue, one compilation for each variant, interrupted runs."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from vitlab import zoo
from vitlab.core.errors import VitlabError

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "studies"))

from evidence.conditions import CONDITIONS, all_jobs, recipe_of  # noqa: E402
from evidence.measuring import Extent  # noqa: E402
from evidence.scheduling import Durations, next_job, variant  # noqa: E402
from evidence.training import Trainer  # noqa: E402

SMALL = ("epochs=1", "batch_size=32", "precision=float32")
DATA = "scenes(train=64, test=32)"


def test_runs_have_unique_names() -> None:
    names = [job.name for job in all_jobs()]
    assert len(set(names)) == len(names) and names[0] == "centre-plain-100"
    assert sum(job.condition.name == "centre" for job in all_jobs()) == 16


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_arms_of_a_condition_share_weights_order_and_augmentation(condition: Any) -> None:
    first = [next(job for job in all_jobs([f"{condition.name}-{arm.name}"])) for arm in condition.arms]
    base = next(job for job in all_jobs([condition.baseline or condition.name]) if job.seed == first[0].seed)
    plain = recipe_of(base)
    weights = zoo.load(plain.model, seed=plain.seed).state_dict()
    for job in first:
        recipe = recipe_of(job)
        same = ("data", "epochs", "batch_size", "augment", "optimizer", "precision", "seed")
        assert [getattr(recipe, name) for name in same] == [getattr(plain, name) for name in same]
        own = zoo.load(recipe.model, seed=recipe.seed).state_dict()
        assert all(torch.equal(own[name], value) for name, value in weights.items())
        added = [name for name, value in own.items() if name not in weights and value.numel()]
        assert bool(added) == any(part in recipe.model for part in ("Scaled", "Pooling"))


def test_factors_change_their_settings_only() -> None:
    recipes = {name: recipe_of(all_jobs([name])[0]) for name in ("centre", "mix_all", "one_head", "epochs50")}
    assert recipes["mix_all"].augment.mix_probability == 1 and recipes["centre"].augment.mix_probability == 0.5
    assert "num_heads=1" in recipes["one_head"].model and "num_heads=3" in recipes["centre"].model
    assert recipes["epochs50"].epochs == 50 and recipes["centre"].epochs == 100


def test_an_unknown_condition_or_arm_is_an_error() -> None:
    with pytest.raises(VitlabError, match="condition"):
        all_jobs(["center"])
    with pytest.raises(VitlabError, match="arm of centre"):
        all_jobs(["centre-tap"])


def test_two_workers_share_the_arms_and_keep_what_they_compiled() -> None:
    pending = all_jobs(["centre"])
    compiled: list[set[Any]] = [set(), set()]
    done: list[list[str]] = [[], []]
    while pending:
        for worker in (0, 1):
            job = next_job(pending, compiled[worker])
            assert job is not None
            pending.remove(job)
            compiled[worker].add(variant(job))
            done[worker].append(job.name)
    assert done == [[f"centre-{arm}-{seed}" for seed in range(100, 108)] for arm in ("plain", "cb")]


def test_one_worker_completes_pairs_in_order() -> None:
    pending, compiled, counts = all_jobs(["centre"]), set(), {"plain": 0, "cb": 0}
    while pending:
        job = next_job(pending, compiled)
        assert job is not None
        pending.remove(job)
        compiled.add(variant(job))
        counts[job.arm.name] += 1
        assert abs(counts["plain"] - counts["cb"]) <= 6
    assert next_job([], compiled) is None


def test_estimates_use_measured_durations() -> None:
    job = all_jobs(["centre"])[0]
    durations = Durations(per_epoch=1.0)
    unknown = durations.estimate(job, 100, compiled=False)
    durations.learn(job, epochs=100, training=50.0, measuring=5.0, compiled=True)
    assert durations.estimate(job, 100, compiled=True) == pytest.approx(1.1 * 55) and unknown > 100


@pytest.mark.slow
def test_a_variant_is_compiled_once_for_all_seeds_also_with_recorded_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements in between, other schedules, and other variants do not make the step compile again."""
    counter = CompileCounter()
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=counter, fullgraph=True))
    extent = Extent(
        attention=8, corruptions={"names": "fog", "severities": 1}, occlusion={"ratios": ()}, adversarial={"steps": 1}
    )
    errors: list[str] = []
    trainer = Trainer(DATA, (*SMALL, "compile=True"), extent, lambda name, text: errors.append(text), "cpu")
    plain, adl = all_jobs(["tapadl-plain"])[:2], all_jobs(["tapadl-adl"])[:2]
    found = [trainer.run(job) for job in (plain[0], adl[0], adl[1], plain[1], all_jobs(["mix_all-plain"])[0])]
    assert counter.frame_count == 2
    assert not errors and all(len(each["measured"]) == 9 for each in found)
    assert found[0]["train_loss"] != found[3]["train_loss"]


def command(out: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    script = str(ROOT / "studies/cifar100_evidence.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return [sys.executable, script, "--smoke", "--out", str(out), *arguments], environment


@pytest.mark.slow
def test_two_workers_skip_what_is_done_and_pack_the_results(tmp_path: Path) -> None:
    (tmp_path / "done.txt").write_text("centre-plain-100.json\n")
    tar = tmp_path / "results.tar.gz"
    asked = ["--jobs", "centre,grid-tau_3", "--workers", "2", "--done", str(tmp_path / "done.txt"), "--tar", str(tar)]
    line, environment = command(tmp_path / "out", *asked)
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    with tarfile.open(tar) as archive:
        assert sorted(archive.getnames()) == ["centre-cb-100.json", "grid-tau_3-300.json"]
    found = json.loads((tmp_path / "out/grid-tau_3-300.json").read_text())
    assert found["holdout"] == 5000 and "tau=3.0" in found["recipe"]


@pytest.mark.slow
def test_a_failed_run_is_recorded_and_the_queue_continues(tmp_path: Path) -> None:
    line, environment = command(tmp_path, "--jobs", "centre-plain,tapadl-tap", "--bare", "--set", "batch_size=65")
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0 and "0 runs finished" in ended.stdout
    errors = (tmp_path / "errors.txt").read_text()
    assert "== centre-plain-100" in errors and "== tapadl-tap-100" in errors and "Traceback" in errors


@pytest.mark.slow
def test_a_stop_signal_keeps_finished_runs(tmp_path: Path) -> None:
    tar = tmp_path / "results.tar.gz"
    line, environment = command(tmp_path / "out", "--jobs", "centre", "--bare", "--tar", str(tar))
    line += ["--seeds", "100,101,102,103,104,105"]
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 300
    while not list((tmp_path / "out").glob("*.json")) and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "interrupted" in printed
    with tarfile.open(tar) as archive:
        names = archive.getnames()
    assert 0 < len(names) < 12 and all(json.loads((tmp_path / "out" / name).read_text())["top1"] >= 0 for name in names)
