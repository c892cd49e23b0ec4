"""Accuracy against the radius of an attack, one panel an attack (after CB Table 8, which has FGSM)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, line
from vitlab.reporting.judging import told
from vitlab.reporting.percent import (
    at,
    from_untouched,
    from_zero,
    on_panel,
    only_bars_that_are_there,
    percent,
    percent_error,
    union,
    unlike_panels,
)

_NORMS = {"linf": "L∞", "l2": "L2"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy at each radius, the untouched images at 0, for each attack and model."""
    attacks = union(measurements, "attack")
    norms = {str(measurement.settings.get("norm", "linf")) for measurement in measurements}
    radius = f"ε, 1/255 of the range of pixels, {' and '.join(sorted(_NORMS.get(norm, norm) for norm in norms))}"
    titles = [attack.upper() for attack in attacks]
    plot = unlike_panels(titles, [radius] * len(attacks), ["accuracy, % (bars: 95 %)"] * len(attacks))
    for panel, attack in enumerate(attacks):
        for index, measurement in enumerate(measurements):
            if attack in measurement.axes["attack"]:
                row = measurement.axes["attack"].index(attack)
                y, error = (part(measurement, "accuracy")[row] for part in (percent, percent_error))
                x, y, error = from_untouched(measurement, measurement.axes["epsilon"], y, error)
                group = {"legendgroup": str(index), "showlegend": panel == 0, "cliponaxis": False, **on_panel(panel)}
                line(plot, x, y, measurement.subject, index, error=error, **group)
    from_zero(plot)
    paper = "after CB Table 8 (FGSM; its ε is not given)" if "fgsm" in attacks else ""
    return [Figure(_finding(measurements), paper, only_bars_that_are_there(plot))]


def _finding(measurements: Sequence[Measurement]) -> str:
    """Accuracy under the last attack that all models were put under, at the largest radius that all have."""
    first = measurements[0].axes
    attacks = [attack for attack in first["attack"] if all(attack in m.axes["attack"] for m in measurements)]
    radii = [radius for radius in first["epsilon"] if all(radius in m.axes["epsilon"] for m in measurements)]
    if not attacks or not radii:
        return "The models were put under different attacks: their accuracies do not compare"
    attack, radius = attacks[-1], max(radii)
    hit = at("accuracy", lambda m: (m.axes["attack"].index(attack), m.axes["epsilon"].index(radius)))
    return told(f"Accuracy under {attack.upper()} at ε = {radius:g}/255", measurements, hit, "%")
