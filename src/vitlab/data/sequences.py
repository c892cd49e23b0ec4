"""Reader for short videos in class folders, as in ImageNet-P: video files, or folders of frames.

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
    """Videos, decoded on access.

    Args:
        root: the folder of the videos.
        names: paths relative to `root`, of files or of folders of frames.
        transform: maps a frame to pixels, (3, h, w) uint8.
    """

    root: Path
    names: tuple[str, ...]
    transform: Callable[[Image.Image], Tensor]

    def __len__(self) -> int:
        """Returns the number of videos, including unreadable ones."""
        return len(self.names)

    def __getitem__(self, i: int) -> Tensor:
        """Returns video i, (T, 3, h, w) uint8; T is 0 if it cannot be read."""
        try:
            pixels = [self.transform(frame) for frame in frames(self.path(i))]
            if not pixels:
                raise VitlabError("no frames")
            return torch.stack(pixels)
        except Exception as error:  # decoders raise many types of exceptions on damaged files
            warnings.warn(f"cannot read the video {self.path(i)} ({error}); it is skipped", stacklevel=2)
            return torch.zeros(0, 3, 1, 1, dtype=torch.uint8)

    def path(self, i: int) -> Path:
        """Returns the path of video i."""
        return self.root / self.names[i]

    def spread(self, count: int | None) -> Sequences:
        """Returns `count` evenly spaced videos; all with None."""
        if count is None:
            return self
        if not isinstance(count, int) or not 2 <= count <= len(self):
            raise VitlabError(f"invalid videos={count!r}; expected 2 to {len(self)}, or None for all")
        return replace(self, names=tuple(self.names[i * len(self) // count] for i in range(count)))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names."""
        return blake2b(b"\n".join(os.fsencode(name) for name in self.names), digest_size=8).hexdigest()


def open_sequences(root: Path, transform: Callable[[Image.Image], Tensor]) -> Sequences:
    """Open the videos of class folders, sorted by class, in natural order; video files require OpenCV.

    Args:
        root: contains `<class>/<video>`.
        transform: applied to each frame.
    """
    names = [f"{group}/{name}" for group in class_folders(root) for name in _videos(root / group)]
    if not names:
        raise VitlabError(f"{root} contains no videos; expected <class>/<video>.mp4 or <class>/<video>/<frame>.jpg")
    if any(Path(name).suffix.lower() in VIDEOS for name in names):
        _decoder()
    return Sequences(root, tuple(names), transform)


def frames(path: Path) -> Iterator[Image.Image]:
    """Yields the frames of a video file or of a folder of images."""
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
    """Returns the names of video files and folders of frames, in natural order."""
    with os.scandir(folder) as entries:
        names = [
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and (entry.is_dir() or Path(entry.name).suffix.lower() in VIDEOS)
        ]
    return sorted(names, key=natural)


def _decoder() -> ModuleType:
    """Returns OpenCV, which the benchmark's own loader uses; other decoders may round colours differently."""
    try:
        import cv2
    except ImportError:
        raise VitlabError(
            "video files require OpenCV: pip install 'vitlab[video]'; or convert each video to a folder of frames, "
            "<class>/<video>/<frame>.png, with ffmpeg"
        ) from None
    module: ModuleType = cv2
    return module
