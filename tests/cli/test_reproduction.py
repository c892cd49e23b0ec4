"""`vitlab reproduce`: lists and plans without torch, dry runs, verdicts, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.small import ENTROPY, SHORT, TRAINED, VIT, experiment_of
from vitlab.cli import reproduction
from vitlab.core import plugins
from vitlab.experiments.catalogue import select
from vitlab.experiments.dry_run import dry_run
from vitlab.experiments.plan import Plan
from vitlab.experiments.work import work_of

ROOT = Path(__file__).resolve().parents[2]


def vitlab(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    command = [sys.executable, "-m", "vitlab", "reproduce", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def test_listing_imports_no_torch(tmp_path: Path) -> None:
    code = "import sys; from vitlab.cli import app; app(sys.argv[1:], standalone_mode=False)"
    code += "; sys.exit('torch' in sys.modules)"
    for option in ("--list", "--help"):
        command = [sys.executable, "-c", code, "reproduce", option]
        ended = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True)
        assert ended.returncode == 0, ended.stderr


def test_the_list_is_one_name_per_line_when_piped(tmp_path: Path) -> None:
    assert vitlab("--list", folder=tmp_path).stdout.split() == list(plugins.experiments())
    (row,) = json.loads(vitlab("cb_table_s16", "--list", "--json", folder=tmp_path).stdout)
    assert row["scales"]["full"]["needs"] == ["imagenet"] and row["results"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--paper or --all"),
        (["cb_table_16"], "cb_table_16"),
        (["--paper", "deit"], "deit"),
        (["cb_table_s16", "--scale", "huge"], "huge"),
        (["cb_table_10", "--scale", "small"], "cb_table_10 has smoke, full"),
        (["cb_table_s16", "--on", "kubernetes", "--scale", "smoke"], "kubernetes"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    ended = vitlab(*arguments, "--quiet", folder=tmp_path)
    assert ended.returncode == 2 and message in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_records_without_numbers_are_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for scale, numbers in (("smoke", []), ("small", [{"job": {}}])):
        record = {"experiment": "one", "scale": scale, "verdicts": [], "numbers": numbers}
        file = tmp_path / "verdicts" / scale / "one.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(record), encoding="utf-8")
    reproduction.show_list([experiment_of("one", [ENTROPY])], tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["results"] == ["small"]


def test_a_checkout_lists_the_published_records(tmp_path: Path) -> None:
    """Against the files of the folder; elsewhere there are none."""
    files = {file.stem: file.parent.name for file in (ROOT / "docs/results/data/reproduce").glob("*/*.json")}
    rows = json.loads(vitlab("--all", "--list", "--json", "--out", str(tmp_path), folder=ROOT).stdout)
    assert {row["name"]: row["published"] for row in rows if row["published"]} == {k: [v] for k, v in files.items()}
    assert not any(row["results"] for row in rows) and len(files) >= 20
    (row,) = json.loads(vitlab("cb_table_s16", "--list", "--json", folder=tmp_path).stdout)
    assert row["published"] == []


def test_titles_can_be_read_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.chdir(ROOT)
    reproduction.show_list(select(paper="tapadl"), tmp_path)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= 80
    assert any("TAPADL Table 2: ImageNet" in line for line in lines)
    assert any("(docs)" in line for line in lines) and lines[-1].endswith("published in docs/results/data/reproduce")


def test_experiments_without_a_plan_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = [experiment_of("one", [ENTROPY]), experiment_of("two", [])]
    reproduction.show_unplanned(Plan(some, "small", tmp_path))
    assert capsys.readouterr().err == "no plan at small: two has none\n"


def test_force_asks_with_the_cost_of_what_it_redoes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored plan of 2 GPU hours: nothing is asked, with --force the answer `no` keeps the result."""
    job = replace(ENTROPY, procedure="sizes", data=None, images=None, gpu_minutes=120.0)
    experiment = experiment_of("one", [job])
    monkeypatch.setattr("vitlab.experiments.catalogue.select", lambda *given: [experiment])
    folder = work_of(job).folder(tmp_path)
    folder.mkdir(parents=True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text, **options: bool(asked.append(text)))
    monkeypatch.setattr("vitlab.experiments.reproduce.reproduce", lambda *given, **options: iter(()))
    from vitlab.cli.commands import reproduce

    reproduce(["one"], out=tmp_path, force=True, quiet=True)
    assert asked == ["Run it?"] and folder.is_dir()


