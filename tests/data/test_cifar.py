"""CIFAR in its official layouts, written here byte by byte; pickles as Python 2 wrote them, and hostile ones."""

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from vitlab.core.errors import VitlabError
from vitlab.data.cifar import open_cifar10, open_cifar100, open_corrupted
from vitlab.data.inert_pickle import read_pickled_arrays

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FINE, COARSE = [f"fine{i}" for i in range(100)], [f"coarse{i}" for i in range(20)]

pytestmark = pytest.mark.filterwarnings("ignore:.*the official set")


def pixels(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def python2(value):
    """A pickle in protocol 2 with the opcodes that Python 2 used: str is BINSTRING, arrays are numpy.core's."""
    if isinstance(value, bytes):
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(item) for pair in value.items() for item in pair) + b"u"
    columns_first = not value.flags.c_contiguous
    dtype = b"cnumpy\ndtype\n(U\x02" + value.dtype.str[1:].encode() + b"K\x00K\x01tR(K\x03U\x01|NNNJ" + b"\xff" * 4
    dtype += b"J" + b"\xff" * 4 + b"K\x00tb"
    shape = b"(" + b"".join(map(python2, value.shape)) + b"t"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    state = b"(K\x01" + shape + dtype + (b"\x88" if columns_first else b"\x89") + python2(value.tobytes("A")) + b"tb"
    return made + state


def write(path, content, style):
    path.parent.mkdir(exist_ok=True)
    if style == "python 2":
        path.write_bytes(b"\x80\x02" + python2(content) + b".")
        np.testing.assert_equal(pickle.loads(path.read_bytes(), encoding="bytes"), content)  # our writer is sound
    else:
        path.write_bytes(pickle.dumps(content, protocol=2))


def write_cifar10(root, layout, count=4):
    """Batch i has the pixels of seed i; the test batch is batch 6."""
    batches = [(pixels(count, i), [(i + j) % 10 for j in range(count)]) for i in range(1, 7)]
    for i, (data, labels) in enumerate(batches, 1):
        name = f"data_batch_{i}" if i < 6 else "test_batch"
        if layout == "binary":
            folder = root / "cifar-10-batches-bin"
            folder.mkdir(exist_ok=True)
            rows = [bytes([y]) + x.tobytes() for x, y in zip(data, labels, strict=True)]
            (folder / f"{name}.bin").write_bytes(b"".join(rows))
            (folder / "batches.meta.txt").write_text("\n".join(TEN) + "\n\n")
        else:
            folder = root / "cifar-10-batches-py"
            names = [b"%d.png" % j for j in range(count)]
            content = {b"batch_label": b"one", b"labels": labels, b"data": data, b"filenames": names}
            write(folder / name, content, layout)
            write(folder / "batches.meta", {b"label_names": [name.encode() for name in TEN], b"num_vis": 3072}, layout)
    return batches


