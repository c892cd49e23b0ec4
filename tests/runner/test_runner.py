"""Measuring by name: stored measurements are reused only if nothing has changed; passes are shared."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from PIL import Image

import vitlab
from vitlab import inputs, runner, zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Inputs, Measurement, Passes
from vitlab.core.recipe import change
from vitlab.core.step_cache import step
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.scenes import CLASSES
from vitlab.progress import Bar
from vitlab.recipes.quick import quick
from vitlab.runner import measured_model
from vitlab.stress_tests import corruptions
from vitlab.tasks.classification import run as train

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"


FEW = "scenes(train=1, test=16)"


def measured(model: str, name: str, out: Path, images: int = 4) -> tuple[Path, Measurement]:
    (path,) = runner.measure([model], [name], out, data=FEW, images=images, show=False)
    return path, Measurement.load(path)


def test_stored_measurements_are_reused_and_others_measured(tmp_path: Path) -> None:
    path, first = measured(TINY, "attention_diversity", tmp_path)
    assert measured(TINY, "attention_diversity", tmp_path)[1].provenance["time"] == first.provenance["time"]
    other, second = measured(TINY, "attention_diversity(tau=0.5)", tmp_path)
    assert other != path and second.settings["tau"] == 0.5
    assert measured(TINY, "attention_diversity", tmp_path)[1].settings.get("tau", 0) == 0
    _, more = measured(TINY, "attention_diversity", tmp_path, images=5)
    assert more.provenance["images"] == 5


def test_progress_uses_the_display_name(tmp_path: Path) -> None:
    bar, shown = Bar(1, show=False), []
    piece = bar.piece
    bar.piece = lambda what, weight=1: shown.append(what) or piece(what, weight)  # type: ignore[method-assign, func-returns-value]
    list(runner.measure([TINY], ["calibration"], tmp_path, data=FEW, images=4, called=["small"], bar=bar))
    assert shown == ["calibration of small"]


def test_a_damaged_measurement_is_measured_again(tmp_path: Path) -> None:
    path, first = measured(TINY, "attention_entropy", tmp_path)
    damaged = path.read_text().replace('"images": 4', '"images": 5')
    assert damaged != path.read_text()
    path.write_text(damaged)
    second = measured(TINY, "attention_entropy", tmp_path)[1]
    assert second.provenance["images"] == 4
    np.testing.assert_array_equal(first.values["mean"], second.values["mean"])


def test_new_weights_in_the_same_file_are_measured_again(tmp_path: Path) -> None:
    model, path = vitlab.load(TINY, seed=0), tmp_path / "model.safetensors"
    zoo.save(model, TINY, str(path))
    _, first = measured(f"file/{path}", "attention_entropy", tmp_path / "out")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(20)
    zoo.save(model, TINY, str(path))
    _, second = measured(f"file/{path}", "attention_entropy", tmp_path / "out")
    assert (first.values["mean"] != second.values["mean"]).all()


def test_changed_settings_of_the_same_weights_are_measured_again(tmp_path: Path) -> None:
    """A local model of Hugging Face whose config.json is edited: the file of its weights stays the same."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "intermediate_size": 24, "image_size": 32, "patch_size": 16}
    folder = tmp_path / "model"
    ViTForImageClassification(ViTConfig(**sizes, num_attention_heads=2, num_labels=25)).save_pretrained(folder)
    shapes = []
    for heads in (2, 3, 3):
        config = json.loads((folder / "config.json").read_text()) | {"num_attention_heads": heads}
        (folder / "config.json").write_text(json.dumps(config))
        path, found = measured(f"hf/{folder}", "attention_entropy", tmp_path / "out")
        shapes.append((found.values["mean"].shape, path.stat().st_mtime_ns))
    assert [shape for shape, _ in shapes] == [(1, 2), (1, 3), (1, 3)]
    assert shapes[1] == shapes[2], "measured again without a change"


