"""The training loop: its results, resuming after interrupts, and damaged files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import vitlab
from vitlab import zoo
from vitlab.core.recipe import Augment, Objective, Optimizer, Recipe, change
from vitlab.core.store import Run, read_tensors, write_tensors
from vitlab.data.resident import Resident
from vitlab.preprocessing import preprocessing_of
from vitlab.reporting import read
from vitlab.tasks.classification import make_loss, run
from vitlab.training.distributed import World
from vitlab.training.loop import Interrupted, train
from vitlab.training.optimizer import learning_rate

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = (
    "timm/vit_tiny_patch16_224(img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=25,"
    " drop_path_rate=0.2, proj_drop_rate=0.1)"
)


def tiny(**settings: object) -> Recipe:
    recipe = Recipe(
        model=MODEL,
        data="scenes(train=48, test=24)",
        image_size=(16, 16),
        epochs=3,
        batch_size=8,
        augment=Augment(mixup=0.8, cutmix=1.0, randaugment="rand-m9-n2", erasing=0.25),
        optimizer=Optimizer(warmup_epochs=1, clip=1.0),
        ema=0.9,
        checkpoint_every=2,
        log_every=1,
    )
    return dataclasses.replace(recipe, **settings)


def losses(folder: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["train_loss"] for row in rows if "top1" not in row}


def test_a_step_equals_the_formula_of_adamw(tmp_path: Path) -> None:
    """One step on one batch against torch's plain AdamW on the same loss, with the two groups of weight decay."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.LayerNorm(4))
    twin = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.LayerNorm(4))
    twin.load_state_dict(model.state_dict())
    images, labels = torch.randint(0, 255, (8, 3, 2, 2), dtype=torch.uint8), torch.arange(8) % 4
    settings = Augment(crop="none", flip=0.0)
    feed = Resident(images, labels, (0.5,) * 3, (0.5,) * 3, settings, batch_size=8)
    optimizer = Optimizer(lr=0.1, warmup_epochs=0, weight_decay=0.3)
    recipe = Recipe("timm/x", "x", epochs=1, batch_size=8, augment=settings, optimizer=optimizer)
    train(recipe, model, feed, make_loss(Objective(smoothing=0.0)), lambda model: {}, Run(tmp_path))

    decayed = [p for p in twin.parameters() if p.ndim > 1]
    others = [p for p in twin.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": others, "weight_decay": 0.0}]
    by_hand = torch.optim.AdamW(groups, lr=learning_rate(optimizer, 0, 1, 1))
    batch = next(iter(feed.epoch(0)))
    nn.functional.cross_entropy(twin(batch.images), batch.labels).backward()
    by_hand.step()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_the_loss_decreases(tmp_path: Path) -> None:
    recipe = tiny(
        data="scenes(train=64, test=8)",
        epochs=60,
        batch_size=32,
        augment=Augment(crop="none", flip=0.0),
        optimizer=Optimizer(lr=3e-3, warmup_epochs=1),
        model=MODEL.replace(" drop_path_rate=0.2, proj_drop_rate=0.1", "").replace("25,", "25"),
        log_every=0,
        checkpoint_every=0,
        evaluate_every=100,
    )
    run(recipe, tmp_path)
    rows = Run(tmp_path).metrics()
    assert rows[-1]["train_loss"] < 0.7 * rows[0]["train_loss"]


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = run(tiny(), tmp_path / "whole")
    broken = tmp_path / "broken"

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="step 7"):
        run(tiny(), broken, log=stop)
    assert run(tiny(), broken).items() >= {"top1": whole["top1"], "train_loss": whole["train_loss"]}.items()
    assert losses(broken) == losses(tmp_path / "whole")
    for name in ("model", "model_ema"):
        first, second = (
            vitlab.core.store.read_tensors(folder / f"{name}.safetensors")[0] for folder in (tmp_path / "whole", broken)
        )
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_signal_during_the_last_evaluation_is_not_lost(tmp_path: Path) -> None:
    """The run is complete, but what comes after it, such as the next run of a plan, must not begin."""

    def stop(row: dict[str, object]) -> None:
        if row.get("epoch") == 2 and "top1" in row:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="complete"):
        run(tiny(epochs=2), tmp_path, log=stop)
    assert (tmp_path / "model.safetensors").is_file()
    assert run(tiny(epochs=2), tmp_path)["epoch"] == 2


