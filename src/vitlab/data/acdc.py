"""Reader for ACDC: driving scenes in fog, at night, in rain and in snow, with Cityscapes labels, by condition.

Sakaridis, Dai and Van Gool, "ACDC: the adverse conditions dataset with correspondences", ICCV 2021: 1080 × 1920 pixels;
100 validation images of each condition, 106 at night. The labels of the test images are not public.

Shape legend: B batch, h w pixels of the images, H W those of the masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from PIL import Image
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor

from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError, unknown
from vitlab.data.decoding import open_labels, open_rgb
from vitlab.data.folders import natural, wrong_layout
from vitlab.data.images import Channels

CONDITIONS = ("fog", "night", "rain", "snow")

#: The 19 classes of Cityscapes, indexed by training label; 255 is ignored.
CLASSES = (
    *(
        "road",
        "sidewalk",
        "building",
        "wall",
        "fence",
        "pole",
        "traffic light",
        "traffic sign",
        "vegetation",
        "terrain",
    ),
    *("sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
)

TREE = """\
  ROOT/rgb_anon/{fog,night,rain,snow}/{train,val}/<sequence>/<frame>_rgb_anon.png
  ROOT/gt/{fog,night,rain,snow}/{train,val}/<sequence>/<frame>_gt_labelTrainIds.png
the layout of rgb_anon_trainvaltest.zip and gt_trainval.zip, unpacked in ROOT or each in a folder named like it"""

_IMAGE, _MASK = "_rgb_anon.png", "_gt_labelTrainIds.png"


@dataclass(frozen=True)
class Frames:
    """Images with their masks, read on access; can be iterated more than once.

    Args:
        pairs: paths of each image and its mask.
        size: (h, w) to which images are resized, bilinearly; None keeps their size. Masks keep their own size:
            predictions are resized to it.
        batch_size: images per batch.
        mean, std: normalisation constants per channel.
    """

    pairs: Sequence[tuple[Path, Path]]
    size: tuple[int, int] | None = None
    batch_size: int = 1
    mean: Channels = IMAGENET_DEFAULT_MEAN
    std: Channels = IMAGENET_DEFAULT_STD

    def __len__(self) -> int:
        """Returns the number of batches."""
        return -(-len(self.pairs) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields (images (B, 3, h, w) float32, normalised; masks (B, H, W) uint8)."""
        shift, scale = (torch.tensor(each).view(3, 1, 1) for each in (self.mean, self.std))
        for start in range(0, len(self.pairs), self.batch_size):
            rows = [self._read(*pair) for pair in self.pairs[start : start + self.batch_size]]
            images, masks = (torch.stack(each) for each in zip(*rows, strict=True))
            yield images.float().div_(255).sub_(shift).div_(scale), masks

    def _read(self, image_path: Path, mask_path: Path) -> tuple[Tensor, Tensor]:
        """Returns the image (3, h, w) uint8 and the mask (H, W) uint8."""
        image, mask = _decode(open_rgb, image_path), _decode(open_labels, mask_path)
        if mask.dtype != np.uint8 or mask.shape != (image.height, image.width):
            raise VitlabError(
                f"{mask_path} is {mask.dtype} {mask.shape}; expected 8-bit training labels, one per pixel "
                f"of the image, {(image.height, image.width)}"
            )
        if self.size is not None:
            image = image.resize(self.size[::-1], Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1), torch.from_numpy(mask)


def open_acdc(
    root: str | Path,
    split: Literal["train", "val"] = "val",
    *,
    size: tuple[int, int] | None = None,
    batch_size: int = 1,
    mean: Channels = IMAGENET_DEFAULT_MEAN,
    std: Channels = IMAGENET_DEFAULT_STD,
) -> dict[str, Batches]:
    """Open the labelled images of ACDC by condition, for `segmentation_corruptions` with `suite="by_condition"`.

    Args:
        root: the folder that contains `rgb_anon` and `gt`.
        split: `val`, or `train`.
        size: (h, w) to which images are resized; the default keeps their size.
        batch_size: images per batch.
        mean, std: normalisation constants of the model; default ImageNet's.

    Returns:
        Batches of (images (B, 3, h, w), masks (B, H, W)) for each of `CONDITIONS`.
    """
    if str(split) == "test":
        raise VitlabError("invalid split='test'; the labels of ACDC's test images are not public; use split='val'")
    if split not in ("train", "val"):
        raise unknown("split of ACDC", split, ("train", "val"))
    if batch_size < 1:
        raise VitlabError(f"invalid batch_size={batch_size}; expected at least 1")
    by_condition = {}
    for condition in CONDITIONS:
        pairs = labelled_paths(root, split, (condition,))
        names = blake2b("\n".join(path.name for path, _ in pairs).encode(), digest_size=8).hexdigest()
        frames = Frames(pairs, size, batch_size, mean, std)
        by_condition[condition] = Batches(frames, mean, std, CLASSES, f"acdc {condition} {split} {len(pairs)} {names}")
    return by_condition


def labelled_paths(root: str | Path, split: str, conditions: Sequence[str] = CONDITIONS) -> list[tuple[Path, Path]]:
    """Paths of the images of some conditions with their label maps, which have training labels."""
    images_at, masks_at = (_first_folder(Path(root).expanduser(), *names) for names in _FOLDERS)
    return [
        pair for condition in conditions for pair in _pairs(images_at / condition / split, masks_at / condition / split)
    ]


def unlabelled_paths(root: str | Path, conditions: Sequence[str] = CONDITIONS) -> list[Path]:
    """Paths of the test images of some conditions, whose labels are not public."""
    images_at = _first_folder(Path(root).expanduser(), *_FOLDERS[0])
    paths = [path for condition in conditions for path in (images_at / condition / "test").glob(f"*/*{_IMAGE}")]
    if not paths:
        raise wrong_layout(f"{images_at} contains no test images of ACDC", TREE)
    return sorted(paths, key=lambda path: natural(str(path)))


Decoded = TypeVar("Decoded")

_FOLDERS = (("rgb_anon", "rgb_anon_trainvaltest/rgb_anon"), ("gt", "gt_trainval/gt"))


def _first_folder(root: Path, *names: str) -> Path:
    """Returns the first of these folders that exists."""
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise wrong_layout(f"folder {names[0]} of ACDC not found in {root}", TREE)


def _pairs(images: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Returns each image with its mask, in natural order."""
    paths = sorted(images.glob(f"*/*{_IMAGE}"), key=lambda path: natural(str(path)))
    if not paths:
        raise wrong_layout(f"{images} contains no images of ACDC", TREE)
    pairs = [(path, masks / path.parent.name / path.name.replace(_IMAGE, _MASK)) for path in paths]
    missing = [mask for _, mask in pairs if not mask.is_file()]
    if missing:
        raise wrong_layout(f"{len(missing)} of {len(pairs)} images have no labels, for example {missing[0]}", TREE)
    return pairs


def _decode(read: Callable[[Path], Decoded], path: Path) -> Decoded:
    try:
        return read(path)
    except Exception as error:  # PIL raises many types of exceptions on damaged files
        raise VitlabError(f"cannot read {path} ({error.__cause__ or error}); unpack it again") from error