def test_changed_code_of_an_extension_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from torch import nn\nVITLAB = {{'parts': ['Scale']}}\nclass Scale(nn.Module):\n"
    code += "    default_seam = 'attn.out'\n    def forward(self, x):\n        return {} * x\n"
    variances = []
    for factor in (0.5, 4.0):
        path = tmp_path / str(factor) / "mine.py"
        path.parent.mkdir()
        path.write_text(code.format(factor))
        monkeypatch.setenv("VITLAB_PLUGINS", str(path))
        variances.append(measured(f"{TINY} | Scale", "feature_variance", tmp_path / "out")[1].values["variance"])
    assert not np.allclose(variances[0], variances[1])


# -- interrupted and resumed ------------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]


def killed_after(steps: int, out: Path) -> int:
    """Start `vitlab stress` in a separate process and kill -9 it after some steps; returns how many were finished."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "vitlab", "stress", TINY, "--data", FEW, "--images", "4", "--out", str(out)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while len(list(out.rglob("*.npz"))) < steps and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not list(out.rglob("*.json")), "it was faster than the kill"
    return len(list(out.rglob("*.steps/*.npz")))


def test_finished_corruptions_survive_kill_9(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = killed_after(20, tmp_path / "killed")
    assert 20 <= finished < 76
    done: list[tuple[str, int]] = []

    def counted(images, name, severity, **settings):
        if len(images) == 4:  # fewer for the pictures of the report
            done.append((name, severity))
        return corrupt(images, name, severity, **settings)

    corrupt = corruptions.corrupt_pixels
    monkeypatch.setattr(corruptions, "corrupt_pixels", counted)
    (path,) = runner.stress([TINY], ["corruptions"], tmp_path / "killed", data=FEW, images=4, show=False)
    assert len(done) == len(set(done)) == 76 - finished  # the untouched images were among the first steps
    (whole,) = runner.stress([TINY], ["corruptions"], tmp_path / "whole", data=FEW, images=4, show=False)
    found, expected = Measurement.load(path), Measurement.load(whole)
    for name, value in expected.values.items():
        np.testing.assert_array_equal(found.values[name], value, err_msg=name)
    assert sorted(file.suffix for file in path.parent.iterdir()) == [".json", ".npz"], "steps are gone"


def test_train_fit_receives_both_sets(tmp_path: Path) -> None:
    data = "scenes(train=48, test=16)"
    (path,) = runner.measure([TINY], ["train_fit"], tmp_path, data=data, images=16, augment="none", show=False)
    found = Measurement.load(path)
    model = vitlab.load(TINY, seed=0)
    both = [inputs.batches_for(model, data, 16, split=split) for split in ("train", "test")]
    by_hand = vitlab.measure("train_fit", model, both[0], test=both[1])
    assert {name: float(found.values[name]) for name in ("train_nll", "test_nll", "train_images")} == {
        name: float(by_hand.values[name]) for name in ("train_nll", "test_nll", "train_images")
    }
    assert found.values["train_nll"] != found.values["test_nll"]
    assert "train[16 of 48, evenly" in found.provenance["data"] and "test[all 16]" in found.provenance["test_data"]
    again = runner.measure([TINY], ["train_fit"], tmp_path, data=data, images=16, augment="none", show=False)
    assert list(again) == [path]
    other = "scenes(train=48, test=17)"
    (again,) = runner.measure([TINY], ["train_fit"], tmp_path, data=other, images=16, augment="none", show=False)
    assert Measurement.load(again).provenance["test_data"] != found.provenance["test_data"], "another test set"
    with pytest.raises(vitlab.VitlabError, match="takes its test set from --data"):
        list(runner.measure([TINY], ["train_fit(test=1)"], tmp_path, data=data, images=16, show=False))


def test_training_images_have_the_requested_augmentation(tmp_path: Path) -> None:
    """HDVW's training images are augmented; by default as the recipe of the run, else as DeiT's."""
    data, found = "scenes(train=48, test=16)", {}
    for augment in (None, "weak", "none"):
        (path,) = runner.measure(
            [TINY], ["train_fit"], tmp_path / str(augment), data=data, images=16, augment=augment, show=False
        )
        found[augment] = Measurement.load(path)
    assert len({float(each.values["train_nll"]) for each in found.values()}) == 3
    assert len({float(each.values["test_nll"]) for each in found.values()}) == 1
    about = found[None].provenance["preprocessing"]["augmentation"]
    assert about["name"] == "deit_imagenet (default)" and about["mixup"] == 0.8 and about["smoothing"] == 0.1
    assert found["weak"].provenance["preprocessing"]["augmentation"]["smoothing"] == 0
    assert "augmentation" not in found["none"].provenance["preprocessing"]
    with pytest.raises(vitlab.VitlabError, match="no recipe 'strong'"):
        list(runner.measure([TINY], ["train_fit"], tmp_path, data=data, images=16, augment="strong", show=False))


def test_hessians_are_of_augmented_training_images(tmp_path: Path) -> None:
    data = "scenes(train=20, test=20)"
    (path,) = runner.measure([TINY], ["hessian_spectrum(count=1)"], tmp_path, data=data, images=20, show=False)
    found = Measurement.load(path)
    assert found.provenance["images"] == 16 and "train[all 20]" in found.provenance["data"]
    assert "augmented by deit_imagenet" in found.provenance["data"]
    model, before = vitlab.load(TINY, seed=0), (torch.get_rng_state(), random.getstate(), np.random.get_state()[1])
    augmentation = measured_model.augmentation(None, None)
    clean, shown = (
        inputs.batches_for(model, data, 20, split="train", augmentation=each) for each in (None, augmentation)
    )
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()
    (images, targets), (rest, _) = shown
    assert images.shape == next(iter(clean))[0].shape and not torch.equal(images, next(iter(clean))[0])
    assert targets.shape == (16, 25) and len(rest) == 4, "none is lost"
    first, second = inputs.parts_for(model, data, 20, 2, augmentation=augmentation)
    assert not torch.equal(next(iter(first))[1], next(iter(second))[1]), "every part is drawn by itself"


def test_a_run_is_measured_on_its_own_data_with_its_own_augmentation(tmp_path: Path) -> None:
    recipe = change(
        quick(epochs=1, images=32), {"data": "scenes(train=32, test=12, seed=7)", "batch_size": 16, "compile": False}
    )
    train(recipe, tmp_path / "run")
    run = f"file/{tmp_path / 'run'}"
    paths = runner.measure([run], ["calibration", "train_fit"], tmp_path / "out", images=12, show=False)
    calibration, fit = map(Measurement.load, paths)
    assert "seed=7" in calibration.provenance["data"] and "train[12 of 32, evenly spaced]" in fit.provenance["data"]
    assert calibration.provenance["preprocessing"]["source"].startswith("training run")
    assert calibration.provenance["labels"] == "by name, 25 of 25 outputs"
    assert fit.provenance["preprocessing"]["augmentation"]["name"] == "the recipe that trained the model"
    assert fit.provenance["preprocessing"]["augmentation"]["crop"] == recipe.augment.crop
    last = Run(tmp_path / "run").epochs()[-1]
    assert 100 * float(calibration.values["accuracy"]) == pytest.approx(last["top1"], abs=1e-6)
    (elsewhere,) = runner.measure([run], ["calibration"], tmp_path / "o", data="scenes(test=12)", show=False)
    assert "seed=7" not in Measurement.load(elsewhere).provenance["data"]


def test_changed_code_preprocessing_or_labels_are_measured_again(tmp_path: Path, monkeypatch) -> None:
    _, first = measured(TINY, "calibration", tmp_path)

    def again(**how) -> Measurement:
        asked = {"data": FEW, "images": 4, "show": False, **how}
        (path,) = runner.measure([TINY], ["calibration"], tmp_path, **asked)
        return Measurement.load(path)

    assert again().provenance["identity"] == first.provenance["identity"]
    assert again(preprocessing={"mean": (0.0,) * 3}).values["nll"] != first.values["nll"]
    reverse = {name: 24 - i for i, name in enumerate(CLASSES)}
    assert again(classes=reverse).values["nll"] != first.values["nll"]
    known = again().provenance["identity"]
    monkeypatch.setattr(measured_model, "code_version", lambda module: "another")
    assert again().provenance["identity"] != known


def test_corrected_classes_and_replaced_images_are_measured_again(tmp_path: Path) -> None:
    """Their names and numbers are the same as before; the oracle is a measurement in an empty folder."""
    for number, name in enumerate(("cat", "dog", "fox")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for image in range(2):
            Image.new("RGB", (32, 32), (90 * number, 50 * image, 40)).save(tmp_path / "data" / name / f"{image}.png")

    def nll(classes: Any, out: str = "out") -> float:
        options: dict[str, Any] = {"data": str(tmp_path / "data"), "classes": classes, "show": False}
        (found,) = runner.measure_models([TINY], ["calibration"], tmp_path / out, **options)
        return float(found.values["nll"])

    first, second = {"cat": 0, "dog": 1, "fox": 2}, {"cat": 2, "dog": 0, "fox": 1}
    assert nll(first) != nll(second) == nll(second, "fresh")
    names = [f"class {i}" for i in range(25)]
    listed = [[*order, *names[3:]] for order in (("cat", "dog", "fox"), ("fox", "cat", "dog"))]
    assert nll(listed[0]) != nll(listed[1]) == nll(listed[1], "listed")
    old = nll(second)
    for path in (tmp_path / "data").rglob("*.png"):
        Image.new("RGB", (32, 32), (10, 200, 250)).save(path)
    assert old != nll(second) == nll(second, "replaced")


def test_resolved_settings_are_stored(tmp_path: Path) -> None:
    """A setting that a test resolves is stored as resolved, not as given."""
    (path,) = runner.stress([TINY], ["occlusion(grid=None)"], tmp_path, data=FEW, images=4, show=False)
    assert Measurement.load(path).settings["grid"] == [4, 4]


# -- inputs of images, of files, and none -----------------------------------------------------------------------------


def fake(monkeypatch: pytest.MonkeyPatch, taken: str) -> tuple[runner.Kind, list]:
    """A kind with one test that records its inputs. It has two steps and stops at the second with `stop`."""
    fed: list = []

    def look(model, batches, stop=False):
        def second():
            if stop:
                raise KeyboardInterrupt
            fed.append("second")
            return {"x": np.array(2.0)}

        step("first", 2, lambda: fed.append("first") or {"x": np.array(1.0)})
        return Measurement("probe", "", {"x": step("second", 2, second)["x"]}, {"x": ()})

    def run(test, model, batches, *, name, **settings):
        fed.append(batches)
        return replace(look(model, batches, **settings), subject=name)

    module = SimpleNamespace(measure=look, CARD=Card("a probe", "", "", taken))
    monkeypatch.setitem(sys.modules, "probe_of_the_laboratory", module)
    return runner.Kind("probe", lambda: {"probe": "probe_of_the_laboratory"}, run), fed


def test_a_file_based_test_receives_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VITLAB_DATA", raising=False)
    kind, fed = fake(monkeypatch, "files")
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()

    def run(root: Path | None) -> list[Path]:
        found = runner.run_all(kind, [TINY], ["probe"], tmp_path / "out", root=root, repeats=3, show=False)
        return list(found)

    with pytest.raises(vitlab.VitlabError, match="probe.*give --root"):
        run(None)
    with pytest.raises(vitlab.VitlabError, match="no folder .*nowhere; correct --root"):
        run(tmp_path / "nowhere")
    (path,) = run(tmp_path / "here")
    assert path.name == "probe.json" and fed == [tmp_path / "here", "first", "second"]
    run(tmp_path / "here" / ".." / "here")
    assert len(fed) == 3, "measured again"
    run(tmp_path / "there")
    assert fed[3:] == [tmp_path / "there", "first", "second"]
    monkeypatch.setenv("VITLAB_DATA", str(tmp_path / "here"))
    run(None)
    assert fed[6] == tmp_path / "here"


def test_other_files_in_the_same_folder_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, fed = fake(monkeypatch, "files")
    root = tmp_path / "root"
    root.mkdir()

    def run() -> int:
        list(runner.run_all(kind, [TINY, f"{TINY} | ContextBroadcast"], ["probe"], root / "out", root=root, show=False))
        return fed.count(root)

    assert run() == 2 and run() == 2, "its own results are no new files"
    (root / "0.jpg").touch()
    assert run() == 4 and run() == 4
    (root / "0.jpg").write_bytes(b"1")
    assert run() == 6
    monkeypatch.setattr(measured_model, "declared", lambda model: {"crop": 0.5})
    assert run() == 8, "the model declares another preprocessing"


@pytest.mark.parametrize("setting", ["images", "videos"])
def test_a_file_based_test_receives_the_number_of_images(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[dict[str, object]] = []
    kind, _ = fake(monkeypatch, "files")
    look = sys.modules["probe_of_the_laboratory"].measure
    more = inspect.Parameter(setting, inspect.Parameter.KEYWORD_ONLY, default=None)
    signature = inspect.signature(look)
    look.__signature__ = signature.replace(parameters=[*signature.parameters.values(), more])

    def run(test, model, batches, *, name, **settings):
        received.append(settings)
        return Measurement("probe", name, {}, {})

    kind = replace(kind, run=run)
    for images, text in ((None, "probe"), (7, "probe"), (7, "probe"), (8, "probe"), (8, f"probe({setting}=3)")):
        asked = {"root": tmp_path, "images": images, "show": False}
        (path,) = runner.run_all(kind, [TINY], [text], tmp_path / "out", **asked)
        assert Measurement.load(path).settings == received[-1]
    assert received == [{}, {setting: 7}, {setting: 8}, {setting: 3}]


def test_a_mistake_in_the_data_is_reported_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match="train=-1"):
        list(runner.measure(["timm/none"], ["lesion"], tmp_path, data="scenes(train=-1)", show=False))


@pytest.mark.parametrize("verb", [runner.measure, runner.stress])
def test_no_instruments_raise_an_error(verb, tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match="was named; give --with, of: "):
        list(verb([TINY], [], tmp_path, show=False))


def test_instruments_without_images_open_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, fed = fake(monkeypatch, "nothing")
    monkeypatch.setattr(inputs, "open_data", None)
    (path,) = runner.run_all(kind, [TINY], ["probe"], tmp_path, repeats=2, show=False)
    assert fed == [(), "first", "second"] and path.name == "probe.json"
    fitted = f"{TINY} | ScaledContextBroadcast"
    (path,) = runner.measure([fitted], ["broadcast_scale"], tmp_path, data="cifar100", show=False)
    assert Measurement.load(path).values["ratio"].shape == (2,)


def test_steps_of_other_weights_settings_or_images_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, fed = fake(monkeypatch, "images")
    file = tmp_path / "model.safetensors"

    def run(text: str = "probe", images: int = 4) -> list:
        del fed[:]
        out = tmp_path / "out"
        list(runner.run_all(kind, [f"file/{file}"], [text], out, data=FEW, images=images, show=False))
        return fed[1:]

    model = vitlab.load(TINY, seed=0)
    zoo.save(model, TINY, str(file))
    with pytest.raises(KeyboardInterrupt):
        run("probe(stop=True)")
    assert run("probe(stop=False)") == ["first", "second"]
    with pytest.raises(KeyboardInterrupt):
        run("probe(stop=True)", images=5)
    assert fed[1:] == ["first"]
    with pytest.raises(KeyboardInterrupt):
        run("probe(stop=True)", images=5)
    assert fed[1:] == []
    zoo.save(vitlab.load(TINY, seed=1), TINY, str(file))
    with pytest.raises(KeyboardInterrupt):
        run("probe(stop=True)", images=5)
    assert fed[1:] == ["first"]


# -- repeats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("images", "repeats"), [(7, 3), (4, 4), (6, 1)])
def test_repeats_are_disjoint_and_cover_all_images(
    images: int, repeats: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, fed = fake(monkeypatch, "images")

    def run() -> list[Path]:
        asked = {"data": FEW, "images": images, "repeats": repeats, "show": False}
        return list(runner.run_all(kind, [TINY], ["probe"], tmp_path, **asked))

    paths = run()
    test = open_data(FEW, image_size=(32, 32)).test
    batches = [item for item in fed if not isinstance(item, str)]
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (batches[0].mean, batches[0].std))
    shown = [torch.cat([x for x, _ in part]) * std + mean for part in batches]
    for number, part in enumerate(shown):
        places = [place * len(test) // images for place in range(number, images, repeats)]
        expected = test.pixels[places].float() / 255
        torch.testing.assert_close(part, expected, rtol=0, atol=1e-5)
    assert sum(map(len, shown)) == images and len({part.fingerprint for part in batches}) == repeats
    parts = [Measurement.load(path).provenance.get("part") for path in paths]
    if repeats == 1:
        assert [path.name for path in paths] == ["probe.json"] and parts == [None]
    else:
        assert [path.name for path in paths] == [f"probe.part{i}of{repeats}.json" for i in range(1, repeats + 1)]
        assert parts == [[i, repeats] for i in range(1, repeats + 1)]
    assert run() == paths and len([item for item in fed if not isinstance(item, str)]) == repeats, "measured again"


@pytest.mark.parametrize("repeats", [0, 5])
def test_repeats_are_at_most_the_number_of_images(repeats: int, tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match=f"repeats={repeats}"):
        list(runner.measure([TINY], ["calibration"], tmp_path, images=4, repeats=repeats, show=False))


@pytest.mark.parametrize("images", [None, 10**9])
def test_so_many_repeats_that_their_list_fills_the_memory_are_refused(images: int | None, tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match=r"^invalid repeats=1000000000; expected 1 to 10,000$"):
        list(runner.measure([TINY], ["calibration"], tmp_path, images=images, repeats=10**9, show=False))


def test_an_unavailable_device_raises(tmp_path: Path) -> None:
    with pytest.raises(vitlab.VitlabError, match="no device 'tpu' .*there are: cpu, cuda, mps"):
        list(runner.measure([], ["attention_entropy"], tmp_path, device="tpu"))


# -- one pass for several instruments ---------------------------------------------------------------------------------

SHARED = ["attention_entropy", "feature_fourier", "attention_distance"]


def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch sizes of all forwards of models that are loaded from now on."""
    seen: list[int] = []
    load = zoo.load

    def hooked(*arguments, **settings):
        model = load(*arguments, **settings)
        model.register_forward_hook(lambda module, given, output: seen.append(len(given[0])))
        return model

    monkeypatch.setattr(zoo, "load", hooked)
    return seen