def test_the_plan_of_force_counts_stored_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan([experiment_of("one", [replace(TRAINED, gpu_minutes=120.0)])], "small", tmp_path)
    plan.works[0].folder(tmp_path).mkdir(parents=True)
    reproduction.show_plan(plan)
    reproduction.show_plan(plan, force=True)
    stored, forced = capsys.readouterr().err.splitlines()
    assert "0 training runs, 0 measurements, about 0 GPU hours" in stored and "1 measurements are stored" in stored
    assert "1 training runs, 1 measurements, about 2 GPU hours" in forced and "removed and made again" in forced


@pytest.mark.slow
def test_an_experiment_from_the_command_line(tmp_path: Path) -> None:
    ended = vitlab("cb_table_s16", "--scale", "smoke", "--device", "cpu", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads(ended.stdout)
    outcomes = [verdict["outcome"] for verdict in found["verdicts"]]
    assert outcomes == ["does not hold", *["holds"] * 9, *["not run"] * 9]
    assert Path(tmp_path, found["page"]).stat().st_size > 10_000
    assert "10 training runs, 20 measurements" in ended.stderr
    (row,) = json.loads(vitlab("cb_table_s16", "--list", "--json", folder=tmp_path).stdout)
    assert row["results"] == ["smoke"]
    assert "0 training runs, 0 measurements" in vitlab("cb_table_s16", "--scale", "smoke", folder=tmp_path).stderr


# -- dry run ---------------------------------------------------------------------------------------------------------


def problems(tmp_path: Path, *jobs: object) -> list[str]:
    plan = Plan([experiment_of("one", list(jobs))], "small", tmp_path)  # type: ignore[arg-type]
    return [row.problem for row in dry_run(plan) if row.problem]


def test_a_dry_run_accepts_valid_jobs_and_runs_nothing(tmp_path: Path) -> None:
    started = replace(ENTROPY, arm="b", model=f"{VIT[:-1]}, weights='{{trained}}')", trained="quick", changes=SHORT)
    from_file = replace(started, arm="c", model="file/{trained} | ContextBroadcast")
    published = replace(ENTROPY, arm="d", model="timm/deit_tiny_patch16_224(weights='{root}/deit.safetensors')")
    jobs = [ENTROPY, TRAINED, started, from_file, published, replace(TRAINED, procedure="speed(steps=2)")]
    assert problems(tmp_path, *jobs) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "timm/no_such_model"}, "no_such_model"),
        ({"model": f"{VIT} | NoSuchPart"}, "NoSuchPart"),
        ({"model": VIT.replace("num_heads=3", "num_heads=5")}, "could not be built"),
        ({"data": "scenes(train=-1)"}, "train=-1"),
        ({"procedure": "attention_entropy(bas=2)"}, "bas"),
        ({"procedure": "training"}, "needs recipe="),
        ({"procedure": "speed(step=1)"}, "step"),
        ({"procedure": "no_such_instrument"}, "no_such_instrument"),
        ({"model": "", "recipe": "no_such_recipe"}, "no_such_recipe"),
        ({"model": "", "recipe": "quick", "changes": ("epoch=1",)}, "epoch"),
        ({"model": "", "recipe": "quick", "snapshot": 3}, "epoch 3"),
        ({"model": "", "recipe": "quick", "changes": ("image_size=(40, 40)",)}, "40"),
    ],
)
def test_a_dry_run_finds_mistakes(change: dict, message: str, tmp_path: Path) -> None:
    found = problems(tmp_path, replace(ENTROPY, arm="wrong", **change), ENTROPY)
    assert found and all(message in problem for problem in found)


def test_memory_grows_with_the_batch(tmp_path: Path) -> None:
    """At least the weights, gradients and moments; activations in proportion to the images."""
    small, large = (
        next(iter(dry_run(Plan([experiment_of("one", [job])], "small", tmp_path)))).gigabytes
        for job in (replace(TRAINED, changes=(*SHORT, f"batch_size={size}")) for size in (16, 32))
    )
    parameters = 20185 * 16 / 1e9
    assert small > parameters and large - parameters == pytest.approx(2 * (small - parameters))


def test_problems_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan([experiment_of("one", [replace(ENTROPY, model="timm/no_such_model"), TRAINED])], "small", tmp_path)
    assert not reproduction.show_checked(dry_run(plan))
    printed = capsys.readouterr().out
    assert "no_such_model" in printed and "3 training runs and measurements checked, 1 with problems" in printed


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["smoke", "small", "released", "full"])
def test_every_job_of_every_experiment_is_valid(scale: str, tmp_path: Path) -> None:
    from vitlab.experiments.catalogue import check_scale, select

    rows = list(dry_run(Plan(select(all_=True), check_scale(scale), tmp_path)))
    assert [f"{row.title}: {row.problem}" for row in rows if row.problem] == []
