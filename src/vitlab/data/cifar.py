"""Readers for CIFAR-10 and CIFAR-100 in both official layouts, and for CIFAR-10-C and CIFAR-100-C.

Krizhevsky, "Learning multiple layers of features from tiny images", 2009; Hendrycks and Dietterich, "Benchmarking
neural network robustness to common corruptions and perturbations", ICLR 2019.

Shape legend: N images, R bytes per row: labels, then 3 · 32 · 32 pixels, channels first.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from vitlab.core.errors import VitlabError, unknown
from vitlab.data.folders import wrong_layout
from vitlab.data.images import Channels, DataSet, ImageArray, from_splits
from vitlab.data.inert_pickle import read_pickled_arrays

Bytes = NDArray[np.uint8]
Labels = Literal["fine", "coarse"]
_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Cifar:
    """What differs between the two sets: the files of each split, the class names, and the pixel statistics.

    `labels` lists the label bytes of a binary row in order, each with its key in the pickles, the key of its names in
    the pickled meta file, and the text file of its names in the binary layout.
    """

    name: str
    folders: dict[str, str]
    train: tuple[str, ...]
    test: str
    meta: str
    labels: dict[str, tuple[str, str, str]]
    mean: Channels
    std: Channels
    tree: str


CIFAR10 = _Cifar(
    "cifar10",
    {"binary": "cifar-10-batches-bin", "python": "cifar-10-batches-py"},
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    "test_batch",
    "batches.meta",
    {"fine": ("labels", "label_names", "batches.meta.txt")},
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),  # over all pixels; the common (0.2023, 0.1994, 0.2010) is a mean of per-image values
    """\
  ROOT/cifar-10-batches-bin/{data_batch_1.bin, …, data_batch_5.bin, test_batch.bin, batches.meta.txt}
or
  ROOT/cifar-10-batches-py/{data_batch_1, …, data_batch_5, test_batch, batches.meta}""",
)

CIFAR100 = _Cifar(
    "cifar100",
    {"binary": "cifar-100-binary", "python": "cifar-100-python"},
    ("train",),
    "test",
    "meta",
    {
        "coarse": ("coarse_labels", "coarse_label_names", "coarse_label_names.txt"),
        "fine": ("fine_labels", "fine_label_names", "fine_label_names.txt"),
    },
    (0.5071, 0.4867, 0.4408),
    (0.2675, 0.2565, 0.2761),
    """\
  ROOT/cifar-100-binary/{train.bin, test.bin, fine_label_names.txt, coarse_label_names.txt}
