"""Stress tests: each puts a model under one kind of perturbation. One file each; the file's name is the test's name.

A file holds the maths first, as pure functions on pixels, then `measure(model, batches, **settings) -> Measurement`
and its `CARD`. Images go to pixels in [0, 1], are acted on, clamped, and come back as the model eats them. Tests over
published sets, whose card says `files`, take the folder that holds the set in place of batches.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vitlab.core import plugins
from vitlab.core.batches import recorded, require_labels
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.settings import check_settings
from vitlab.identity import display_name, identify, signed, warn_untrained

__all__ = ["stress"]


def stress(
    stress_test: str,
    model: Any,
    batches: Iterable[Any] | str | Path | None = None,
    *,
    name: str | None = None,
    subject: str | None = None,
    **settings: Any,
) -> Measurement:
    """Put a model under a stress test.

    Args:
        stress_test: its name, for example `"corruptions"`.
        model: a classifier; it is left as it was found.
        batches: `Batches`, or an iterable of (images, targets): then mean and std of the normalisation come from the
            model's `pretrained_cfg`. Tests that bring their own images (`shape_texture`) also take None. Tests over
            published sets (`imagenet_c`) take the folder that holds the set.
        name: what to call the model in reports; by default its class, its parts and a short hash of its weights.
        subject: the former name of `name`.
        settings: what the stress test takes.

    Returns:
        A Measurement: plain data. Its provenance says under `model` which model was measured.
    """
    known = plugins.stress_tests()
    if stress_test not in known:
        raise unknown("stress test", stress_test, known)
    test = importlib.import_module(known[stress_test])
    check_settings(stress_test, test.measure, settings)
    _check_given(stress_test, test.CARD, batches)
    require_labels(batches, stress_test, test.CARD)
    identity = identify(model, display_name(name, subject))
    warn_untrained(identity, test.CARD)
    return signed(test.measure(model, batches, **settings), identity, recorded(batches))


def _check_given(name: str, card: Card, given: Any) -> None:
    """Refuse batches where a folder is wanted, and the other way round."""
    path = isinstance(given, str | Path)
    if card.inputs == "files":
        if not path:
            raise VitlabError(f"{name} reads its images from files; give the folder, not {type(given).__name__}")
        return
    own_images = card.inputs == "optional images"
    if path or not ((given is None and own_images) or (isinstance(given, Iterable) and not hasattr(given, "shape"))):
        raise VitlabError(
            f"batches must be an iterable of (images, targets), not {type(given).__name__}; wrap one in a list"
        )
