"""The preprocessing of a training run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from vitlab.core.recipe import Recipe
from vitlab.data.detection import DetectionData
from vitlab.data.images import DataSet
from vitlab.data.segmentation_pairs import PairData
from vitlab.identity import is_random
from vitlab.preprocessing import Preprocessing, preprocessing_of


def preprocessing_for(
    recipe: Recipe, model: nn.Module, data: DataSet | DetectionData | PairData, **fields: Any
) -> Preprocessing:
    """Returns the preprocessing of a training run.

    Trained weights keep the normalisation that they were trained with; random weights use that of the data. Crop and
    interpolation for evaluation are those of the model.

    Args:
        recipe: the training run.
        model: its model.
        data: its data.
        fields: of `Preprocessing`, which the task fixes.
    """
    own = {"mean": data.mean, "std": data.std}
    random = is_random(model)
    given = {**(own if random else {}), "size": recipe.image_size, **fields}
    how = preprocessing_of(model, given, assume=own)
    return replace(how, classes=data.classes, source=f"recipe, {'random' if random else 'trained'} weights")