def write_cifar100(root, layout, count=6):
    splits = {}
    for seed, name in enumerate(("train", "test")):
        fine = [(17 * j + seed) % 100 for j in range(count)]
        splits[name] = data, fine, coarse = pixels(count, seed), fine, [y // 5 for y in fine]
        if layout == "binary":
            folder = root / "cifar-100-binary"
            folder.mkdir(exist_ok=True)
            rows = [bytes([c, f]) + x.tobytes() for x, f, c in zip(*splits[name], strict=True)]
            (folder / f"{name}.bin").write_bytes(b"".join(rows))
            (folder / "fine_label_names.txt").write_text("\n".join(FINE) + "\n")
            (folder / "coarse_label_names.txt").write_text("\n".join(COARSE) + "\n")
        else:
            folder = root / "cifar-100-python"
            content = {b"fine_labels": fine, b"coarse_labels": coarse, b"data": np.asfortranarray(data)}
            write(folder / name, content, layout)
            meta = {b"fine_label_names": FINE, b"coarse_label_names": COARSE}
            write(folder / "meta", {key: [name.encode() for name in names] for key, names in meta.items()}, layout)
    return splits


@pytest.mark.parametrize("layout", ["binary", "python 2", "python 3"])
def test_cifar10_equals_the_written_files(tmp_path, layout):
    batches = write_cifar10(tmp_path, layout)
    data = open_cifar10(tmp_path)
    assert data.classes == tuple(TEN) and data.mean == (0.4914, 0.4822, 0.4465)
    expected = np.concatenate([x for x, _ in batches[:5]])
    # Row j of pixels: 1024 of red, then of green, then of blue, row after row of the image.
    for row, image in zip(expected, data.train.images, strict=True):
        assert all(image[c, y, x] == row[1024 * c + 32 * y + x] for c, y, x in [(0, 0, 0), (1, 2, 3), (2, 31, 30)])
    assert np.array_equal(data.train.images.flatten(1).numpy(), expected)
    assert data.train.labels.tolist() == [y for _, labels in batches[:5] for y in labels]
    assert np.array_equal(data.test.images.flatten(1).numpy(), batches[5][0])
    assert data.test.labels.tolist() == batches[5][1]


@pytest.mark.parametrize("layout", ["binary", "python 2", "python 3"])
@pytest.mark.parametrize("labels", ["fine", "coarse"])
def test_cifar100_equals_the_written_files(tmp_path, layout, labels):
    splits = write_cifar100(tmp_path, layout)
    data = open_cifar100(tmp_path, labels)
    assert data.classes == tuple(FINE if labels == "fine" else COARSE)
    for images, name in ((data.train, "train"), (data.test, "test")):
        assert np.array_equal(images.images.flatten(1).numpy(), splits[name][0])
        assert images.labels.tolist() == splits[name][1 if labels == "fine" else 2]


def test_the_root_may_be_the_folder_itself(tmp_path):
    write_cifar100(tmp_path, "binary")
    assert open_cifar100(tmp_path / "cifar-100-binary").train.fingerprint == open_cifar100(tmp_path).train.fingerprint


def test_an_unofficial_number_of_images_gives_a_warning(tmp_path):
    write_cifar100(tmp_path, "binary")
    with pytest.warns(UserWarning, match="6 training images, the official set 50,000"):
        open_cifar100(tmp_path)


class Hostile:
    def __init__(self, function, *arguments):
        self.what = function, arguments

    def __reduce__(self):
        return self.what


def hostile(marker):
    return [
        pickle.dumps({b"data": Hostile(os.system, f"touch {marker}")}, protocol=2),
        pickle.dumps({b"data": Hostile(open, str(marker), "w")}),
        pickle.dumps({b"data": Hostile(eval, f"open({str(marker)!r}, 'w')")}, protocol=0),
        pickle.dumps({b"data": Hostile(np.load, str(marker))}),
        b"cos\nsystem\n(S'touch %b'\ntR." % str(marker).encode(),
        b"(S'touch %b'\nios\nsystem\n." % str(marker).encode(),
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R.",
        b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__doc__\x93.",
    ]


@pytest.mark.parametrize("which", range(8))
def test_a_hostile_pickle_raises_and_executes_nothing(tmp_path, which):
    marker = tmp_path / "marker"
    write_cifar100(tmp_path, "python 2")
    (tmp_path / "cifar-100-python" / "train").write_bytes(hostile(marker)[which])
    with pytest.raises(VitlabError, match=r"refused to read .*train: it refers to .* nothing was executed"):
        open_cifar100(tmp_path)
    assert not marker.exists()


def test_a_pickle_leaves_no_state(tmp_path):
    # BUILD on the name itself: a dictionary of attributes, as if numpy.dtype were an instance.
    (tmp_path / "odd").write_bytes(b"\x80\x02}(U\x01acnumpy\ndtype\n}(U\x04nameU\x06encodeubu.")
    read_pickled_arrays(tmp_path / "odd")
    write_cifar10(tmp_path, "python 3")
    assert len(open_cifar10(tmp_path).train) == 20
    assert np.dtype("u1").name == "uint8"


ONE = np.zeros((1, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged"),
        (b"\x80\x02", "damaged"),
        (b"not a pickle at all", "damaged"),
        (pickle.dumps([1, 2]), "damaged"),
        (pickle.dumps({b"data": 3}, protocol=2), "not a file of"),
        (b"\x80\x02}U\x04datacnumpy\ndtype\n(U\x02u1tRs.", "not an array"),
        ({b"fine_labels": [1]}, "not a file of.*'data'"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [1]}, "not a file of"),
        ({b"data": np.zeros((1, 3071), np.uint8), b"fine_labels": [1]}, "not a file of"),
        ({b"data": ONE, b"fine_labels": [b"x"]}, "not a file of"),
        ({b"data": ONE, b"fine_labels": [100]}, "100 classes"),
        ({b"data": ONE.astype("<f4"), b"fine_labels": [1]}, "not of uint8"),
    ],
)
def test_a_damaged_pickle_raises_a_vitlab_error(tmp_path, content, message):
    write_cifar100(tmp_path, "python 2")
    if isinstance(content, dict):
        write(tmp_path / "cifar-100-python" / "train", content, "python 2")
    else:
        (tmp_path / "cifar-100-python" / "train").write_bytes(content)
    with pytest.raises(VitlabError, match=message):
        open_cifar100(tmp_path)


