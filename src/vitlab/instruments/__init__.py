"""Instruments: each measures one thing about a model. One file each; the file's name is the instrument's name.

A file holds the maths first, as pure functions, then `measure(model, batches, **settings) -> Measurement` and its
`CARD`. Instruments never print, plot or write.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from vitlab.core import plugins
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Measurement
from vitlab.core.settings import check_settings

__all__ = ["measure", "measure_together"]


def measure(
    name: str, model: Any, batches: Iterable[Any], *, subject: str | None = None, **settings: Any
) -> Measurement:
    """Measure a model with the instrument of that name.

    Args:
        name: the instrument, for example `"attention_entropy"`.
        model: a torch module; it is left as it was found.
        batches: `Batches`, or any iterable of (images, targets) or of image tensors.
        subject: what to call the model in reports; by default its class.
        settings: what the instrument takes.

    Returns:
        A Measurement: plain data.
    """
    known = plugins.instruments()
    if name not in known:
        raise unknown("instrument", name, known)
    run = importlib.import_module(known[name]).measure
    check_settings(name, run, settings)
    if isinstance(batches, Iterable) and not hasattr(batches, "shape"):
        result: Measurement = run(model, batches, **settings)
        return replace(result, subject=subject) if subject else result
    raise VitlabError(
        f"batches must be an iterable of (images, targets), not {type(batches).__name__}; wrap one in a list"
    )


def measure_together(names: Sequence[str], model: Any, batches: Iterable[Any]) -> dict[str, Measurement]:
    """Measure a model with several instruments in one pass over the data, each at its default settings.

    Args:
        names: instruments that watch a single pass, those with a `Watch`.
        model: a torch module; it is left as it was found.
        batches: `Batches`, or any iterable of (images, targets) or of image tensors.

    Returns:
        The Measurements by name.
    """
    known = plugins.instruments()
    for name in names:
        if name not in known:
            raise unknown("instrument", name, known)
    modules = {name: importlib.import_module(known[name]) for name in names}
    apart = [name for name, module in modules.items() if not hasattr(module, "Watch")]
    if apart or not modules:
        raise VitlabError(
            f"measure_together runs instruments of one pass, not {', '.join(apart) or 'none'}; use measure for others"
        )
    from vitlab.instruments.observation import observe

    found = observe(model, batches, [module.Watch() for module in modules.values()])
    return dict(zip(modules, found, strict=True))
