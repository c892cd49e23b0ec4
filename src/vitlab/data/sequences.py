"""Short videos in folders of classes, as ImageNet-P has them: files, or folders of frames.

    ROOT/<class>/<video>.mp4
    ROOT/<class>/<video>/<frame>.jpg     frames in natural order: 9 before 10

Shape legend: T frames, h w pixels.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from vitlab.core.errors import VitlabError
from vitlab.data.decoding import open_rgb
from vitlab.data.folders import class_folders, is_image, natural

VIDEOS = frozenset([".mp4", ".avi", ".mov", ".mkv", ".webm"])


@dataclass(frozen=True, eq=False)
class Sequences(Dataset[Tensor]):
    """Videos, decoded when they are asked for.

    Args:
        root: the folder that holds them.
        names: paths below `root`, of files or of folders of frames.
        transform: from a frame to its pixels, (3, h, w) uint8.
    """

    root: Path
    names: tuple[str, ...]
    transform: Callable[[Image.Image], Tensor]

    def __len__(self) -> int:
        """How many videos, broken ones included."""
        return len(self.names)

    def __getitem__(self, i: int) -> Tensor:
        """Video i, (T, 3, h, w) uint8; without any frame where it is broken."""
        try:
            shown = [self.transform(frame) for frame in frames(self.path(i))]
            if not shown:
                raise VitlabError("no frame in it")
            return torch.stack(shown)
        except Exception as error:  # decoders raise nearly anything on damaged bytes
            warnings.warn(f"cannot read the video {self.path(i)} ({error}); it is skipped", stacklevel=2)
            return torch.zeros(0, 3, 1, 1, dtype=torch.uint8)

    def path(self, i: int) -> Path:
        """Where video i lies."""
        return self.root / self.names[i]

    def spread(self, count: int | None) -> Sequences:
        """So many videos at even distances; all with None."""
        if count is None:
            return self
        if not isinstance(count, int) or not 2 <= count <= len(self):
            raise VitlabError(f"videos={count!r}: {self.root} holds {len(self)}; ask for 2 or more, or None for all")
        return replace(self, names=tuple(self.names[i * len(self) // count] for i in range(count)))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names."""
        return blake2b(b"\n".join(os.fsencode(name) for name in self.names), digest_size=8).hexdigest()


def open_sequences(root: Path, transform: Callable[[Image.Image], Tensor]) -> Sequences:
    """The videos of a folder of classes, class after class, in natural order; asks for OpenCV where it is needed.

    Args:
        root: holds `<class>/<video>`.
        transform: what is done to each frame.
    """
    names = [f"{group}/{name}" for group in class_folders(root) for name in _videos(root / group)]
    if not names:
        raise VitlabError(f"{root} holds no videos: expected <class>/<video>.mp4, or <class>/<video>/<frame>.jpg")
    if any(Path(name).suffix.lower() in VIDEOS for name in names):
        _decoder()
    return Sequences(root, tuple(names), transform)


def frames(path: Path) -> Iterator[Image.Image]:
    """The frames of a video, of a file or of a folder of images."""
    if path.is_dir():
        for name in sorted(filter(is_image, os.listdir(path)), key=natural):
            yield open_rgb(path / name)
        return
    opencv = _decoder()
    video = opencv.VideoCapture(str(path))
    try:
        while (read := video.read())[0]:
            yield Image.fromarray(opencv.cvtColor(read[1], opencv.COLOR_BGR2RGB))
    finally:
        video.release()


def _videos(folder: Path) -> list[str]:
    """Files of videos and folders of frames, in natural order."""
    with os.scandir(folder) as entries:
        found = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and (entry.is_dir() or Path(entry.name).suffix.lower() in VIDEOS)
        ]
    return sorted(found, key=natural)


def _decoder() -> ModuleType:
    """OpenCV, which the benchmark's own loader reads its files with: others may round colours otherwise."""
    try:
        import cv2
    except ImportError:
        raise VitlabError(
            "video files are read with OpenCV: pip install 'vitlab[video]'; or unpack each video to a folder of "
            "frames, <class>/<video>/<frame>.png, with ffmpeg"
        ) from None
    module: ModuleType = cv2
    return module