def test_an_error_after_a_signal_is_an_interruption(tmp_path: Path) -> None:
    """A signal to all processes of a terminal also ends those that load images."""

    def evaluate(model: nn.Module) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        raise RuntimeError("DataLoader worker is killed by signal")

    recipe = tiny(ema=0.0, augment=Augment())
    images = torch.zeros(48, 3, 16, 16, dtype=torch.uint8)
    feed = Resident(images, torch.arange(48) % 25, (0.5,) * 3, (0.5,) * 3, Augment(), batch_size=8)
    with pytest.raises(Interrupted, match="resume") as found:
        train(recipe, vitlab.load(MODEL, seed=0), feed, make_loss(Objective()), evaluate, Run(tmp_path))
    assert isinstance(found.value.__cause__, RuntimeError)


KILLED = """
import sys
sys.path[:0] = [{source!r}, {tests!r}]
import torch
torch.set_num_threads(1)
from test_loop import tiny
from vitlab.tasks.classification import run
run(tiny(epochs=6), {folder!r})
"""


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_killed_at_a_random_moment_resumes_bit_for_bit(seed: int, tmp_path: Path) -> None:
    code = KILLED.format(source=str(ROOT / "src"), tests=str(ROOT / "tests/training"), folder=str(tmp_path / "killed"))
    moment = random.Random(seed)
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (tmp_path / "killed/metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(moment.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([sys.executable, "-c", code], check=True)
    torch.set_num_threads(1)
    run(tiny(epochs=6), tmp_path / "whole")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")


def test_epochs_of_a_fixed_number_of_steps_resume_bit_for_bit(tmp_path: Path) -> None:
    """48 images in batches of 8 are 6 steps per pass; epochs of 4 steps, with a rate per layer."""
    optimizer = Optimizer(warmup_epochs=1, layer_decay=0.5, head_lr=2.0, schedule="poly")
    recipe = tiny(steps_per_epoch=4, epochs=4, optimizer=optimizer)
    row = run(recipe, tmp_path / "whole")
    assert row["step"] == 16 and row["lr"] == pytest.approx(learning_rate(optimizer, 15, 4, 4))
    assert list(losses(tmp_path / "whole")) == list(range(1, 17))

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 10:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        run(recipe, tmp_path / "parts", log=stop)
    run(recipe, tmp_path / "parts")
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_a_damaged_newest_checkpoint_is_renamed(tmp_path: Path) -> None:
    run(tiny(epochs=2), tmp_path / "whole")
    run(tiny(epochs=2), tmp_path / "run")
    newest = sorted((tmp_path / "run/checkpoints").glob("*.safetensors"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match="checksum"):
        run(tiny(epochs=2), tmp_path / "run")
    assert newest.with_suffix(".damaged").exists()
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_checkpoint_without_markers_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = tiny(model=f"{MODEL} | ContextBroadcast", epochs=2, checkpoint_every=3)
    run(recipe, tmp_path / "whole", device="cpu")
    run(recipe, tmp_path / "old", device="cpu")
    (tmp_path / "old" / "model.safetensors").unlink()
    for path in sorted((tmp_path / "old" / "checkpoints").glob("*.safetensors"))[1:]:
        path.unlink()
    (kept,) = (tmp_path / "old" / "checkpoints").glob("*.safetensors")
    tensors, about = read_tensors(kept)
    without = {name: tensor for name, tensor in tensors.items() if not name.endswith("marker")}
    assert len(without) < len(tensors)
    write_tensors(kept, without, about)
    checksum = hashlib.sha256(kept.read_bytes()).hexdigest()
    kept.with_suffix(".json").write_text(json.dumps({"sha256": checksum, "step": about["step"]}))
    run(recipe, tmp_path / "old", device="cpu")
    first, second = (read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("whole", "old"))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_another_recipe_in_the_same_folder_raises(tmp_path: Path) -> None:
    run(tiny(epochs=1), tmp_path)
    with pytest.raises(vitlab.VitlabError, match="another recipe.*epochs"):
        run(tiny(epochs=2), tmp_path)


def test_a_loss_that_is_not_finite_stops_with_a_usable_checkpoint(tmp_path: Path) -> None:
    good = tiny(epochs=1)
    run(good, tmp_path / "good")
    images = torch.randint(0, 255, (48, 3, 16, 16), dtype=torch.uint8)
    feed = Resident(images, torch.arange(48) % 25, (0.5,) * 3, (0.5,) * 3, Augment(), batch_size=8)
    usual, calls = make_loss(Objective()), []

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        calls.append(1)
        return usual(model, batch) * (float("nan") if len(calls) == 5 else 1.0)

    model = vitlab.load(MODEL)
    with pytest.raises(vitlab.VitlabError, match="not finite.*optimizer.lr"):
        train(tiny(ema=0.0), model, feed, loss, lambda model: {}, Run(tmp_path / "run"))
    tensors, about = Run(tmp_path / "run").newest_checkpoint()
    assert about["step"] == 4
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_full_disk_is_one_line_and_leaves_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_folder = Run(tmp_path)
    run_folder.save_checkpoint(1, {"x": torch.ones(3)}, {})

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(vitlab.VitlabError, match="No space left on device.*not changed"):
        run_folder.save_checkpoint(2, {"x": torch.zeros(3)}, {})
    monkeypatch.undo()
    tensors, about = run_folder.newest_checkpoint()
    assert about["step"] == 1 and tensors["x"].sum() == 3
    assert not list(tmp_path.rglob("*.partial"))


def test_accumulation_gives_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    model = MODEL.replace(", proj_drop_rate=0.1", "").replace(" drop_path_rate=0.2", " drop_path_rate=0.0")
    settings = {"model": model, "epochs": 1, "ema": 0.0, "augment": Augment()}
    run(tiny(**settings), tmp_path / "one")
    run(tiny(**settings, accumulate=4), tmp_path / "four")
    first, second = losses(tmp_path / "one"), losses(tmp_path / "four")
    assert first.keys() == second.keys()
    assert all(abs(first[step] - second[step]) < 2e-4 for step in first)


def test_runs_with_snapshots_store_the_initial_weights(tmp_path: Path) -> None:
    """Also after a resumed run, whose model does not begin with them; `trajectory` reads the finished folder."""
    recipe = tiny(epochs=2, snapshots=(1,), ema=0.0)
    run(recipe, tmp_path)
    first = vitlab.load(f"file/{tmp_path}/snapshots/epoch-0000.safetensors").state_dict()
    fresh = zoo.load(recipe.model, seed=recipe.seed).state_dict()
    assert all(torch.equal(first[name], fresh[name]) for name in fresh)

    run(recipe, tmp_path)  # nothing is left to do, and the initial weights are not overwritten by the last ones
    again = vitlab.load(f"file/{tmp_path}/snapshots/epoch-0000.safetensors").state_dict()
    assert all(torch.equal(again[name], fresh[name]) for name in fresh)

    end = vitlab.load(f"file/{tmp_path}/model.safetensors")
    found = vitlab.measure("trajectory", end, [], snapshots=str(tmp_path))
    assert found.axes["snapshot"] == ("epoch-0000", "epoch-0001")
    assert found.values["radius"][0] == 1 > found.values["radius"][1] > 0 == found.values["angle"][0]


def test_runs_without_snapshots_do_not_store_the_initial_weights(tmp_path: Path) -> None:
    run(tiny(epochs=1), tmp_path)
    assert not (tmp_path / "snapshots").exists()


def test_snapshots_and_the_last_weights_load_as_models(tmp_path: Path) -> None:
    run(tiny(epochs=2, snapshots=(1,)), tmp_path)
    early, late = (vitlab.load(f"file/{tmp_path}/{name}.safetensors") for name in ("snapshots/epoch-0001", "model"))
    images = torch.randn(2, 3, 16, 16)
    assert early.eval()(images).shape == (2, 25)
    assert not torch.equal(early(images), late.eval()(images))


def test_sharpness_aware_minimisation_is_its_two_steps_by_hand(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, twin = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    twin.load_state_dict(model.state_dict())
    images, labels = torch.randint(0, 255, (8, 3, 2, 2), dtype=torch.uint8), torch.arange(8) % 4
    settings = Augment(crop="none", flip=0.0)
    feed = Resident(images, labels, (0.5,) * 3, (0.5,) * 3, settings, batch_size=8)
    optimizer = Optimizer(name="sgd", lr=0.1, warmup_epochs=0, weight_decay=0.0, momentum=0.0, sam=0.05)
    recipe = Recipe("timm/x", "x", epochs=1, batch_size=8, augment=settings, optimizer=optimizer)
    recipe = change(recipe, {"optimizer.momentum": 0.9})  # Nesterov wants a momentum
    train(recipe, model, feed, make_loss(Objective(smoothing=0.0)), lambda model: {}, Run(tmp_path))

    batch = next(iter(feed.epoch(0)))

    def gradient() -> list[Tensor]:
        value = nn.functional.cross_entropy(twin(batch.images), batch.labels)
        return list(torch.autograd.grad(value, list(twin.parameters())))

    first = gradient()
    norm = torch.cat([g.flatten() for g in first]).norm()
    with torch.no_grad():
        for p, g in zip(twin.parameters(), first, strict=True):
            p += 0.05 * g / norm
    second = gradient()
    rate = learning_rate(optimizer, 0, 1, 1)
    with torch.no_grad():
        for p, g, h in zip(twin.parameters(), first, second, strict=True):
            p -= 0.05 * g / norm
            p -= rate * (1 + 0.9) * h  # Nesterov's first step
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_a_run_killed_before_its_first_checkpoint_logs_each_step_once(tmp_path: Path) -> None:
    class DiedError(Exception):
        pass

    def die(row: dict[str, object]) -> None:
        if row["step"] == 3:
            raise DiedError

    recipe = tiny(epochs=1, checkpoint_every=0)
    with pytest.raises(DiedError):
        run(recipe, tmp_path, log=die)
    run(recipe, tmp_path)
    steps = [row["step"] for row in Run(tmp_path).metrics() if "top1" not in row]
    assert steps == list(range(1, 7))


def test_a_model_fine_tuned_from_a_file_loads_again(tmp_path: Path) -> None:
    run(tiny(epochs=1), tmp_path / "first")
    text = f"file/'{tmp_path}/first/model.safetensors' | ContextBroadcast(blocks='upper')"
    run(tiny(epochs=1, model=text), tmp_path / "second")
    model = vitlab.load(f"file/{tmp_path}/second/model.safetensors")
    assert hasattr(model.blocks[1].mlp, "vitlab_context_broadcast")


def test_a_run_killed_before_its_last_evaluation_still_finishes(tmp_path: Path) -> None:
    recipe = tiny(epochs=2, checkpoint_every=3, log_every=0)
    whole = run(recipe, tmp_path / "whole")
    run(recipe, tmp_path / "run")
    for name in ("model.safetensors", "model_ema.safetensors"):
        (tmp_path / "run" / name).unlink()  # killed between the last checkpoint and the weights
    assert run(recipe, tmp_path / "run")["top1"] == whole["top1"]
    assert (tmp_path / "run/model.safetensors").exists()


def test_an_epoch_is_logged_once_where_checkpoints_fall_on_its_end(tmp_path: Path) -> None:
    recipe = tiny(epochs=3, checkpoint_every=6, log_every=1)  # six steps an epoch

    def stop(row: dict[str, object]) -> None:
        if row["step"] == 7:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(recipe, tmp_path, log=stop)
    run(recipe, tmp_path)
    assert [row["epoch"] for row in Run(tmp_path).metrics() if "top1" in row] == [1, 2, 3]


class EvaluationError(Exception):
    pass


@pytest.mark.parametrize(("every", "fails_at"), [(0, 3), (6, 2)])
def test_training_is_kept_when_an_evaluation_fails(every: int, fails_at: int, tmp_path: Path) -> None:
    """The last evaluation fails, or the one at the end of an epoch with a checkpoint; the same call resumes.

    The oracle is a run whose evaluations all work: same weights, same rows, each evaluation once, as many checkpoints.
    """
    recipe = tiny(checkpoint_every=every, snapshots=(2,), ema=0.0, augment=Augment())
    steps: list[int] = []
    batches: list[int] = []
    usual = make_loss(Objective())

    class Counted(Run):
        def save_checkpoint(self, step: int, *content: object) -> Path:
            steps.append(step)
            return super().save_checkpoint(step, *content)

    def once(folder: Path, failing: int = 0) -> list[float]:
        generator = torch.Generator().manual_seed(0)
        images = torch.randint(0, 255, (48, 3, 16, 16), dtype=torch.uint8, generator=generator)
        feed = Resident(images, torch.arange(48) % 25, (0.5,) * 3, (0.5,) * 3, Augment(), batch_size=8)
        called: list[float] = []

        def evaluate(model: nn.Module) -> dict[str, float]:
            called.append(float(sum(p.detach().double().sum() for p in model.parameters())))
            if len(called) == failing:
                raise EvaluationError
            return {"top1": called[-1]}

        def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
            batches.append(1)
            return usual(model, batch)

        train(recipe, vitlab.load(MODEL, seed=0), feed, loss, evaluate, Counted(folder))
        return called

    whole = once(tmp_path / "whole")
    assert len(whole) == 3
    in_whole, steps[:], batches[:] = list(steps), [], []
    with pytest.raises(EvaluationError):
        once(tmp_path / "run", fails_at)
    assert once(tmp_path / "run") == whole[fails_at - 1 :]
    assert steps == in_whole and len(batches) == 18  # no step is repeated
    rows = [
        [{k: v for k, v in row.items() if k != "images_per_second"} for row in Run(f).metrics()]
        for f in folders(tmp_path)
    ]
    assert rows[0] == rows[1] and all(row["images_per_second"] > 1 for row in Run(tmp_path / "run").epochs())
    for name in ("model", "snapshots/epoch-0002"):
        first, second = (read_tensors(folder / f"{name}.safetensors")[0] for folder in folders(tmp_path))
        assert all(torch.equal(first[key], second[key]) for key in first)
    assert once(tmp_path / "run") == []  # a finished run is not evaluated again


def folders(path: Path) -> list[Path]:
    return [path / "whole", path / "run"]


def test_an_epoch_that_was_logged_is_not_evaluated_again(tmp_path: Path) -> None:
    """The process dies after the row of epoch 1, whose checkpoint was written before the evaluation."""
    recipe = tiny(epochs=2, checkpoint_every=6)

    def die(row: dict[str, object]) -> None:
        if "top1" in row:
            raise EvaluationError

    with pytest.raises(EvaluationError):
        run(recipe, tmp_path, log=die)
    logged: list[object] = []
    run(recipe, tmp_path, log=lambda row: logged.append(row["epoch"]) if "top1" in row else None)
    assert logged == [2] and [row["epoch"] for row in Run(tmp_path).epochs()] == [1, 2]


def test_saved_weights_contain_their_normalisation(tmp_path: Path) -> None:
    run(tiny(epochs=1), tmp_path)
    from vitlab.data import scenes

    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = preprocessing_of(vitlab.load(f"file/{path}"))
        assert found.mean == scenes.MEAN and found.std == scenes.STD and found.classes == scenes.CLASSES


@pytest.mark.parametrize(
    ("settings", "device", "message"),
    [({}, "foo", "cpu, cuda"), ({"image_size": (20, 20), "data": "scenes(train=48, test=24, size=20)"}, None, "20x20")],
)
def test_recipes_that_cannot_run_raise_a_one_line_error(
    settings: dict[str, object], device: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(vitlab.VitlabError, match=message) as error:
        run(tiny(**settings), tmp_path, device=device)
    assert "\n" not in str(error.value)


def test_rows_of_steps_and_epochs_number_epochs_equally(tmp_path: Path) -> None:
    run(tiny(), tmp_path)
    rows = Run(tmp_path).metrics()
    assert [row["epoch"] for row in rows if "top1" not in row] == [1 + step // 6 for step in range(18)]
    epochs = [row for row in rows if "top1" in row]
    assert Run(tmp_path).epochs() == epochs and [row["epoch"] for row in epochs] == [1, 2, 3]
    (curve,) = read([tmp_path])
    assert curve.axes["epoch"] == (1, 2, 3)
    for name in ("top1", "loss", "train_loss", "lr"):
        assert curve.values[name].tolist() == [row[name] for row in epochs]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sharded": True}, "ema"),
        ({"batch_size": 64}, "smaller than one batch"),
        ({"model": "timm/no_such_model"}, "no_such_model"),
        ({"optimizer": Optimizer(milestones=(2,))}, "milestones=.2,. are for schedule='step'"),
    ],
)
def test_a_recipe_that_cannot_run_leaves_no_folder(settings: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match=message):
        run(tiny(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    run(tiny(epochs=1), tmp_path / "run")  # the folder is free for another recipe


def test_a_batch_that_cannot_be_divided_over_processes_leaves_no_folder(tmp_path: Path) -> None:
    feed = Resident(torch.zeros(8, 3, 2, 2, dtype=torch.uint8), torch.arange(8), (0.5,) * 3, (0.5,) * 3, batch_size=8)
    with pytest.raises(vitlab.VitlabError, match="batch_size=8 cannot be divided .* 3 processes"):
        train(
            tiny(),
            nn.Linear(1, 1),
            feed,
            make_loss(Objective()),
            lambda model: {},
            Run(tmp_path / "run"),
            world=World(0, 3),
        )
    assert not (tmp_path / "run").exists()


def test_a_float16_run_resumes_with_its_loss_scale(tmp_path: Path) -> None:
    """The first steps overflow, so the scale falls; a run resumed without it would skip steps again."""
    recipe = tiny(precision="float16", ema=0.0, augment=Augment())
    usual = make_loss(Objective())

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        return usual(model, batch) * 2000.0

    def once(folder: Path, stop_at: int = 0) -> dict[str, Tensor]:
        def stop(row: dict[str, object]) -> None:
            if row["step"] == stop_at:
                os.kill(os.getpid(), signal.SIGINT)

        generator = torch.Generator().manual_seed(0)
        images = torch.randint(0, 255, (48, 3, 16, 16), dtype=torch.uint8, generator=generator)
        feed = Resident(images, torch.arange(48) % 25, (0.5,) * 3, (0.5,) * 3, Augment(), batch_size=8)
        train(recipe, vitlab.load(MODEL, seed=0), feed, loss, lambda model: {}, Run(folder), log=stop)
        return read_tensors(folder / "model.safetensors")[0]

    whole = once(tmp_path / "whole")
    with pytest.raises(Interrupted):
        once(tmp_path / "broken", stop_at=7)
    start = torch.amp.GradScaler("cpu").get_scale()
    found = Run(tmp_path / "broken").newest_checkpoint()
    assert found is not None and 0 < found[1]["scaler"]["scale"] < start
    broken = once(tmp_path / "broken")
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")
    assert all(torch.equal(whole[key], broken[key]) for key in whole)


def test_a_recipe_is_compiled_on_a_cpu_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(1) or function)  # counts; compiles nothing
    recipe = tiny(epochs=1, compile=True, model=MODEL.replace(" drop_path_rate=0.2, proj_drop_rate=0.1", ""))
    with pytest.warns(UserWarning, match="compile is ignored on a CPU"):
        run(recipe, tmp_path / "off", device="cpu")
    assert not compiled and read_tensors(tmp_path / "off/model.safetensors")[1]["compiled"] is False
    assert json.loads((tmp_path / "off/recipe.json").read_text())["compile"] is True
    run(recipe, tmp_path / "on", device="cpu", compile_on_cpu=True)
    assert compiled == [1] and read_tensors(tmp_path / "on/model.safetensors")[1]["compiled"] is True


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one is started while the first trains, and changes nothing."""
    tests, folder = str(ROOT / "tests/training"), str(tmp_path / "run")
    code = KILLED.format(source=str(ROOT / "src"), tests=tests, folder=folder)
    second = subprocess.CompletedProcess([], 0)

    def start(row: dict[str, object]) -> None:
        nonlocal second
        if row["step"] == 3:
            second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    run(tiny(epochs=6), folder, log=start)
    assert second.returncode == 1 and f"is in use by process {os.getpid()} on" in second.stderr
    assert [row["step"] for row in Run(tmp_path / "run").metrics() if "top1" not in row] == list(range(1, 37))


def test_a_damaged_line_of_metrics_does_not_prevent_resuming(tmp_path: Path) -> None:
    recipe = tiny(epochs=2, log_every=0)
    whole = run(recipe, tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-6] + b"\xff" + path.read_bytes()[-5:])
    with pytest.warns(UserWarning, match="1 damaged lines"):
        again = run(recipe, tmp_path)
    assert again["epoch"] == 2 and again["top1"] == whole["top1"] and again["ema_top1"] == whole["ema_top1"]
