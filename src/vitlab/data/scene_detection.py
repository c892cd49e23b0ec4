"""Scenes as data for detection: every visible object has a box, a class and a mask.

Shape legend: K objects of a scene, h w pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitlab.data.detection import Annotated, DetectionData
from vitlab.data.labelled import digest
from vitlab.data.scene_layout import SHAPES, TEXTURES, Cues
from vitlab.data.scene_set import TEST_SCENES, SceneLabels
from vitlab.data.scenes import CLASSES, MEAN, STD, VERSION, check_scenes, draw_scenes

__all__ = ["SceneObjects", "open_scene_objects"]


@dataclass(frozen=True, eq=False)
class SceneObjects:
    """Scenes with all their visible objects, drawn on access.

    Args:
        indices: (N,) index of each scene in the infinite set of `seed`.
        size: (h, w).
        seed, objects, cues: as in `draw_scenes`.
        labels: the classes: shape with texture (`class`), `shape` or `texture`.

    >>> scenes = SceneObjects(torch.arange(4), (32, 32), labels="shape")
    >>> len(scenes), scenes.classes[0], scenes[2].boxes.shape[1]
    (4, 'circle', 4)
    """

    indices: Tensor
    size: tuple[int, int]
    seed: int = 0
    objects: int = 4
    cues: Cues = "free"
    labels: SceneLabels = "class"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return {"class": CLASSES, "shape": SHAPES, "texture": TEXTURES}[self.labels]

    def __len__(self) -> int:
        """Returns the number of scenes, N."""
        return len(self.indices)

    def __getitem__(self, i: int) -> Annotated:
        """Returns scene i with its visible objects."""
        scene = draw_scenes(1, self.size, self.seed, int(self.indices[i]), self.objects, cues=self.cues)
        found = scene.detections(0)
        kinds = {"class": scene.objects.labels, "shape": scene.objects.shapes, "texture": scene.objects.textures}
        labels = 1 + kinds[self.labels][0][scene.visibility[0] > 0]
        areas = found["masks"].flatten(1).sum(1).float()
        crowd = torch.zeros(len(labels), dtype=torch.bool)
        return Annotated(scene.images[0], found["boxes"], labels.long(), found["masks"], areas, crowd)

    @property
    def fingerprint(self) -> str:
        """A hash of the settings and of the indices."""
        about = f"scenes {VERSION} objects: {self.size} {self.seed} {self.objects} {self.cues} {self.labels}"
        return digest(about.encode(), self.indices)

    def subset(self, indices: list[int]) -> SceneObjects:
        """Returns the scenes at these indices, in this order."""
        return replace(self, indices=self.indices[indices])


def open_scene_objects(
    train: int,
    test: int,
    size: int | tuple[int, int],
    seed: int = 0,
    objects: int = 4,
    cues: Cues = "free",
    labels: SceneLabels = "class",
) -> DetectionData:
    """Open `train` and `test` scenes with their objects; the scenes are those of `open_scenes`."""
    for count, start in ((train, 0), (test, TEST_SCENES)):
        frame = check_scenes(count, size, seed, start, objects, cues)
    splits = [
        SceneObjects(torch.arange(start, start + count), frame, seed, objects, cues, labels)
        for count, start in ((train, 0), (test, TEST_SCENES))
    ]
    return DetectionData("scenes", splits[0], splits[1], splits[1].classes, MEAN, STD)