def test_instruments_of_a_shared_pass_take_one_pass_and_give_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = forwards(monkeypatch)
    asked = {"data": FEW, "images": 10, "show": False}

    def passes(names: list[str], out: str, **also: object) -> tuple[int, list[Path]]:
        del seen[:]
        paths = list(runner.measure([TINY], names, tmp_path / out, **{**asked, **also}))
        return sum(size == 10 for size in seen), paths

    one, together = passes(SHARED, "together")
    three, apart = zip(*(passes([name], "apart") for name in SHARED), strict=True)
    assert one == 1 and three == (1, 1, 1)
    assert [path.stem for path in together] == SHARED
    for path, (other,) in zip(together, apart, strict=True):
        found, expected = Measurement.load(path), Measurement.load(other)
        for name, value in expected.values.items():
            np.testing.assert_array_equal(found.values[name], value, err_msg=name)
        same = {"time": "", "command": ""}
        assert {**found.provenance, **same} == {**expected.provenance, **same}
        assert replace(found, provenance={}) == replace(expected, provenance={})
    assert passes(SHARED, "together") == (0, together), "all are stored"
    assert passes(SHARED, "apart")[0] == 0, "each has the identity that it has alone"
    together[1].unlink()
    assert passes(SHARED, "together")[0] == 1, "only the missing one"
    assert passes([*SHARED, "token_overfocus", "feature_variance"], "together")[0] == 1, "both that are new"
    assert passes(["attention_diversity(tau=0.5)", "attention_entropy"], "other")[0] == 2, "settings are not shared"


