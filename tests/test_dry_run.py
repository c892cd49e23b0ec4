"""`--dry-run` prints what a command would do and changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vitlab import dry_run, runner
from vitlab.cli.commands import app
from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment, Optimizer, Recipe
from vitlab.dry_run import planned_measurements, planned_training
from vitlab.tasks import train_task
from vitlab.training.loop import Interrupted

MODEL = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
OPTIONS = {
    "data": "scenes(train=8, test=8)",
    "root": None,
    "images": 6,
    "repeats": 1,
    "device": "cpu",
    "called": (),
    "preprocessing": None,
    "classes": None,
    "augment": None,
    "seed": 0,
}


def tiny(**settings: object) -> Recipe:
    recipe = Recipe(MODEL, "scenes(train=10, test=12)", image_size=(32, 32), epochs=3, batch_size=4)
    plain = replace(recipe, augment=Augment(crop="none"), optimizer=Optimizer(warmup_epochs=0))
    return replace(plain, **settings)  # type: ignore[arg-type]


def plan(out: Path) -> list:
    return list(planned_measurements(runner.INSTRUMENTS, [MODEL], ["attention_entropy", "lesion"], out, **OPTIONS))


def test_measurements_are_planned_then_stored(tmp_path: Path) -> None:
    first = plan(tmp_path / "out")
    assert [each.procedure for each in first] == ["attention_entropy", "lesion"]
    assert all(each.model == MODEL and each.weights == "random" and each.images == 6 for each in first)
    assert all(each.forward_seconds > 0 and not each.stored and each.cost for each in first)
    assert not list(tmp_path.rglob("*.json")), "a dry run measures nothing"
    list(runner.measure([MODEL], ["lesion"], tmp_path / "out", show=False, **OPTIONS))
    assert [each.stored for each in plan(tmp_path / "out")] == [False, True]


def test_a_plan_has_the_errors_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="no_such_instrument"):
        list(planned_measurements(runner.INSTRUMENTS, [MODEL], ["no_such_instrument"], tmp_path, **OPTIONS))


def test_training_is_planned_with_the_steps_that_it_takes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    planned = planned_training(tiny(), out, device="cpu")
    assert not out.exists(), "a dry run writes nothing"
    row = train_task(tiny(), out, device="cpu")
    assert planned.steps == row["step"] == 6 and planned.finished_steps == 0 and planned.evaluations == 3
    training, evaluating = 6 * 4 / planned.images_per_second, 3 * 12 / (3 * planned.images_per_second)
    assert planned.evaluation_seconds == pytest.approx(evaluating), "three evaluations of 12 images, forward only"
    assert planned.seconds == pytest.approx(training + evaluating)
    again = planned_training(tiny(), out, device="cpu")
    assert again.finished_steps == 6 and again.seconds == again.evaluation_seconds == 0


def test_an_interrupted_plan_has_nothing_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise Interrupted("stopped at step 3; run the same command to resume")

    monkeypatch.setattr(dry_run, "train_task", stop)
    monkeypatch.setattr(dry_run, "prepare", stop)
    with pytest.raises(KeyboardInterrupt, match="^interrupted; a dry run stores nothing$"):
        planned_training(tiny(), tmp_path / "run", device="cpu")
    with pytest.raises(KeyboardInterrupt, match="^interrupted; a dry run stores nothing$"):
        plan(tmp_path / "out")


def test_evaluation_images_are_limited(tmp_path: Path) -> None:
    assert train_task(tiny(epochs=1, evaluate_images=5), tmp_path / "few", device="cpu")["test_images"] == 5
    assert train_task(tiny(epochs=1), tmp_path / "all", device="cpu")["test_images"] == 12


def test_the_command_prints_the_plan(tmp_path: Path) -> None:
    command = ["measure", MODEL, "--with", "attention_entropy", "--images", "4", "--dry-run", "--out", str(tmp_path)]
    found = CliRunner().invoke(app, [*command, "--json", "--quiet"])
    (planned,) = json.loads(found.stdout)
    assert planned["procedure"] == "attention_entropy" and planned["images"] == 4 and planned["device"]
    table = CliRunner().invoke(app, [*command, "--quiet"]).stdout
    assert "one forward" in table and "4" in table and "total time: about" in table


def test_the_time_estimate_is_that_of_the_forwards(tmp_path: Path) -> None:
    """Corruptions: 1 + 2 · 3 forwards over 4 of 6 images. Attention of one pass is shared by two instruments."""
    stressed = "corruptions(names=('fog', 'snow'), severities=(1, 2, 3), images=4)"
    (one,) = planned_measurements(runner.STRESS_TESTS, [MODEL], [stressed], tmp_path, **OPTIONS)
    assert one.images == 4 and one.seconds == pytest.approx(7 * one.forward_seconds)
    names = ["attention_entropy", "attention_distance"]
    first, second = planned_measurements(runner.INSTRUMENTS, [MODEL], names, tmp_path, **OPTIONS)
    assert first.seconds == pytest.approx(first.forward_seconds / 2)
    assert second.seconds == pytest.approx(second.forward_seconds / 2)


def test_incomplete_batches_are_counted_as_they_are(tmp_path: Path) -> None:
    """20 of 24 images, whole and in three parts."""
    given = {**OPTIONS, "data": "scenes(train=8, test=24)"}
    for images, repeats, expected in ((20, 1, [20]), (20, 3, [7, 7, 6])):
        asked = {**given, "images": images, "repeats": repeats}
        planned = planned_measurements(runner.INSTRUMENTS, [MODEL], ["attention_entropy"], tmp_path, **asked)
        assert [each.images for each in planned] == expected


def test_the_units_and_layers_of_the_model_are_counted(tmp_path: Path) -> None:
    """Two blocks: the model and each of 2 MSAs and 2 MLPs; 9 cells, a class token, 3 heads and 6 others per block."""
    names = ["lesion", "causal_trace(cells=3)"]
    lesion, trace = planned_measurements(runner.INSTRUMENTS, [MODEL], names, tmp_path, **OPTIONS)
    assert lesion.seconds == pytest.approx((1 + 4) * lesion.forward_seconds)
    assert trace.seconds == pytest.approx(2 * (9 + 1 + 3 + 6) * trace.forward_seconds)


def test_the_table_fits_80_columns_without_breaking_names(tmp_path: Path) -> None:
    names = "attention_diversity,attention_stability,hessian_spectrum,causal_trace,loss_landscape"
    command = ["measure", MODEL, "--with", names, "--images", "4", "--dry-run", "--out", str(tmp_path), "--quiet"]
    table = CliRunner(env={"COLUMNS": "80"}).invoke(app, command).stdout
    starts = [line.split()[0] for line in table.splitlines() if line.strip()]
    assert all(name in starts for name in names.split(","))
    assert "total time: about" in table and "not estimated" not in table and MODEL in table
