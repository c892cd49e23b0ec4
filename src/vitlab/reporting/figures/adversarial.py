"""Accuracy by radius of an attack, one panel per attack (after CB Table 8, which has FGSM)."""

from __future__ import annotations

from collections.abc import Sequence

from vitlab.core.measurement import Measurement
from vitlab.reporting.drawing import Figure, line, remove_unused_bar_notes, start_at_zero
from vitlab.reporting.headline import Headline, Phrase, Samples, describe_number
from vitlab.reporting.panels import on_panel, panels_with_own_axes
from vitlab.reporting.percent import at, from_clean, percent, percent_error, union

_NORMS = {"linf": "L∞", "l2": "L2"}


def draw(measurements: Sequence[Measurement]) -> list[Figure]:
    """Accuracy at each radius for each attack and model; clean images are at 0."""
    attacks = union(measurements, "attack")
    norms = {str(measurement.settings.get("norm", "linf")) for measurement in measurements}
    radius = f"ε in 1/255 of the pixel range, {' and '.join(sorted(_NORMS.get(norm, norm) for norm in norms))}"
    titles = [attack.upper() for attack in attacks]
    plot = panels_with_own_axes(titles, [radius] * len(attacks), ["accuracy, % (bars: 95 %)"] * len(attacks))
    for panel, attack in enumerate(attacks):
        for index, measurement in enumerate(measurements):
            if attack in measurement.axes["attack"]:
                row = measurement.axes["attack"].index(attack)
                y, error = (part(measurement, "accuracy")[row] for part in (percent, percent_error))
                x, y, error = from_clean(measurement, measurement.axes["epsilon"], y, error)
                group = {"legendgroup": str(index), "showlegend": panel == 0, "cliponaxis": False, **on_panel(panel)}
                line(plot, x, y, measurement.subject, index, error=error, **group)
    start_at_zero(plot)
    paper = "CB Table 8 (FGSM; its ε is not given)" if "fgsm" in attacks else ""
    return [Figure(_finding(measurements), paper, remove_unused_bar_notes(plot))]


def _finding(measurements: Sequence[Measurement]) -> str | Headline:
    """Accuracy under the last attack and at the largest radius that all models have."""
    first = measurements[0].axes
    attacks = [attack for attack in first["attack"] if all(attack in m.axes["attack"] for m in measurements)]
    radii = [radius for radius in first["epsilon"] if all(radius in m.axes["epsilon"] for m in measurements)]
    if not attacks or not radii:
        return "The models were measured under different attacks: their accuracies are not comparable"
    attack, radius = attacks[-1], max(radii)
    accuracy = at("accuracy", lambda m: (m.axes["attack"].index(attack), m.axes["epsilon"].index(radius)))
    what, claim = f"Accuracy under {attack.upper()} at ε = {radius:g}/255", Phrase("Accuracy under attack is")
    return describe_number(what, measurements, accuracy, "%", claim=claim, samples=Samples())
