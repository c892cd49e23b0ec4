"""Instruments: each measures one thing about a model. One file each; the file's name is the instrument's name.

A file holds the maths first, as pure functions, then `measure(model, batches, **settings) -> Measurement` and its
`CARD`. Instruments never print, plot or write.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from vitlab.core import plugins
from vitlab.core.batches import recorded, require_labels
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Measurement
from vitlab.core.settings import check_settings
from vitlab.identity import display_name, identify, signed, warn_untrained

__all__ = ["measure", "measure_together"]


def measure(
    instrument: str,
    model: Any,
    batches: Iterable[Any],
    *,
    name: str | None = None,
    subject: str | None = None,
    **settings: Any,
) -> Measurement:
    """Measure a model with an instrument.

    Args:
        instrument: its name, for example `"attention_entropy"`.
        model: a torch module; it is left as it was found.
        batches: `Batches`, or any iterable of (images, targets) or of image tensors.
        name: what to call the model in reports; by default its class, its parts and a short hash of its weights.
        subject: the former name of `name`.
        settings: what the instrument takes.

    Returns:
        A Measurement: plain data. Its provenance says under `model` which model was measured.
    """
    known = plugins.instruments()
    if instrument not in known:
        raise unknown("instrument", instrument, known)
    module = importlib.import_module(known[instrument])
    check_settings(instrument, module.measure, settings)
    if not isinstance(batches, Iterable) or hasattr(batches, "shape"):
        raise VitlabError(
            f"batches must be an iterable of (images, targets), not {type(batches).__name__}; wrap one in a list"
        )
    require_labels(batches, instrument, module.CARD)
    identity = identify(model, display_name(name, subject))
    warn_untrained(identity, module.CARD)
    return signed(module.measure(model, batches, **settings), identity, recorded(batches))


def measure_together(
    names: Sequence[str], model: Any, batches: Iterable[Any], *, name: str | None = None
) -> dict[str, Measurement]:
    """Measure a model with several instruments in one pass over the data, each at its default settings.

    Args:
        names: one-pass instruments, those with an `Accumulator`.
        model: a torch module; it is left as it was found.
        batches: `Batches`, or any iterable of (images, targets) or of image tensors.
        name: what to call the model in reports, as in `measure`.

    Returns:
        The Measurements by name.
    """
    known = plugins.instruments()
    for instrument in names:
        if instrument not in known:
            raise unknown("instrument", instrument, known)
    modules = {instrument: importlib.import_module(known[instrument]) for instrument in names}
    apart = [instrument for instrument, module in modules.items() if module.CARD.passes != "shared"]
    if apart or not modules:
        raise VitlabError(
            f"measure_together runs instruments of one pass, not {', '.join(apart) or 'none'}; use measure for others"
        )
    from vitlab.instruments.shared.one_pass import observe

    identity = identify(model, name)
    for instrument, module in modules.items():
        require_labels(batches, instrument, module.CARD)
        warn_untrained(identity, module.CARD)
    found = observe(model, batches, [module.Accumulator() for module in modules.values()])
    return {
        instrument: signed(each, identity, recorded(batches)) for instrument, each in zip(modules, found, strict=True)
    }