def test_each_part_of_the_images_takes_one_shared_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = forwards(monkeypatch)
    paths = list(runner.measure([TINY], SHARED, tmp_path, data=FEW, images=9, repeats=3, show=False))
    assert seen.count(3) == 3 and len(set(paths)) == 9
    assert all(Measurement.load(path).provenance["images"] == 3 for path in paths)


def test_a_test_with_images_of_its_own_is_not_repeated(tmp_path: Path) -> None:
    asked = {"data": FEW, "images": 4, "repeats": 2, "show": False}
    (path,) = runner.stress([TINY], ["shape_texture(count=4)"], tmp_path, **asked)
    assert "part" not in Measurement.load(path).provenance


@pytest.mark.parametrize("name", [*plugins.instruments(), *plugins.stress_tests()])
def test_cards_list_the_arguments_of_their_files(name: str) -> None:
    module = importlib.import_module({**plugins.instruments(), **plugins.stress_tests()}[name])
    card, parameters = module.CARD, list(inspect.signature(module.measure).parameters.items())
    assert card.inputs in get_args(Inputs) and card.passes in get_args(Passes)
    assert (card.passes == "shared") == hasattr(module, "Accumulator")
    assert (card.inputs == "files") == (parameters[1][0] == "root")
    optional = card.inputs in ("optional images", "nothing")
    assert optional == (parameters[1][1].default is not inspect.Parameter.empty)
    assert (card.inputs == "training and test images") == ("test" in dict(parameters[2:]))


