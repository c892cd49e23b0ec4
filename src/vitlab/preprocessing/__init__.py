"""Preprocessing of a model: input size, crop, interpolation, normalisation and class names.

`zoo` stores the values of a model's source on the model (`declare`). All code that converts images to inputs gets them
from `preprocessing_of`.
"""

from __future__ import annotations

from vitlab.preprocessing.declaration import declare, declared
from vitlab.preprocessing.description import Preprocessing
from vitlab.preprocessing.labels import LabelMatch, match_labels, same_order
from vitlab.preprocessing.resolution import described, input_size, normalisation_of, preprocessing_of

__all__ = [
    "LabelMatch",
    "Preprocessing",
    "declare",
    "declared",
    "described",
    "input_size",
    "match_labels",
    "normalisation_of",
    "preprocessing_of",
    "same_order",
]