def test_wrong_files_raise_vitlab_errors(tmp_path):
    with pytest.raises(VitlabError, match=r"-binary or .*-python; expected:\n  ROOT/cifar-100-binary"):
        open_cifar100(tmp_path)
    write_cifar100(tmp_path, "binary")
    with pytest.raises(VitlabError, match=r"no labels of cifar100 'coars'.*did you mean 'coarse'"):
        open_cifar100(tmp_path, "coars")
    file = tmp_path / "cifar-100-binary" / "train.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(VitlabError, match=r"train\.bin has 18,443 bytes, not a multiple of 3,074"):
        open_cifar100(tmp_path)
    file.unlink()
    with pytest.raises(VitlabError, match=r"no file .*train\.bin; expected:\n"):
        open_cifar100(tmp_path)


def write_corrupted(root, count=3):
    folder = root / "CIFAR-10-C"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (5 * count, 32, 32, 3), dtype=np.uint8)
    np.save(folder / "fog.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(count), 5).astype(np.uint8))
    return images


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_a_severity_is_its_fifth_of_the_rows(tmp_path, severity):
    images = write_corrupted(tmp_path)
    data = open_corrupted(tmp_path, "cifar10", "fog", severity)
    assert data.train is None and data.test.labels.tolist() == [0, 1, 2] and data.classes[9] == "9"
    for i in range(3):
        assert np.array_equal(np.asarray(data.test[i][0]), images[3 * (severity - 1) + i])


def test_all_severities_and_the_names_of_the_clean_set(tmp_path):
    write_corrupted(tmp_path)
    write_cifar10(tmp_path, "binary")
    data = open_corrupted(tmp_path, "cifar10", "fog")
    assert len(data.test) == 15 and data.classes == tuple(TEN)


def test_missing_and_invalid_corrupted_sets(tmp_path):
    with pytest.raises(VitlabError, match=r"CIFAR-100-C/labels.npy; expected:\n  ROOT/CIFAR-100-C"):
        open_corrupted(tmp_path, "cifar100", "fog")
    images = write_corrupted(tmp_path)
    folder = tmp_path / "CIFAR-10-C"
    with pytest.raises(VitlabError, match=r"'frog' .did you mean 'fog'"):
        open_corrupted(tmp_path, "cifar10", "frog")
    for severity in (0, 6, "x"):
        with pytest.raises(VitlabError, match="expected 1 to 5"):
            open_corrupted(tmp_path, "cifar10", "fog", severity)
    np.save(folder / "fog.npy", images[:-1])
    with pytest.raises(VitlabError, match="expected uint8"):
        open_corrupted(tmp_path, "cifar10", "fog")
    np.save(folder / "fog.npy", np.array([Hostile(os.system, f"touch {tmp_path}/marker")]), allow_pickle=True)
    with pytest.raises(VitlabError, match="cannot read the array"):
        open_corrupted(tmp_path, "cifar10", "fog")
    assert not (tmp_path / "marker").exists()


@pytest.mark.realdata
def test_the_real_cifar100():
    root = os.environ.get("VITLAB_DATA")
    if not root or not (Path(root) / "cifar-100-binary").is_dir():
        pytest.skip("VITLAB_DATA names no folder with cifar-100-binary in it")
    data, coarse = open_cifar100(root), open_cifar100(root, "coarse")
    assert data.train.labels.bincount().tolist() == [500] * 100
    assert data.test.labels.bincount().tolist() == [100] * 100
    assert coarse.train.labels.bincount().tolist() == [2500] * 20 and data.classes[0] == "apple"
    for channel in range(3):
        counts = np.bincount(data.train.images[:, channel].flatten().numpy(), minlength=256)
        mean = np.average(np.arange(256) / 255, weights=counts)
        deviation = np.sqrt(np.average((np.arange(256) / 255 - mean) ** 2, weights=counts))
        assert data.mean[channel] == pytest.approx(mean, abs=5e-4)
        assert data.std[channel] == pytest.approx(deviation, abs=5e-4)