def test_measure_models_and_stress_models_return_what_is_stored(tmp_path: Path) -> None:
    asked = {"data": FEW, "images": 4, "show": False, "called": ["small"]}
    (found,) = vitlab.measure_models([TINY], ["attention_entropy"], tmp_path / "public", **asked)
    (path,) = runner.measure([TINY], ["attention_entropy"], tmp_path / "internal", **asked)
    assert (found.values["mean"] == Measurement.load(path).values["mean"]).all() and found.subject == "small"
    (stored,) = (tmp_path / "public").rglob("*.json")
    before = stored.stat().st_mtime_ns
    assert vitlab.measure_models([TINY], ["attention_entropy"], str(tmp_path / "public"), **asked) == [found]
    assert stored.stat().st_mtime_ns == before  # not made again
    as_numpy = {**asked, "images": np.int64(asked["images"]), "root": str(tmp_path)}
    assert vitlab.measure_models([TINY], ["attention_entropy"], str(tmp_path / "public"), **as_numpy) == [found]
    assert stored.stat().st_mtime_ns == before
    (shuffled,) = vitlab.stress_models([TINY], ["patch_shuffle(grids=(2,))"], tmp_path / "stress", **asked)
    assert shuffled.kind == "patch_shuffle" and shuffled.settings["grids"] == [2]


@pytest.mark.parametrize(
    ("models", "options", "error"),
    [
        (TINY, {}, r"measure_models\(models=.*: expected a list, each text in quotes"),
        ([TINY], {"image": 4}, r"no setting of measure_models 'image' \(did you mean 'images'\?\)"),
        ([TINY], {"images": "4"}, "images='4'.*expected an integer"),
    ],
)
def test_mistakes_in_measure_models(models: Any, options: dict[str, Any], error: str, tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match=error):
        vitlab.measure_models(models, ["attention_entropy"], tmp_path, **options)
