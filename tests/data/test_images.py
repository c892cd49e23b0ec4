"""Both kinds of image sets: pixels equal those written, and broken files are counted exactly in any process."""

import hashlib
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms.functional import pil_to_tensor

from vitlab.core.errors import VitlabError
from vitlab.data.images import IGNORED, ImageArray, ImageFiles, drop_broken, from_splits

CLASSES = ("ant", "bee", "cow")


def array(count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 5, 7), generator=generator, dtype=torch.uint8)
    return ImageArray(images, torch.arange(count) % 3, CLASSES)


def files(folder, on_broken="replace", count=6, broken=(), missing=()):
    """Image i is one colour, its red being 10 i."""
    names = [f"{i}.png" for i in range(count)]
    for i, name in enumerate(names):
        Image.new("RGB", (4, 4), (10 * i, 1, 2)).save(folder / name)
    for i in broken:
        (folder / names[i]).write_bytes((folder / names[i]).read_bytes()[:40])
    for i in missing:
        (folder / names[i]).unlink()
    return ImageFiles(folder, np.array(names, dtype="S"), torch.arange(count) % 3, CLASSES, on_broken=on_broken)


def read_all(images, workers=0, context=None):
    """The red and the label of every image that a DataLoader yields."""
    loader = DataLoader(images, batch_size=4, num_workers=workers, collate_fn=list, multiprocessing_context=context)
    reds, labels = zip(*((image.getpixel((0, 0))[0], label) for batch in loader for image, label in batch), strict=True)
    return list(reds), list(labels)


def test_an_item_of_an_array_is_its_pixels_and_its_label():
    images = array()
    image, label = images[4]
    assert torch.equal(pil_to_tensor(image), images.images[4]) and label == 1
    with pytest.raises(IndexError):
        images[6]


@pytest.mark.parametrize("indices", [[4, 0], torch.tensor([4, 0]), np.array([4, 0])])
def test_a_subset_has_the_requested_rows(indices, tmp_path):
    images, lazy = array(), files(tmp_path)
    part = images.subset(indices)
    assert torch.equal(part.images, torch.stack([images.images[4], images.images[0]]))
    assert part.labels.tolist() == [1, 0] and part.classes == CLASSES
    assert [path.name for path in map(lazy.subset(indices).path, (0, 1))] == ["4.png", "0.png"]


def test_a_mask_is_a_subset_too_and_not_the_indices_0_and_1():
    mask = torch.tensor([False, True, False, False, False, True])
    assert array().subset(mask).labels.tolist() == [1, 2]


def test_fingerprints_follow_the_contents(tmp_path):
    images, lazy = array(), files(tmp_path)
    assert images.fingerprint == array().fingerprint != array(seed=1).fingerprint
    assert images.subset(range(6)).fingerprint == images.fingerprint != images.subset([1, 0, 2, 3, 4, 5]).fingerprint
    assert lazy.fingerprint == lazy.subset(range(6)).fingerprint != lazy.subset(range(5)).fingerprint
    assert images.subset([]).fingerprint != images.fingerprint
    other = ImageArray(images.images, images.labels, ("a", "bee", "cow"))
    assert other.fingerprint != images.fingerprint
    parts = [images.images.numpy().tobytes(), images.labels.numpy().tobytes(), b"ant\nbee\ncow"]
    framed = b"".join(f"{len(part)}:".encode() + part for part in parts)
    assert images.fingerprint == hashlib.blake2b(framed, digest_size=8).hexdigest()


@pytest.mark.parametrize("workers", [0, 2])
def test_in_training_broken_images_are_replaced_and_counted(tmp_path, workers):
    images = files(tmp_path, broken=[1], missing=[4, 5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reds, labels = read_all(images, workers)
    # 1 -> 2; 4 -> 5 (gone) -> 0, round the end; 5 -> 0: each with the label of the image that is shown.
    assert reds == [0, 20, 20, 30, 0, 0] and labels == [0, 2, 2, 0, 0, 0]
    assert [path.name for path in images.broken_paths] == ["1.png", "4.png", "5.png"]


@pytest.mark.parametrize("workers", [0, 2])
def test_in_evaluation_broken_images_are_marked_and_not_counted(tmp_path, workers):
    images = files(tmp_path, "mark", broken=[1], missing=[4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reds, labels = read_all(images, workers)
    assert labels == [0, IGNORED, 2, 0, IGNORED, 2]
    assert int(images.broken.sum()) == 2
    kept, targets = drop_broken(torch.tensor(reds), torch.tensor(labels))
    assert kept.tolist() == [0, 20, 30, 50] and targets.tolist() == [0, 2, 0, 2]


@pytest.mark.slow
def test_workers_that_are_spawned_report_too(tmp_path):
    images = files(tmp_path, "mark", broken=[1], missing=[4])
    read_all(images, workers=1, context="spawn")
    assert [path.name for path in images.broken_paths] == ["1.png", "4.png"]


def test_a_broken_file_is_named_in_one_warning_only(tmp_path):
    images = files(tmp_path, broken=[1])
    with pytest.warns(UserWarning, match=r"1\.png") as caught:
        images[1], images[1]
    assert len(caught) == 1


def test_cross_entropy_leaves_marked_images_out():
    logits, targets = torch.randn(4, 3), torch.tensor([0, IGNORED, 2, IGNORED])
    expected = torch.nn.functional.cross_entropy(logits[[0, 2]], targets[[0, 2]])
    assert torch.equal(torch.nn.functional.cross_entropy(logits, targets), expected)


def test_a_set_of_broken_files_only_raises(tmp_path):
    images = files(tmp_path, missing=range(6))
    with pytest.warns(UserWarning), pytest.raises(VitlabError, match="6 images in a row"):
        images[2]


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path, mode):
    Image.new("RGB", (4, 4), (204, 204, 204)).convert(mode).save(tmp_path / "0.tiff")
    images = ImageFiles(tmp_path, np.array(["0.tiff"], dtype="S"), torch.tensor([0]), CLASSES)
    image, _ = images[0]
    assert image.mode == "RGB" and image.getpixel((1, 1)) == (204, 204, 204)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 4, 4), torch.tensor([0, 1]), "uint8"),
        (torch.zeros(2, 4, 4, 3, dtype=torch.uint8), torch.tensor([0, 1]), r"\(N, 3, h, w\)"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0]), r"int64 of \(2,\)"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 3]), "0 to 3.*3 classes"),
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([-1, 0]), "-1 to 0"),
    ],
)
def test_invalid_image_sets_raise(images, labels, message):
    with pytest.raises(VitlabError, match=message):
        ImageArray(images, labels, CLASSES)


def test_an_evaluation_set_raises_in_training():
    data = from_splits("fog", None, array())
    assert (data.classes, data.mean, data.std) == (CLASSES, data.test.mean, data.test.std)
    with pytest.raises(VitlabError, match="'fog' is for evaluation only"):
        data.to_train_on()
    assert len(from_splits("both", array(), array(3)).to_train_on()) == 6
