"""Files of ACDC: driving scenes in fog, at night, in rain and in snow, with Cityscapes labels, by condition.

Sakaridis, Dai and Van Gool, "ACDC: the adverse conditions dataset with correspondences", ICCV 2021: 1080 × 1920 pixels;
100 validation images of each condition, 106 at night. The labels of the test images are not public.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vitlab.core.user_path import user_path
from vitlab.data.folders import natural, wrong_layout

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

_FOLDERS = (("rgb_anon", "rgb_anon_trainvaltest/rgb_anon"), ("gt", "gt_trainval/gt"))
_IMAGE, _MASK = "_rgb_anon.png", "_gt_labelTrainIds.png"


def labelled_paths(root: str | Path, split: str, conditions: Sequence[str] = CONDITIONS) -> list[tuple[Path, Path]]:
    """Paths of the images of some conditions with their label maps, which have training labels."""
    images_at, masks_at = (_first_folder(user_path(root), *names) for names in _FOLDERS)
    return [
        pair for condition in conditions for pair in _pairs(images_at / condition / split, masks_at / condition / split)
    ]


def unlabelled_paths(root: str | Path, conditions: Sequence[str] = CONDITIONS) -> list[Path]:
    """Paths of the test images of some conditions, whose labels are not public."""
    images_at = _first_folder(user_path(root), *_FOLDERS[0])
    paths = [path for condition in conditions for path in (images_at / condition / "test").glob(f"*/*{_IMAGE}")]
    if not paths:
        raise wrong_layout(f"{images_at} contains no test images of ACDC", TREE)
    return sorted(paths, key=lambda path: natural(str(path)))


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
