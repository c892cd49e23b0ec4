"""A model of the page: its input for a condition, and its traces, which are cached.

Shape legend: C channels, h w pixels, K classes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from vitlab.core.anatomy import Anatomy
from vitlab.core.errors import VitlabError
from vitlab.corruptions.apply import corrupt
from vitlab.explore.ablations import ablated, check
from vitlab.explore.conditions import Condition, Place, hide
from vitlab.explore.images import ImageCollection
from vitlab.instruments.shared.image_trace import ImageTrace, image_tracer
from vitlab.instruments.shared.predictions import device_of
from vitlab.preprocessing import Preprocessing

_CACHED = 16  # traces in memory per model: clean and changed conditions of recent images


@dataclass
class ShownModel:
    """One model of the page.

    Args:
        name: its name on the page.
        model: the model, in evaluation mode.
        anatomy: its description.
        preprocessing: the preprocessing of the model.
        classes: names of its outputs.
        outputs: the output of each label of the data; empty if the labels do not match the outputs.
        places: what can be ablated in each block.
        images: the images of the page.
        grid: rows and columns of the patches that can be hidden.
    """

    name: str
    model: nn.Module
    anatomy: Anatomy
    preprocessing: Preprocessing
    classes: Sequence[str]
    outputs: Sequence[int]
    places: Sequence[dict[Place, int]]
    images: ImageCollection
    grid: tuple[int, int]
    _traces: OrderedDict[Condition, ImageTrace] = field(default_factory=OrderedDict)

    def trace(self, condition: Condition) -> ImageTrace:
        """The attention and predictions of the model, cached by condition."""
        if condition not in self._traces:
            check(condition.ablations, self.places)
            image = self.pixels(condition)[None].to(device_of(self.model))
            with (
                torch.no_grad(),
                ablated(self.model, self.anatomy, condition.ablations),
                image_tracer(self.model, anatomy=self.anatomy) as trace,
            ):
                self._traces[condition] = trace(image)
        self._traces.move_to_end(condition)
        while len(self._traces) > _CACHED:
            self._traces.popitem(last=False)
        return self._traces[condition]

    def pixels(self, condition: Condition) -> Tensor:
        """(C, h, w) the input of the model."""
        mean, std = self._normalisation()
        pixels = self.preprocessing.transform()(self.images.picture(condition.image)).float() / 255
        if condition.severity and condition.corruption:
            key = [self.images.key(condition.image)]
            pixels = corrupt(pixels[None], condition.corruption, condition.severity, indices=key)[0]
        return hide((pixels - mean) / std, condition.hidden, self.grid)

    def picture(self, condition: Condition) -> Tensor:
        """(C, h, w) the input of the model as colours from 0 to 1."""
        mean, std = self._normalisation()
        return (self.pixels(condition) * std + mean).clamp(0, 1)

    def label_output(self, image: str) -> int | None:
        """The output of the model for the label of an image; None if there is no label or no match."""
        label = self.images.label_index(image)
        return self.outputs[label] if label is not None and label < len(self.outputs) else None

    def class_index(self, name: str) -> int:
        """The output with a class name."""
        if name not in self.classes:
            raise VitlabError(f"no class {name[:60]!r} in the outputs of {self.name}; choose another class")
        return list(self.classes).index(name)

    def _normalisation(self) -> tuple[Tensor, Tensor]:
        mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (self.preprocessing.mean, self.preprocessing.std))
        return mean, std
