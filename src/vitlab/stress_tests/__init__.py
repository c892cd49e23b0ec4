"""Stress tests: each measures a model under one kind of perturbation. The name of a file is the name of its test.

A file has its `CARD`, pure functions on pixels, and `measure(model, batches, **settings) -> Measurement`. Images are
converted to pixels in [0, 1], perturbed, clamped, and normalised again for the model. Tests on published sets, whose
card's input is `files`, take the folder of the set instead of batches.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vitlab.adapters.failures import measuring_errors_in_one_line
from vitlab.core import plugins
from vitlab.core.batches import require_labels
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.settings import check_settings
from vitlab.identity import display_name, identify, signed, warn_untrained
from vitlab.preprocessing import described
from vitlab.preprocessing.resolution import Given

__all__ = ["stress"]


def stress(
    stress_test: str | Any,
    model: Any,
    batches: Iterable[Any] | str | Path | None = None,
    *,
    name: str | None = None,
    preprocessing: Given = None,
    subject: str | None = None,
    **settings: Any,
) -> Measurement:
    """Run a stress test on a model.

    Args:
        stress_test: the name of the test, for example `"corruptions"`, an object with `CARD` and `measure`, or a
            function of model, batches and settings that returns a Measurement.
        model: a classifier; its state is restored on exit.
        batches: `Batches`, or an iterable of (images, targets), for which the mean and std of the normalisation are
            those that the model declares. Tests that generate their images (`shape_texture`) also accept None. Tests on
            published sets (`imagenet_c`) take the folder of the set.
        name: the name of the model in reports; default its class, its parts and a short hash of its weights.
        preprocessing: how the images of plain batches were prepared, or, for tests on files, how to prepare them: a
            `Preprocessing` or some of its fields.
        subject: deprecated alias of `name`.
        settings: the settings of the stress test.

    Returns:
        A Measurement. Its provenance has the identity of the model under `model`.
    """
    named = [stress_test] if isinstance(stress_test, str) else []
    stress_test, test = plugins.procedure("stress test", stress_test, plugins.stress_tests())
    if preprocessing is not None and "preprocessing" in inspect.signature(test.measure).parameters:
        settings["preprocessing"], preprocessing = preprocessing, None
    settings = check_settings(stress_test, test.measure, settings)
    _check_input(stress_test, test.CARD, batches)
    batches = described(model, batches, preprocessing)
    require_labels(batches, stress_test, test.CARD)
    identity = identify(model, display_name(name, subject))
    warn_untrained(identity, test.CARD)
    with measuring_errors_in_one_line("stress_tests", named):
        return signed(test.measure(model, batches, **settings), identity, batches)


def _check_input(name: str, card: Card, given: Any) -> None:
    """Raise an error for batches where a folder is expected, and for a folder where batches are expected."""
    path = isinstance(given, str | Path)
    if card.inputs == "files":
        if not path:
            raise VitlabError(f"{name} reads image files; expected the path of a folder, got {type(given).__name__}")
        return
    own_images = card.inputs == "optional images"
    if path or not ((given is None and own_images) or (isinstance(given, Iterable) and not hasattr(given, "shape"))):
        raise VitlabError(
            f"invalid batches of type {type(given).__name__}; expected an iterable of (images, targets); "
            "wrap a single batch in a list"
        )