or
  ROOT/cifar-100-python/{train, test, meta}""",
)


def open_cifar10(root: str | Path) -> DataSet:
    """Open CIFAR-10: 50,000 training and 10,000 test images of 32×32, 10 classes.

    Args:
        root: contains `cifar-10-batches-bin` or `cifar-10-batches-py` (the first has priority), or is one of them.
    """
    return _open(CIFAR10, Path(root), "fine")


def open_cifar100(root: str | Path, labels: Labels = "fine") -> DataSet:
    """Open CIFAR-100: 50,000 training and 10,000 test images of 32×32.

    Args:
        root: contains `cifar-100-binary` or `cifar-100-python` (the first has priority), or is one of them.
        labels: `fine`, 100 classes, or `coarse`, their 20 superclasses.
    """
    return _open(CIFAR100, Path(root), labels)


def open_corrupted(
    root: str | Path, which: Literal["cifar10", "cifar100"], corruption: str, severity: int | None = None
) -> DataSet:
    """Open one corruption of CIFAR-10-C or CIFAR-100-C, for evaluation only.

    Each file contains the test set five times, from severity 1 to 5.

    Args:
        root: contains `CIFAR-10-C` or `CIFAR-100-C`, or is that folder. Class names are read from the clean set if it
            is there too.
        which: `cifar10` or `cifar100`.
        corruption: the name of a file, such as `fog`.
        severity: 1 to 5, or None for all five.
    """
    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[which]
    folder = Path(root) / ("CIFAR-10-C" if which == "cifar10" else "CIFAR-100-C")
    if not folder.is_dir() and (Path(root) / "labels.npy").is_file():
        folder = Path(root)
    if not (folder / "labels.npy").is_file():
        raise wrong_layout(f"no file {folder}/labels.npy", f"  ROOT/{folder.name}/{{labels.npy, fog.npy, …}}")
    choices = sorted(path.stem for path in folder.glob("*.npy") if path.stem != "labels")
    if corruption not in choices:
        raise unknown(f"corruption in {folder}", corruption, choices)
    if severity not in (None, 1, 2, 3, 4, 5):
        raise VitlabError(f"invalid severity={severity!r}; expected 1 to 5; omit it for all five")
    pixels, labels = _load(folder / f"{corruption}.npy", 4), _load(folder / "labels.npy", 1)
    if pixels.shape[1:] != (32, 32, 3) or pixels.dtype != np.uint8 or len(pixels) != len(labels) or len(labels) % 5:
        raise VitlabError(
            f"{folder}/{corruption}.npy is {pixels.dtype} of shape {pixels.shape} with {len(labels)} labels; "
            "expected uint8 (5 N, 32, 32, 3) and 5 N labels"
        )
    each = len(labels) // 5
    rows = slice(None) if severity is None else slice((severity - 1) * each, severity * each)
    images = np.ascontiguousarray(pixels[rows].transpose(0, 3, 1, 2))
    return from_splits(f"{which}c", None, _wrap(kind, images, labels[rows], _names(kind, Path(root))))


def _open(kind: _Cifar, root: Path, labels: str) -> DataSet:
    if labels not in list(kind.labels):
        raise unknown(f"labels of {kind.name}", labels, kind.labels)
    folder, layout = _find(kind, root)
    names = _read_names(kind, folder, layout, labels)
    parts = [_read(kind, folder, layout, name, labels) for name in kind.train]
    train = _wrap(kind, np.concatenate([p for p, _ in parts]), np.concatenate([y for _, y in parts]), names)
    test = _wrap(kind, *_read(kind, folder, layout, kind.test, labels), names)
    for split, images, official in (("training", train, 50_000), ("test", test, 10_000)):
        if len(images) != official:
            warnings.warn(f"{folder} has {len(images):,} {split} images, the official set {official:,}", stacklevel=3)
    return from_splits(kind.name, train, test)


def _find(kind: _Cifar, root: Path) -> tuple[Path, str]:
    """Returns the folder of the set and its layout."""
    for layout, name in kind.folders.items():
        suffix = ".bin" if layout == "binary" else ""
        for folder in (root / name, root):
            if (folder / f"{kind.test}{suffix}").is_file():
                return folder, layout
    places = " or ".join(str(root / name) for name in kind.folders.values())
    raise wrong_layout(f"no {kind.name} in {places}", kind.tree)


def _read(kind: _Cifar, folder: Path, layout: str, name: str, labels: str) -> tuple[Bytes, NDArray[Any]]:
    """Returns the pixels (N, 3, 32, 32) and labels (N,) of one file."""
    if layout == "python":
        table = read_pickled_arrays(_existing(folder / name, kind))
        try:
            pixels, numbers = table["data"], np.asarray(table[kind.labels[labels][0]], dtype=np.int64)
            return pixels.reshape(-1, 3, 32, 32), numbers.reshape(len(pixels))
        except (KeyError, AttributeError, ValueError, TypeError, OverflowError) as error:
            raise VitlabError(f"{folder / name} is not a file of {kind.name}: {error!r}; unpack it again") from error
    path = _existing(folder / f"{name}.bin", kind)
    raw, row = np.fromfile(path, dtype=np.uint8), len(kind.labels) + _PIXELS
    if not len(raw) or len(raw) % row:
        raise VitlabError(f"{path} has {len(raw):,} bytes, not a multiple of {row:,}; it is truncated or another file")
    rows = raw.reshape(-1, row)
    return rows[:, -_PIXELS:].reshape(-1, 3, 32, 32), rows[:, list(kind.labels).index(labels)]


def _read_names(kind: _Cifar, folder: Path, layout: str, labels: str) -> tuple[str, ...]:
    _, key, file = kind.labels[labels]
    if layout == "binary":
        return tuple(_existing(folder / file, kind).read_text(encoding="utf-8").split())
    names = read_pickled_arrays(_existing(folder / kind.meta, kind)).get(key)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise VitlabError(f"{folder / kind.meta} contains no list {key!r}")
    return tuple(name.decode("latin-1") if isinstance(name, bytes) else name for name in names)


def _names(kind: _Cifar, root: Path) -> tuple[str, ...]:
    """Returns the class names if the clean set is in the same folder; otherwise their numbers."""
    try:
        return _read_names(kind, *_find(kind, root), "fine")
    except VitlabError:
        return tuple(map(str, range(10 if kind is CIFAR10 else 100)))


def _wrap(kind: _Cifar, pixels: Bytes, labels: NDArray[Any], names: tuple[str, ...]) -> ImageArray:
    # torch needs writable memory: arrays from a pickle are read-only and are copied; others are not.
    images = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
    return ImageArray(images, torch.from_numpy(labels.astype(np.int64)), names, kind.mean, kind.std)


def _load(path: Path, dimensions: int) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise VitlabError(f"cannot read the array {path}: {error}") from error
    if array.ndim != dimensions:
        raise VitlabError(f"{path} has shape {array.shape}; expected {dimensions} dimensions")
    return array


def _existing(path: Path, kind: _Cifar) -> Path:
    if not path.is_file():
        raise wrong_layout(f"no file {path}", kind.tree)
    return path
