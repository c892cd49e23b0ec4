"""Instruments: each measures one property of a model. One file per instrument; the file name is the instrument name.

Each file defines the maths as pure functions, then `CARD` and `measure(model, batches, **settings) -> Measurement`.
Instruments do not print, plot or write files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vitlab.adapters.failures import measuring_errors_in_one_line
from vitlab.core import plugins
from vitlab.core.batches import require_labels
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.settings import check_settings, check_value
from vitlab.identity import display_name, identify, signed, warn_untrained
from vitlab.preprocessing import described
from vitlab.preprocessing.resolution import Given

__all__ = ["measure", "measure_together"]


def measure(
    instrument: str | Any,
    model: Any,
    batches: Iterable[Any],
    *,
    name: str | None = None,
    preprocessing: Given = None,
    subject: str | None = None,
    **settings: Any,
) -> Measurement:
    """Measure a model with an instrument.

    Args:
        instrument: name of the instrument, for example `"attention_entropy"`, an object with `CARD` and `measure`, or a
            function of model, batches and settings that returns a Measurement.
        model: a torch module; its state is restored afterwards.
        batches: `Batches`, or any iterable of (images, targets) or of image tensors.
        name: display name of the model in reports. Default: its class, its parts and a short hash of its weights.
        preprocessing: how the images of plain batches were prepared: a `Preprocessing` or some of its fields.
        subject: deprecated alias of `name`.
        settings: keyword arguments of the instrument's `measure`.

    Returns:
        A Measurement: plain data. `provenance["model"]` identifies the measured model.
    """
    named = [instrument] if isinstance(instrument, str) else []
    instrument, module = plugins.procedure("instrument", instrument, plugins.instruments())
    settings = check_settings(instrument, module.measure, settings)
    if not isinstance(batches, Iterable) or hasattr(batches, "shape"):
        raise VitlabError(
            f"invalid batches of type {type(batches).__name__}; expected an iterable of (images, targets); "
            "wrap a single batch in a list"
        )
    batches = described(model, batches, preprocessing)
    require_labels(batches, instrument, module.CARD)
    identity = identify(model, display_name(name, subject))
    warn_untrained(identity, module.CARD)
    with measuring_errors_in_one_line("instruments", named):
        return signed(module.measure(model, batches, **settings), identity, batches)


def measure_together(
    names: Sequence[str], model: Any, batches: Iterable[Any], *, name: str | None = None
) -> dict[str, Measurement]:
    """Measure a model with several instruments in one pass over the data, each at its default settings.

    Args:
        names: one-pass instruments (those that define an `Accumulator`).
        model: a torch module; its state is restored afterwards.
        batches: `Batches`, or any iterable of (images, targets) or of image tensors.
        name: display name of the model in reports, as in `measure`.

    Returns:
        Measurements by instrument name.
    """
    check_value("measure_together", "names", names, Sequence[str])
    known = plugins.instruments()
    modules = dict(plugins.procedure("instrument", instrument, known) for instrument in names)
    unsupported = [instrument for instrument, module in modules.items() if module.CARD.passes != "shared"]
    if unsupported or not modules:
        raise VitlabError(
            f"invalid instruments for measure_together: {', '.join(unsupported) or 'none'}; "
            "expected one pass instruments; use measure for others"
        )
    from vitlab.instruments.shared.one_pass import observe

    identity = identify(model, display_name(name, None))
    for instrument, module in modules.items():
        require_labels(batches, instrument, module.CARD)
        warn_untrained(identity, module.CARD)
    with measuring_errors_in_one_line("instruments", list(modules)):
        results = observe(model, batches, [module.Accumulator() for module in modules.values()])
        return {
            instrument: signed(result, identity, batches) for instrument, result in zip(modules, results, strict=True)
        }
