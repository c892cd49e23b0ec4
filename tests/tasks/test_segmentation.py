"""Segmentation task: loss and metric by hand, a run that resumes, parts and ADL, and the commands on its result."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import vitlab
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.recipe import Augment, Objective, Optimizer, Recipe, Segmentation, change
from vitlab.core.store import Run, read_tensors
from vitlab.data import segmentation_feed
from vitlab.data.segmentation_sets import open_pairs
from vitlab.preprocessing import Preprocessing
from vitlab.recipes.segmentation import quick_segmentation
from vitlab.reporting import read
from vitlab.runner import measure, stress
from vitlab.stress_tests.shared.segmentation_evaluation import confusion_matrix
from vitlab.tasks import segmentation, train_task
from vitlab.tasks.segmentation import MeanIoU, make_loss, pixel_cross_entropy, with_settings
from vitlab.tasks.segmentation_export import export_acdc
from vitlab.training.distributed import World

VIT = "timm/vit_tiny_patch16_224(img_size=16, patch_size=4, embed_dim=24, depth=4, num_heads=3)"
TINY = Recipe(
    model=f"vitlab/upernet(backbone={VIT!r}, width=8, auxiliary_width=4)",
    data="scenes(train=8, test=4, objects=2, labels='shape')",
    task="segmentation",
    image_size=(16, 24),
    epochs=2,
    batch_size=4,
    augment=Augment(),
    optimizer=Optimizer(lr=1e-3, warmup_epochs=0),
)


def random_case(classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes + 1, (2, 5, 7), generator=generator)
    labels[labels == classes] = 255
    return torch.randn(2, classes, 5, 7, generator=generator), labels.to(torch.uint8)


# -- loss and metric ---------------------------------------------------------------------------------------------------


def test_cross_entropy_is_the_mean_over_counted_pixels() -> None:
    logits, labels = random_case()
    values = [
        -torch.log_softmax(logits[b, :, y, x], 0)[int(labels[b, y, x])]
        for b in range(2)
        for y in range(5)
        for x in range(7)
        if labels[b, y, x] != 255
    ]
    torch.testing.assert_close(pixel_cross_entropy(logits, labels, 255), torch.stack(values).mean())
    assert pixel_cross_entropy(logits, torch.full_like(labels, 255), 255) == 0


def test_mean_iou_equals_a_brute_force_loop() -> None:
    logits, labels = random_case()
    predicted = logits.argmax(1)
    confusion = confusion_matrix(predicted, labels, 4, ignore=255)
    for label in range(4):
        hit = sum(
            int(labels[b, y, x] == label and predicted[b, y, x] == label)
            for b in range(2)
            for y in range(5)
            for x in range(7)
        )
        union = sum(
            int(labels[b, y, x] != 255 and (labels[b, y, x] == label or predicted[b, y, x] == label))
            for b in range(2)
            for y in range(5)
            for x in range(7)
        )
        found = confusion[label, label] / (confusion[label].sum() + confusion[:, label].sum() - confusion[label, label])
        assert float(found) == pytest.approx(hit / union)


class Perfect(nn.Module):
    """Predicts the labels that are written into the pixels, in one of `wrong` images wrongly."""

    def forward(self, images: Tensor) -> Tensor:
        labels = (images[:, 0] * 255).round().long()
        return torch.nn.functional.one_hot(labels, 6).permute(0, 3, 1, 2).float()


class Written:
    """Pairs whose pixels are their labels."""

    fingerprint = "written"

    def __init__(self, labels: list[Tensor]) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.labels[index].expand(3, -1, -1), torch.where(self.labels[index] == 5, 255, self.labels[index])


def test_the_metric_ignores_pixels_and_counts_ranks_once() -> None:
    labels = [torch.tensor([[0, 1, 5], [2, 3, 4]], dtype=torch.uint8), torch.tensor([[5, 5, 1]], dtype=torch.uint8)]
    data = replace(open_pairs("scenes(train=1, test=1, labels='shape')", image_size=8), test=Written(labels))
    how = Preprocessing((2, 3), (0.0,) * 3, (1.0,) * 3)
    metrics = MeanIoU(data, World(), TINY, how)(Perfect())
    assert metrics["miou"] == 100 and metrics["pixel_accuracy"] == 100 and metrics["test_images"] == 2


def test_the_auxiliary_loss_has_its_weight() -> None:
    logits, labels = random_case()

    class Two(nn.Module):
        def forward(self, images: Tensor) -> dict[str, Tensor]:
            return {"out": logits, "aux": 2 * logits}

    loss = make_loss(Segmentation(auxiliary_weight=0.4), Objective())(Two(), (logits, labels))
    expected = pixel_cross_entropy(logits, labels, 255) + 0.4 * pixel_cross_entropy(2 * logits, labels, 255)
    torch.testing.assert_close(loss, expected)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_a_run_can_be_measured_stressed_and_reported(tmp_path: Path) -> None:
    """With a part and ADL; everything works on `file/RUN` without naming the data."""
    recipe = change(TINY, {"model": TINY.model + " | TokenAwarePooling(branches=2)", "objective.diversification": 1.0})
    row = train_task(recipe, tmp_path / "run", device="cpu")
    assert 0 <= row["miou"] <= 100 and row["test_images"] == 4
    text = f"file/{tmp_path}/run"
    model = vitlab.load(text)
    assert model.img_size == (16, 24) and model.num_classes == 6 and len(vitlab.parts(model)) == 4
    settings = "segmentation_corruptions(suite='cityscapes_c', severities=[1], images=2)"
    (file,) = stress([text], [settings], tmp_path / "out", device="cpu", show=False)
    found = Measurement.load(file)
    assert (
        found.axes["class"] == ("background", "circle", "square", "triangle", "star", "ring") or found.axes["class"][0]
    )
    assert found.values["example_prediction"].shape == found.values["example_truth"].shape
    assert found.values["clean_class_iou"].shape == (6,)
    (file,) = measure([text], ["attention_entropy"], tmp_path / "out", images=2, device="cpu", show=False)
    assert Measurement.load(file).values
    with pytest.raises(VitlabError, match="a label for each pixel"):
        list(measure([text], ["calibration"], tmp_path / "out", images=2, device="cpu", show=False))
    page = vitlab.report(read([tmp_path / "out", tmp_path / "run"]), tmp_path / "report.html")
    assert "data:image/png" in page.read_text(encoding="utf-8")


def test_the_clean_stress_test_equals_the_metric_of_the_run(tmp_path: Path) -> None:
    row = train_task(TINY, tmp_path / "run", device="cpu")
    name = "segmentation_corruptions(suite='clean')"
    (file,) = stress([f"file/{tmp_path}/run"], [name], tmp_path / "out", device="cpu", show=False)
    assert 100 * Measurement.load(file).values["clean_miou"] == pytest.approx(row["miou"], abs=1e-6)


def test_an_interrupted_run_gives_the_same_weights(tmp_path: Path) -> None:
    whole = train_task(TINY, tmp_path / "whole", device="cpu")
    recipe = change(TINY, {"checkpoint_every": 1})

    def stop(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_task(recipe, tmp_path / "parts", device="cpu", log=stop)
    again = train_task(recipe, tmp_path / "parts", device="cpu")
    assert again["miou"] == whole["miou"] and again["train_loss"] == pytest.approx(whole["train_loss"], abs=0)


def test_a_sliding_window_is_part_of_the_saved_model(tmp_path: Path) -> None:
    recipe = change(TINY, {"segmentation.inference": "slide", "segmentation.stride": (8, 8), "epochs": 1})
    recipe = change(recipe, {"data": "scenes(train=4, test=2, size=(32, 40), labels='shape')"})
    train_task(recipe, tmp_path / "run", device="cpu")
    model = vitlab.load(f"file/{tmp_path}/run").eval()
    assert model.stride == (8, 8) and model(torch.randn(1, 3, 32, 40)).shape == (1, 6, 32, 40)


def test_the_base_size_is_part_of_the_saved_model(tmp_path: Path) -> None:
    """The oracle resizes images and logits by hand around a model without a base size."""
    changes = {"segmentation.inference": "slide", "segmentation.stride": (8, 8), "segmentation.base_size": (24, 60)}
    recipe = change(TINY, {**changes, "segmentation.cat_max_ratio": 0.75, "epochs": 1})
    recipe = change(recipe, {"data": "scenes(train=4, test=2, size=(32, 40), labels='shape')"})
    row = train_task(recipe, tmp_path / "run", device="cpu")
    model = vitlab.load(f"file/{tmp_path}/run").eval()
    images = torch.randn(1, 3, 32, 40, generator=torch.Generator().manual_seed(0))
    found = model(images)
    model.base_size = None
    small = torch.nn.functional.interpolate(images, (24, 30), mode="bilinear", align_corners=False)
    expected = torch.nn.functional.interpolate(model(small), (32, 40), mode="bilinear", align_corners=False)
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, model(images))
    name = "segmentation_corruptions(suite='clean')"
    (file,) = stress([f"file/{tmp_path}/run"], [name], tmp_path / "out", device="cpu", show=False)
    assert 100 * Measurement.load(file).values["clean_miou"] == pytest.approx(row["miou"], abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "timm/vit_tiny_patch16_224"}, "is not a segmentation model"),
        ({"model": f"vitlab/upernet(backbone={VIT!r}, classes=3)"}, "has classes=3, but the data has 6 classes"),
        ({"data": "camvid"}, "camvid"),
        ({"segmentation.inference": "slide"}, r"invalid stride=\(341, 341\) for windows of"),
    ],
)
def test_mistakes_are_found_before_training(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match=message):
        train_task(change(TINY, changes), tmp_path / "run", root=tmp_path, device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_wrong_test_label_is_found_before_training(tmp_path: Path) -> None:
    recipe = folder_recipe(tmp_path, train=4, test=4)
    for number in range(4):
        write_label(tmp_path / f"test/labels/{number}.png", 7)
    with pytest.raises(VitlabError, match=r"test/labels/0.png has the label 7"):
        train_task(recipe, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()
    for number in range(4):
        write_label(tmp_path / f"test/labels/{number}.png", 1)
    assert train_task(recipe, tmp_path / "run", device="cpu")["test_images"] == 4


def test_label_maps_of_one_class_are_a_warning(tmp_path: Path) -> None:
    """In masks of 0 and 255 the second class is ignored: a model that predicts 0 everywhere has a mean IoU of 100 %."""
    recipe = folder_recipe(tmp_path, train=4, test=4)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="all counted pixels")
        train_task(recipe, tmp_path / "two classes", device="cpu")
    for number in range(4):
        write_label(tmp_path / f"test/labels/{number}.png", 255)
    with pytest.warns(UserWarning, match="all counted pixels of 4 test images have the class '2'; .* replace 255 by 1"):
        train_task(recipe, tmp_path / "one class", device="cpu")


@pytest.mark.parametrize(("file", "step"), [("train/labels/3.png", 1), ("test/labels/1.png", 2)])
def test_a_wrong_label_found_during_the_run_loses_no_step(
    file: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set that is not stored on the device, and more test images than are checked before training.

    The oracle is a run on correct labels: the run resumed on corrected labels has the same weights, bit for bit.
    """
    monkeypatch.setattr(segmentation_feed, "_RESIDENT_BYTES", 0)
    monkeypatch.setattr(segmentation, "_CHECKED", 1)
    recipe = folder_recipe(tmp_path, train=8, test=20)
    expected = train_task(recipe, tmp_path / "whole", device="cpu")
    write_label(tmp_path / file, 7)
    with pytest.raises(VitlabError, match=f"{file} has the label 7"):
        train_task(recipe, tmp_path / "run", device="cpu")
    kept = Run(tmp_path / "run").newest_checkpoint()
    assert kept is not None and kept[1]["step"] == step
    write_label(tmp_path / file, 1)
    resumed = train_task(recipe, tmp_path / "run", device="cpu")
    assert {**resumed, "images_per_second": 0} == {**expected, "images_per_second": 0}
    whole, run = (read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("whole", "run"))
    assert whole.keys() == run.keys() and all(torch.equal(whole[key], run[key]) for key in whole)
    assert [row["epoch"] for row in Run(tmp_path / "run").epochs()] == [1, 2]


