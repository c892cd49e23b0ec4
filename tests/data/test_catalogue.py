"""Data expressions: what they open, where they look, and what they say when they cannot."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.catalogue import check_data, data_sets, open_data
from vitlab.data.imagenet import wordnet_ids
from vitlab.data.scenes import CLASSES, draw_scenes
from vitlab.data.subsets import fraction_of_each_class

pytestmark = pytest.mark.filterwarnings("ignore:.*the official set")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    monkeypatch.delenv("VITLAB_DATA", raising=False)


@pytest.fixture
def root(tmp_path):
    """A root with a tiny CIFAR-100 (200 training images, two of each class), its fog, and six classes of ImageNet."""
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (200, 3072), dtype=np.uint8)
    fine = np.arange(200)[:, None].astype(np.uint8) % 100
    table = np.concatenate([fine // 5, fine, pixels], axis=1)
    table.tofile(folder / "train.bin")
    table[:100].tofile(folder / "test.bin")
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine{i}" for i in range(100)))
    (folder / "coarse_label_names.txt").write_text("\n".join(f"coarse{i}" for i in range(20)))
    (tmp_path / "CIFAR-100-C").mkdir()
    np.save(tmp_path / "CIFAR-100-C" / "fog.npy", np.zeros((5, 32, 32, 3), np.uint8))
    np.save(tmp_path / "CIFAR-100-C" / "labels.npy", np.full(5, 7))
    for split in ("train", "val"):
        for name in wordnet_ids()[:6]:
            (tmp_path / "imagenet" / split / name).mkdir(parents=True)
            for i in range(5):
                Image.new("RGB", (2, 2)).save(tmp_path / "imagenet" / split / name / f"{i}.JPEG")
    return tmp_path


def test_scenes_are_those_of_the_generator_and_test_scenes_are_others():
    data = open_data("scenes(train=30, test=20, size=16, seed=3)")
    assert torch.equal(data.train.pixels, draw_scenes(30, 16, 3).images)
    assert torch.equal(data.train.labels, draw_scenes(30, 16, 3).labels)
    assert data.classes == CLASSES and data.name == "scenes(train=30, test=20, size=16, seed=3)"
    seen = {image.numpy().tobytes() for image in data.train.pixels}
    assert not seen & {image.numpy().tobytes() for image in data.test.pixels}
    longer = open_data("scenes(train=40, test=20, size=16, seed=3)")
    other = open_data("scenes(train=40, test=20, size=16)")
    assert longer.test.fingerprint == data.test.fingerprint != other.test.fingerprint


def test_a_fraction_of_scenes_is_unbiased():
    """Scenes and fractions draw from one generator; in a shared stream the fraction held the emptiest scenes only."""
    drawn = draw_scenes(2000, 8)
    kept = fraction_of_each_class(drawn.labels, 0.2, seed=0)
    crowds = drawn.objects.present.sum(1).double()
    error = (crowds.std() / kept.sum() ** 0.5).item()
    assert crowds[kept].mean().item() == pytest.approx(crowds.mean().item(), abs=4 * error)


def test_imagenet_may_be_the_root_itself(root):
    assert len(open_data("imagenet(full=False)", root=root / "imagenet").train) == 30
    assert len(open_data("imagenet(full=False)", root=root / "imagenet" / "val").test) == 30
    with pytest.raises(VitlabError, match=r"no ImageNet-1K in .*searched for imagenet,.*\n  ROOT/imagenet/train/"):
        open_data("imagenet", root=root / "CIFAR-100-C")


def test_scenes_are_drawn_at_the_image_size_unless_given():
    assert open_data("scenes(train=1, test=1)", image_size=(16, 24)).test.pixels.shape == (1, 3, 16, 24)
    assert open_data("scenes(train=1, test=1, size=8)", image_size=16).test.pixels.shape == (1, 3, 8, 8)
    assert open_data("scenes(train=1, test=1)").test.pixels.shape == (1, 3, 32, 32)


@pytest.mark.parametrize(
    ("expression", "train", "test", "classes"),
    [
        ("cifar100", 200, 100, 100),
        ("cifar100(fraction=0.5)", 100, 100, 100),
        ("cifar100(labels='coarse')", 200, 100, 20),
        (" cifar100(classes=10, fraction=0.5, seed=4) ", 10, 10, 10),
        ("cifar100(classes=['fine7', 'fine2'])", 4, 2, 2),
        ("cifar100c(corruption='fog')", None, 5, 100),
        ("cifar100c(corruption='fog', severity=2)", None, 1, 100),
        ("imagenet(full=False)", 30, 30, 1000),
        ("imagenet(full=False, classes=4, fraction=0.4)", 8, 20, 4),
        ("imagenet(full=False, path='imagenet/val')", None, 30, 1000),
        ("folder(path='imagenet')", 30, 30, 6),
        ("folder(path='imagenet/val', holdout=0.2, mean=[0.1, 0.2, 0.3])", 24, 6, 6),
    ],
)
def test_an_expression_opens_the_given_number_of_images(root, expression, train, test, classes):
    data = open_data(expression, root=root)
    assert (None if data.train is None else len(data.train)) == train
    assert (len(data.test), len(data.classes)) == (test, classes)
    assert data.name == expression.strip() and data.test.classes == data.classes
    assert data.train is None or data.train.classes == data.classes
    if "mean" in expression:
        assert data.mean == data.train.mean == (0.1, 0.2, 0.3)


@pytest.mark.parametrize("name", ["photos", "my photos (1)", "a, b", r"C:\new\table", r"\\server\share", "C:/new"])
@pytest.mark.parametrize("given", ["bare", "positional", "keyword", "doubled"])
def test_a_folder_by_its_path(name, given, root, tmp_path, monkeypatch):
    """On this system a Windows path is a plain name, so a folder of that name replaces it."""
    folder = tmp_path / "here" / name
    shutil.copytree(root / "imagenet", folder)
    monkeypatch.chdir(tmp_path / "here")
    windows = "\\" in name or ":" in name
    path = name if windows else f"./{name}"
    quoted = f'"{path}"' if not windows else "'" + path.replace("\\", "\\\\" if given == "doubled" else "\\") + "'"
    written = {"bare": path, "positional": f"folder({quoted})", "keyword": f"folder(path={quoted})"}
    expression = written.get(given, f"folder({quoted}, classes=4)")
    data = open_data(expression, root=root)
    assert len(data.test) == (20 if given == "doubled" else 30) and data.name == expression
    if not windows:
        assert len(open_data(str(folder)).test) == len(open_data(f"folder({str(folder)!r})").test) == 30


def test_a_windows_path_is_not_searched_below_the_root(root):
    for expression in (r"D:\photos", r"folder('D:\photos')", r"folder(path='D:\\photos')"):
        with pytest.raises(VitlabError, match=r"no folder D:\\photos"):
            open_data(expression, root=root)


def test_a_similar_folder_is_suggested(root, monkeypatch):
    monkeypatch.chdir(root)
    with pytest.raises(VitlabError, match=r"no data set 'CIFAR-100-C'; to open the folder .* write ./CIFAR-100-C"):
        open_data("CIFAR-100-C")
    assert len(open_data("imagenet('imagenet/val', full=False)", root=root).test) == 30
    monkeypatch.chdir(root / "imagenet")
    assert len(open_data(".").test) == len(open_data("../imagenet").test) == 30


def test_a_given_root_has_priority_over_the_environment(root, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("VITLAB_DATA", str(root))
    assert len(open_data("cifar100").test) == 100
    with pytest.raises(VitlabError, match="no cifar100 in"):
        open_data("cifar100", root=tmp_path_factory.mktemp("other"))
    monkeypatch.setenv("VITLAB_DATA", str(root / "gone"))
    with pytest.raises(VitlabError, match=r"no folder .*gone; correct the environment variable VITLAB_DATA"):
        open_data("cifar100")


@pytest.mark.parametrize("name", [name for name in data_sets() if name not in ("scenes", "folder")])
def test_without_a_root_the_error_names_the_option_and_the_tree(name):
    corruption = "(corruption='fog')" if name.endswith("c") else ""
    with pytest.raises(VitlabError, match=rf"{name} is read from a folder.*VITLAB_DATA.*\n  ROOT/"):
        open_data(name + corruption)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("cifar1000", "no data set 'cifar1000' .did you mean 'cifar100'"),
        ("cifar100(fractoin=0.1)", "did you mean 'fraction'.*labels, classes, fraction, seed"),
        ("cifar100(fraction=2)", "fraction=2"),
        ("cifar100(labels=[1])", r"cifar100\(labels=\[1\]\): expected 'fine' or 'coarse'"),
        ("cifar100(root='/')", "no setting of cifar100 'root'"),
        ("cifar100(__import__('os'))", "key=value"),
        ("cifar100(fraction=open('x'))", "not a literal"),
        ("cifar100(", "cannot read"),
        ("cifar100c", "requires corruption"),
        ("folder", "requires path"),
        ("folder(path=3)", "path=3"),
        ("folder(path='nowhere')", "no folder .*nowhere"),
        ("folder(path='imagenet', mean=3)", r"mean=3.*\(a number from 0 to 1, a number"),
        ("folder(path='imagenet', std=(0, 0, 0))", r"std=\(0, 0, 0\)\): expected \(a number above 0 and up to 1"),
        ("folder(path='imagenet', mean=(124, 116, 104))", r"mean=\(124, 116, 104\)\): expected \(a number from 0 to 1"),
        ("scenes(train=0)", "expected an integer from 1 to 10,000,000"),
        ("imagenet", "6 of the 1,000"),
        ("x" * 5000, "5000 characters"),
        (3, "got int"),
    ],
)
def test_mistakes_raise_vitlab_errors(root, expression, message):
    with pytest.raises(VitlabError, match=message):
        open_data(expression, root=root)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("scenes(train=-1)", r"scenes\(train=-1\): expected an integer from 1 to 10,000,000$"),
        ("scenes(train=2.0)", "expected an integer from 1"),
        ("scenes(test=True)", "expected an integer from 1"),
        ("scenes(test='9')", "expected an integer from 1"),
        ("scenes(size=7)", "integer from 8 to 4,096"),
        ("scenes(size=(32, 9000))", "integer from 8 to 4,096"),
        ("scenes(size=(32, 32, 3))", "integer from 8 to 4,096"),
        ("scenes(objects=9)", "integer from 1 to 8"),
        ("scenes(cues='agrees')", "expected one of 'free', 'agree', 'conflict'"),
        ("scenes(seed=None)", "expected an integer"),
        ("scenes(classes=0)", "classes=0"),
        ("scenes(classes=[])", "classes="),
        ("scenes(classes=[1])", "classes="),
        ("scenes(fraction=0)", "a number above 0 and up to 1"),
        ("scenes(fraction=True)", "a number above 0 and up to 1"),
        ("cifar100(fraction=1e999)", "a number above 0 and up to 1"),
        ("cifar10(labels='fine')", "no setting of cifar10 'labels'"),
        ("cifar10c(corruption=3)", "expected text in quotes"),
        ("cifar100c(corruption='fog', severity=6)", "an integer from 1 to 5, or None"),
        ("imagenet(full=1)", "expected True or False"),
        ("folder(path='here', holdout=1)", "a number above 0 and below 1, or None"),
        ("folder(path='here', std=[1, 2])", "std="),
    ],
)
def test_wrong_settings_raise_before_reading(expression, message, tmp_path):
    """The folder does not exist: whoever looks at it first raises another error."""
    for refuse in (check_data, lambda text: open_data(text, root=tmp_path / "gone")):
        with pytest.raises(VitlabError, match=message):
            refuse(expression)


def test_too_many_scenes_raise_with_the_estimate():
    """2147483647 images of 3 · 224² bytes are 323 · 10¹² bytes."""
    with pytest.raises(VitlabError, match=r"test=2147483647\): expected .* about 323 TB of memory and [\d,]+ hours"):
        check_data("scenes(test=0x7fffffff)")


@pytest.mark.parametrize("name", data_sets())
def test_valid_settings_pass_without_a_folder(name):
    own = {"cifar10c": "corruption='fog', severity=3, ", "folder": "path='nowhere', holdout=0.5, mean=[0, 0.5, 1], "}
    check_data(f"{name}({own.get(name, own['cifar10c'] if name == 'cifar100c' else '')}classes=2, fraction=1, seed=-3)")


def test_every_data_set_has_a_description():
    assert all(line.endswith((".", "download.")) and len(line) > 20 for line in data_sets().values())
