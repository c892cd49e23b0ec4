"""ACDC, driving scenes in fog, at night, in rain and in snow, with the labels of Cityscapes: batches by condition.

Sakaridis, Dai and Van Gool, "ACDC: the adverse conditions dataset with correspondences", ICCV 2021: 1080 × 1920 pixels;
100 validation images of each condition, 106 at night. The labels of its test images are known to its server alone.

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

#: The 19 classes of Cityscapes, by their training label; 255 is ignored.
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
as rgb_anon_trainvaltest.zip and gt_trainval.zip unpack, in ROOT or each in a folder of its own name"""

_IMAGE, _MASK = "_rgb_anon.png", "_gt_labelTrainIds.png"


@dataclass(frozen=True)
class Frames:
    """Images with their masks, read when they are asked for; they can be walked more than once.

    Args:
        pairs: the files of images and masks.
        size: (h, w) to which images are brought, bilinearly, or None. Masks keep their own size: predictions are
            brought to it.
        batch_size: images in a batch.
        mean, std: of the normalisation, by channel.
    """

    pairs: Sequence[tuple[Path, Path]]
    size: tuple[int, int] | None = None
    batch_size: int = 1
    mean: Channels = IMAGENET_DEFAULT_MEAN
    std: Channels = IMAGENET_DEFAULT_STD

    def __len__(self) -> int:
        """How many batches."""
        return -(-len(self.pairs) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(images (B, 3, h, w) float32, normalised; masks (B, H, W) uint8)."""
        shift, scale = (torch.tensor(each).view(3, 1, 1) for each in (self.mean, self.std))
        for start in range(0, len(self.pairs), self.batch_size):
            rows = [self._read(*pair) for pair in self.pairs[start : start + self.batch_size]]
            images, masks = (torch.stack(each) for each in zip(*rows, strict=True))
            yield images.float().div_(255).sub_(shift).div_(scale), masks

    def _read(self, image_path: Path, mask_path: Path) -> tuple[Tensor, Tensor]:
        """(3, h, w) uint8 and (H, W) uint8."""
        image, mask = _decode(open_rgb, image_path), _decode(open_labels, mask_path)
        if mask.dtype != np.uint8 or mask.shape != (image.height, image.width):
            raise VitlabError(
                f"{mask_path} is {mask.dtype} {mask.shape}; expected 8-bit training labels, one for each pixel "
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
    """The labelled images of ACDC by condition, for `segmentation_corruptions` with `suite="by_condition"`.

    Args:
        root: the folder that holds `rgb_anon` and `gt`.
        split: `val`, or `train`.
        size: (h, w) to which images are brought; as they are by default.
        batch_size: images in a batch.
        mean, std: those that the model was made for; ImageNet's unless given.

    Returns:
        Batches of (images (B, 3, h, w), masks (B, H, W)) for each of `CONDITIONS`.
    """
    if split == "test":
        raise VitlabError("the labels of ACDC's test images are not public; give split='val', or ask its server")
    if split not in ("train", "val"):
        raise unknown("split of ACDC", split, ("train", "val"))
    if batch_size < 1:
        raise VitlabError(f"batch_size={batch_size}: give at least one image a batch")
    images_at, masks_at = (_either(Path(root).expanduser(), *names) for names in _FOLDERS)
    found = {}
    for condition in CONDITIONS:
        pairs = _pairs(images_at / condition / split, masks_at / condition / split)
        names = blake2b("\n".join(path.name for path, _ in pairs).encode(), digest_size=8).hexdigest()
        frames = Frames(pairs, size, batch_size, mean, std)
        found[condition] = Batches(frames, mean, std, CLASSES, f"acdc {condition} {split} {len(pairs)} {names}")
    return found


Decoded = TypeVar("Decoded")

_FOLDERS = (("rgb_anon", "rgb_anon_trainvaltest/rgb_anon"), ("gt", "gt_trainval/gt"))


def _either(root: Path, *names: str) -> Path:
    """The first of these folders that is there."""
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise wrong_layout(f"no folder {names[0]} of ACDC in {root}", TREE)


def _pairs(images: Path, masks: Path) -> list[tuple[Path, Path]]:
    """Each image with its mask, in natural order."""
    found = sorted(images.glob(f"*/*{_IMAGE}"), key=lambda path: natural(str(path)))
    if not found:
        raise wrong_layout(f"{images} holds no image of ACDC", TREE)
    pairs = [(path, masks / path.parent.name / path.name.replace(_IMAGE, _MASK)) for path in found]
    missing = [mask for _, mask in pairs if not mask.is_file()]
    if missing:
        raise wrong_layout(f"{len(missing)} of {len(pairs)} images have no labels, the first is {missing[0]}", TREE)
    return pairs


def _decode(read: Callable[[Path], Decoded], path: Path) -> Decoded:
    try:
        return read(path)
    except Exception as error:  # PIL's readers raise nearly anything on damaged bytes
        raise VitlabError(f"cannot read {path} ({error}); unpack it again") from error