def folder_recipe(path: Path, train: int, test: int) -> Recipe:
    """A recipe for random images written to folders below `path`, with label 1 (2 in the upper half) of 3."""
    random = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for number in range(count):
            for kind in ("images", "labels"):
                (path / split / kind).mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 256, (16, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path / split / f"images/{number}.png")
            write_label(path / split / f"labels/{number}.png", 1)
    where = [
        f"{prefix}{kind}='{path}/{split}/{kind}'"
        for prefix, split in (("", "train"), ("test_", "test"))
        for kind in ("images", "labels")
    ]
    return change(TINY, {"data": f"pairs({', '.join(where)}, classes=3)"})


def write_label(file: Path, label: int) -> None:
    labels = np.full((16, 24), label, dtype=np.uint8)
    labels[:8] = 2
    Image.fromarray(labels).save(file)


def test_settings_of_the_expression_are_kept() -> None:
    text = with_settings(change(TINY, {"model": TINY.model[:-1] + ", size=(32, 32))"}), 6)
    assert "size=(32, 32)" in text and "classes=6" in text and "stride" not in text


# -- export ------------------------------------------------------------------------------------------------------------


class Constant(nn.Module):
    """Predicts class 18 on the left half and class 0 on the right half."""

    def __init__(self, classes: int = 19) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        logits = images.new_zeros(len(images), self.classes, *images.shape[-2:])
        logits[:, -1, :, : images.shape[-1] // 2] = 1
        logits[:, 0, :, images.shape[-1] // 2 :] = 1
        return logits


def write_test_image(folder: Path, condition: str, name: str) -> None:
    image = folder / f"rgb_anon/{condition}/test/{name[:8]}/{name}_rgb_anon.png"
    image.parent.mkdir(parents=True)
    Image.fromarray(np.zeros((4, 6, 3), dtype=np.uint8)).save(image)


def test_predictions_for_the_acdc_server_have_training_labels(tmp_path: Path) -> None:
    """The server asks for a folder labelTrainIds, training labels (0 is the road) and images of the same size."""
    write_test_image(tmp_path, "fog", "GOPR0475_frame_000041")
    with pytest.warns(UserWarning, match="preprocessing"):
        (file,) = export_acdc(Constant(), tmp_path, tmp_path / "out", ["fog"])
    assert file == tmp_path / "out/labelTrainIds/GOPR0475_frame_000041_rgb_anon.png"
    labels = np.array(Image.open(file))
    assert labels.dtype == np.uint8 and labels.tolist() == [[18, 18, 18, 0, 0, 0]] * 4
    with pytest.warns(UserWarning), pytest.raises(VitlabError, match="the model has 5 classes"):
        list(export_acdc(Constant(5), tmp_path, tmp_path / "out", ["fog"]))


def test_no_prediction_for_acdc_replaces_another(tmp_path: Path) -> None:
    for condition in ("fog", "snow"):
        write_test_image(tmp_path, condition, "GOPR0475_frame_000041")
    with pytest.warns(UserWarning), pytest.raises(VitlabError, match="have the same name"):
        list(export_acdc(Constant(), tmp_path, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_export_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block of docs/tasks.md, in a folder with one image of each condition."""
    frames = [f"GOPR000{i}_frame_000041" for i in range(4)]
    for condition, frame in zip(("fog", "night", "rain", "snow"), frames, strict=True):
        write_test_image(tmp_path / "DIR/acdc", condition, frame)
    page = (Path(__file__).resolve().parents[2] / "docs/tasks.md").read_text(encoding="utf-8")
    code = page.partition('```python title="export_acdc.py"\n')[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(vitlab, "load", lambda expression: Constant())
    with pytest.warns(UserWarning, match="preprocessing"):
        exec(code, {})
    files = {str(path.relative_to(tmp_path / "predictions")) for path in (tmp_path / "predictions").rglob("*.png")}
    assert files == {f"labelTrainIds/{frame}_rgb_anon.png" for frame in frames}


# -- the recipe without a download -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quick_segmentation_learns_more_than_the_majority_class(tmp_path: Path) -> None:
    """The full recipe, three minutes on one core: at least 20 points above predicting the background everywhere."""
    recipe = quick_segmentation()
    test = open_pairs(recipe.data, image_size=recipe.image_size).test
    counts = np.sum([np.bincount(test[index][1].flatten(), minlength=6) for index in range(len(test))], axis=0)
    majority = 100 * counts.max() / counts.sum() / 6  # the IoU of one class is its share, the others have 0
    reached = train_task(recipe, tmp_path, device="cpu")["miou"]
    stated = re.search(r"mIoU of ([\d.]+) with seed 0 on a CPU; ([\d.]+)", quick_segmentation.__doc__ or "")
    assert stated is not None and float(stated[2]) == pytest.approx(majority, abs=0.1)
    assert reached > majority + 20 and float(stated[1]) == pytest.approx(reached, abs=8)
