"""Images of a data set in a model's input format, with labels that are the model's output indices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

import vitlab
from vitlab import inputs, zoo
from vitlab.core import plugins
from vitlab.core.recipe import Augment
from vitlab.data import scene_set
from vitlab.data.catalogue import open_data
from vitlab.data.scenes import CLASSES, draw_scenes
from vitlab.inputs import Augmentation
from vitlab.preprocessing import declare

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes={})"


def tiny(outputs: int = 25, classes: tuple[str, ...] = ()) -> torch.nn.Module:
    model = vitlab.load(TINY.format(outputs), seed=0)
    half = (0.5, 0.5, 0.5)
    declare(model, mean=half, std=half, classes=classes, source="test")
    return model


def folder(root: Path, names: str, count: int = 4, size: int = 40) -> str:
    """Images of classes, each with a different grey."""
    for number, name in enumerate(names):
        place = root / name
        place.mkdir(parents=True)
        for i in range(count):
            Image.new("RGB", (size, size), (20 * number + i, 40, 90)).save(place / f"{i}.png")
    return f"folder(path={str(root)!r})"


def labels_of(batches: vitlab.core.batches.Batches) -> list[int]:
    return torch.cat([labels for _, labels in batches]).tolist()


def test_few_images_cover_all_classes_and_broken_ones_are_skipped(tmp_path: Path) -> None:
    """Folders list class after class: the first images would be all of one."""
    folder(tmp_path / "train", "abcd")
    folder(tmp_path / "test", "abcd")
    (tmp_path / "test" / "b" / "1.png").write_bytes(b"no picture")
    data, model = f"folder(path={str(tmp_path)!r})", tiny(4)
    for split in ("train", "test"):
        with pytest.warns(UserWarning, match="cannot read") if split == "test" else _nothing():
            assert sorted(set(labels_of(inputs.batches_for(model, data, 16, split=split)))) == [0, 1, 2, 3]
    shown = Augmentation(Augment(crop="resized", mixup=0.8), smoothing=0.1)
    ((images, targets),) = inputs.batches_for(model, data, 16, split="train", augmentation=shown)
    assert len(images) == 16 and targets.shape == (16, 4)
    assert torch.allclose(targets.sum(1), torch.ones(16)) and float(targets.min()) >= 0.1 / 4 - 1e-6


def test_the_augmentation_of_a_recipe_by_name() -> None:
    recipe = plugins.recipe("deit_imagenet")
    given = Augmentation(recipe.augment, recipe.objective.smoothing, "deit_imagenet")
    named, expected = (
        inputs.batches_for(tiny(25), "scenes(train=8, test=1)", 8, split="train", augmentation=each)
        for each in ("deit_imagenet", given)
    )
    for (images, targets), (same, also) in zip(named, expected, strict=True):
        assert torch.equal(images, same) and torch.equal(targets, also)
    assert named.preprocessing["augmentation"]["smoothing"] == 0.1
    with pytest.raises(vitlab.VitlabError, match="no recipe 'deit_imagnet'"):
        inputs.batches_for(tiny(25), "scenes(train=8, test=1)", 8, augmentation="deit_imagnet")


def _nothing():
    import contextlib

    return contextlib.nullcontext()


def test_labels_are_the_outputs_of_that_name(tmp_path: Path) -> None:
    """A model of ten classes on folders of four of them, in another order: positions would all be wrong."""
    names = tuple("jihgfedcba")
    batches = inputs.batches_for(tiny(10, names), folder(tmp_path, "aceg"))
    assert sorted(set(labels_of(batches))) == sorted(names.index(name) for name in "aceg")
    assert batches.labels == "by name, 4 of 10 outputs" and not batches.no_labels


def test_synsets_are_outputs_of_an_imagenet_model(tmp_path: Path) -> None:
    model = vitlab.load(TINY.format(1000), seed=0)
    for name in ("n15075141", "n01440764"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (40, 40)).save(tmp_path / name / "0.png")
    assert sorted(labels_of(inputs.batches_for(model, f"folder(path={str(tmp_path)!r})"))) == [0, 999]


def test_unknown_classes_work_only_without_labels(tmp_path: Path) -> None:
    model, data = vitlab.load(TINY.format(1000), seed=0), folder(tmp_path, "ab")
    batches = inputs.batches_for(model, data)
    assert set(labels_of(batches)) == {-1} and "are not among the names" in batches.no_labels
    vitlab.measure("attention_entropy", model, batches)
    for use, name in ((vitlab.measure, "calibration"), (vitlab.measure, "lesion"), (vitlab.stress, "occlusion")):
        with pytest.raises(vitlab.VitlabError, match=f"{name} needs labels: 2 of the data's 2 classes .* --classes"):
            use(name, model, batches)
    given = inputs.batches_for(model, data, classes={"a": 3, "b": "n01443537"})
    assert sorted(set(labels_of(given))) == [1, 3] and not given.no_labels


def test_images_without_labels_work_without_labels(tmp_path: Path) -> None:
    for i in range(3):
        Image.new("RGB", (40, 40), (50 * i, 0, 0)).save(tmp_path / f"{i}.png")
    batches = inputs.batches_for(tiny(), f"folder(path={str(tmp_path)!r})")
    vitlab.measure("attention_entropy", tiny(), batches)
    with pytest.raises(vitlab.VitlabError, match="calibration needs labels: the images have no labels"):
        vitlab.measure("calibration", tiny(), batches)


def test_a_model_of_scenes_matches_folders_of_scenes(tmp_path: Path) -> None:
    """Folders are in natural order, scenes are not: by position not one label would be right."""
    scenes = draw_scenes(60, 32, seed=3)
    for i, (pixels, label) in enumerate(zip(scenes.images, scenes.labels.tolist(), strict=True)):
        place = tmp_path / CLASSES[label]
        place.mkdir(exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place / f"{i}.png")
    batches = inputs.batches_for(tiny(25, CLASSES), f"folder(path={str(tmp_path)!r})", 60)
    expected = {tuple(pixels.flatten().tolist()): label for pixels, label in zip(scenes.images, scenes.labels.tolist(), strict=True)}  # fmt: skip # noqa: E501
    for images, labels in batches:
        pixels = ((images * 0.5 + 0.5) * 255).round().to(torch.uint8)
        assert [expected[tuple(image.flatten().tolist())] for image in pixels] == labels.tolist()


def test_files_and_arrays_of_the_same_images_are_the_same_input(tmp_path: Path) -> None:
    """Images of the input size are neither resized nor cropped, wherever they lie."""
    drawn = draw_scenes(8, 32, 0, start=2**40)
    for i, pixels in enumerate(drawn.images):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / f"{i}.png")
    arrays = torch.cat([images for images, _ in inputs.batches_for(tiny(), "scenes(train=1, test=8)")])
    files = torch.cat([images for images, _ in inputs.batches_for(tiny(), f"folder(path={str(tmp_path)!r})")])
    assert torch.equal(arrays, files)
    assert torch.allclose(arrays, (drawn.images / 255 - 0.5) / 0.5, atol=1e-6)


def test_preprocessing_can_be_given_and_is_recorded(tmp_path: Path) -> None:
    data = folder(tmp_path, "ab", size=64)
    plain = inputs.batches_for(tiny(2), data)
    assert plain.preprocessing["source"] == "test" and plain.preprocessing["crop"] == 0.875
    other = inputs.batches_for(tiny(2), data, preprocessing={"crop": 1.0, "mean": (0.0,) * 3})
    assert other.mean == (0.0,) * 3 and other.preprocessing["crop"] == 1.0
    found = vitlab.measure("attention_entropy", tiny(2), other)
    assert found.provenance["preprocessing"] == other.preprocessing
    assert found.provenance["labels"] == "by position: the model does not name its outputs"


def test_assumed_preprocessing_gives_a_warning() -> None:
    class Bare(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(3 * 16 * 16, 25)
            self.img_size = 16

        def forward(self, x):
            return self.inner(x.flatten(1))

    with pytest.warns(UserWarning, match="Bare does not declare its preprocessing"):
        batches = inputs.batches_for(Bare(), "scenes(train=1, test=8)")
    assert batches.preprocessing["source"] == "assumed"


def test_a_run_is_measured_as_it_was_trained(tmp_path: Path) -> None:
    """The file of a run holds preprocessing, class names and recipe; older files hold mean and std only."""
    model, path = tiny(3), tmp_path / "model.safetensors"
    about = {"model": TINY.format(3), "classes": ["x", "y", "z"]}
    how = {"mean": (0.1,) * 3, "std": (0.2,) * 3, "crop": 0.7, "size": (32, 32)}
    for extra, crop in (({"preprocessing": how}, 0.7), ({"mean": (0.1,) * 3, "std": (0.2,) * 3}, 0.875)):
        vitlab.core.store.write_tensors(path, model.state_dict(), {**about, **extra})
        found = vitlab.preprocessing.preprocessing_of(zoo.load(f"file/{path}"))
        assert (found.mean, found.crop, found.classes) == ((0.1,) * 3, crop, ("x", "y", "z"))
        assert str(path) in found.source


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"images": 0}, "invalid images=0; expected 1 or more"),
        ({"images": 21}, "invalid images=21; the test set .* has 20; request fewer"),
        ({"images": 2, "split": "train"}, "invalid images=2; the train set .* has 1; request fewer"),
        ({"images": 2, "split": "val"}, "no split 'val'; there are: test, train"),
        ({"images": 2, "batch_size": 0}, "invalid batch_size=0; expected 1 or more"),
        ({"images": 2, "batch_size": "x"}, "invalid batch_size='x'; expected 1 or more"),
    ],
)
def test_invalid_settings(asked, message) -> None:
    with pytest.raises(vitlab.VitlabError, match=message):
        inputs.batches_for(tiny(), "scenes(train=1, test=20)", **asked)


def test_small_sets_are_used_completely_by_default() -> None:
    assert len(labels_of(inputs.batches_for(tiny(), "scenes(train=1, test=20)"))) == 20
    assert len(labels_of(inputs.batches_for(tiny(), "scenes(train=1, test=90)"))) == 64


@pytest.mark.parametrize("shown", [None, Augmentation(Augment(crop="resized"))])
def test_only_the_scenes_that_are_used_are_drawn(shown, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def draw(indices: torch.Tensor, **settings: object) -> torch.Tensor:
        asked.extend(indices.tolist())
        return scene_set_draw(indices, **settings)

    scene_set_draw = scene_set.draw_images
    monkeypatch.setattr(scene_set, "draw_images", draw)
    parts = inputs.parts_for(tiny(), "scenes", 6, 2, batch_size=2, augmentation=shown)
    places = [place * 2000 // 6 for place in (0, 2, 4, 1, 3, 5)]
    assert asked == [scene_set.TEST_SCENES + place for place in places]
    assert len({part.fingerprint for part in parts}) == 2
    if shown is None:
        mean, std = (torch.tensor(value).view(3, 1, 1) for value in (parts[0].mean, parts[0].std))
        images = torch.cat([images for part in parts for images, _ in part]) * std + mean
        expected = [draw_scenes(1, 32, start=scene_set.TEST_SCENES + place).images for place in places]
        torch.testing.assert_close(images, torch.cat(expected) / 255, rtol=0, atol=1e-6)


def test_the_fingerprint_of_scenes_is_that_of_the_set() -> None:
    batches = inputs.batches_for(tiny(), "scenes", 2)
    assert batches.fingerprint.endswith(open_data("scenes", image_size=32).test.subset([0, 1000]).fingerprint)
