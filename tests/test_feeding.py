from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

import vitlab
from vitlab import feeding
from vitlab.data import scene_set
from vitlab.data.catalogue import open_data
from vitlab.data.scenes import draw_scenes

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"


def test_few_images_are_of_all_classes_and_broken_ones_do_no_harm(tmp_path: Path) -> None:
    """Folders list class after class: the first images would be all of one."""
    for split in ("train", "test"):
        for name in "abcd":
            folder = tmp_path / "data" / split / name
            folder.mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (40, 40), (60 * i, 40, 90)).save(folder / f"{i}.png")
    (tmp_path / "data" / "test" / "b" / "1.png").write_bytes(b"no picture")
    data, model = f"folder(path={str(tmp_path / 'data')!r})", vitlab.load(TINY, seed=0)
    for split in ("train", "test"):
        labels = torch.cat([labels for _, labels in feeding.batches_for(model, data, 8, split=split)])
        assert sorted(set(labels.tolist())) == [0, 1, 2, 3]
    ((images, (labels, _, _)),) = feeding.batches_for(model, data, 16, augmented=True)
    assert len(images) == 16 and int(labels.min()) == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"images": 0}, "images=0: at least one image"),
        ({"images": 21}, "21 images were asked for, but the test set .* has 20; ask for fewer"),
        ({"images": 2, "split": "train"}, "2 images were asked for, but the train set .* has 1; ask for fewer"),
        ({"images": 2, "split": "val"}, "no split 'val'; there are: test, train"),
        ({"images": 2, "batch_size": 0}, "batch_size=0: a batch has at least one image"),
        ({"images": 2, "batch_size": "x"}, "batch_size='x': a batch has at least one image"),
    ],
)
def test_what_cannot_be_fed(asked, message) -> None:
    with pytest.raises(vitlab.VitlabError, match=message):
        feeding.batches_for(vitlab.load(TINY, seed=0), "scenes(train=1, test=20)", **asked)


@pytest.mark.parametrize("augmented", [False, True])
def test_only_the_scenes_that_are_used_are_drawn(augmented: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def draw(indices: torch.Tensor, **settings: object) -> torch.Tensor:
        asked.extend(indices.tolist())
        return scene_set_draw(indices, **settings)

    scene_set_draw = scene_set.draw_images
    monkeypatch.setattr(scene_set, "draw_images", draw)
    model = vitlab.load(TINY, seed=0)
    parts = feeding.parts_for(model, "scenes", 6, 2, batch_size=2, augmented=augmented)
    places = [place * 2000 // 6 for place in (0, 2, 4, 1, 3, 5)]
    assert asked == [scene_set.TEST_SCENES + place for place in places]
    assert len({part.fingerprint for part in parts}) == 2
    if not augmented:
        mean, std = (torch.tensor(value).view(3, 1, 1) for value in (parts[0].mean, parts[0].std))
        shown = torch.cat([images for part in parts for images, _ in part]) * std + mean
        expected = [draw_scenes(1, 32, start=scene_set.TEST_SCENES + place).images for place in places]
        torch.testing.assert_close(shown, torch.cat(expected) / 255, rtol=0, atol=1e-6)


def test_the_fingerprint_of_scenes_is_that_of_the_set() -> None:
    batches = feeding.batches_for(vitlab.load(TINY, seed=0), "scenes", 2)
    assert batches.fingerprint.endswith(open_data("scenes", image_size=32).test.subset([0, 1000]).fingerprint)
