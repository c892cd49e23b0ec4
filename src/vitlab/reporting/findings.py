"""The sentence above a figure: numbers first, then which way each model lies from the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence


def finding(
    what: str,
    values: Sequence[float],
    names: Sequence[str],
    unit: str = "",
    *,
    digits: int = 3,
    errors: Sequence[float] | None = None,
    words: tuple[str, str] = ("lower", "higher"),
) -> str:
    """What one number is for each model, and how it lies to the first model's; true whichever way that is.

    Args:
        what: the number's name.
        values: one for each model, the baseline first; NaN where not known.
        names: of the models.
        unit: such as `%`, whose differences are points.
        digits: significant ones, of the largest value.
        errors: standard errors, NaN where not known: a difference within 1.96 √(a² + b²) is said to be within the
            noise. For models that saw the same images this is cautious.
        words: for less and for more.

    >>> finding("mCE", [46.1, 44.0, 46.1], ["FAN", "TAPADL", "TAP"], "%")
    'mCE: 46.1 % for FAN, 44.0 % for TAPADL (2.1 points lower), 46.1 % for TAP (the same)'
    >>> finding("APE", [20.0, 21.0], ["ViT", "PiT"], errors=[1.0, 1.0], words=("flatter", "sharper"))
    'APE: 20.0 for ViT, 21.0 for PiT (1.0 sharper, within the noise)'
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return f"{what}: not known"
    places = decimals(known, digits)
    after = f" {unit}" if unit else ""
    said = [f"{value:.{places}f}{after}" if math.isfinite(value) else "not known" for value in values]
    if len(values) == 1:
        return f"{what}: {said[0]}"
    noise = errors if errors is not None else [math.nan] * len(values)
    parts = [f"{said[0]} for {names[0]}"]
    for value, error, text, name in zip(values[1:], noise[1:], said[1:], names[1:], strict=True):
        side = _side(value - values[0], math.hypot(error, noise[0]), places, unit, words)
        parts.append(f"{text} for {name}{side}")
    return f"{what}: {', '.join(parts)}"


def decimals(values: Sequence[float], digits: int = 3) -> int:
    """How many decimals give the largest of the values so many significant digits.

    >>> decimals([0.5, 46.1]), decimals([1234.5]), decimals([0.00123])
    (1, 0, 5)
    """
    largest = max((abs(value) for value in values), default=0.0)
    return max(0, digits - 1 - math.floor(math.log10(largest))) if largest else 0


def _side(difference: float, error: float, places: int, unit: str, words: tuple[str, str]) -> str:
    if not math.isfinite(difference):
        return ""
    size = f"{abs(difference):.{places}f}"
    if not float(size):
        return " (the same)"
    points = " points" if unit == "%" else ""
    doubt = ", within the noise" if abs(difference) <= 1.96 * error else ""  # false where the error is not known
    return f" ({size}{points} {words[difference > 0]}{doubt})"
