"""The sentence above a figure: numbers first, then which way each model lies from the baseline, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vitlab.core.repeats import NORMAL

UNKNOWN = "noise not known"


def verdict(difference: float, half_width: float, other: float = 0.0) -> str:
    """Whether two numbers differ by more than their noise: titles, tables and the summary all say this.

    The interval of a difference of independent numbers has the half width √(a² + b²) of the half widths of both, which
    readers can check from what is printed (Zou and Donner, Statistics in Medicine 2008). It is cautious: wider than
    Welch's where the intervals are Student's over few repeats.

    Args:
        difference: of two numbers.
        half_width, other: half of the 95 % interval of each, or the first that of the difference; NaN or 0 where it is
            not known.

    >>> verdict(5.1, 3.0, 4.0), verdict(4.9, 3.0, 4.0), verdict(5.1, math.nan, 4.0)
    ('larger than the noise', 'within the noise', 'noise not known')
    """
    half = math.hypot(half_width, other)
    if not half > 0 or math.isinf(half):
        return UNKNOWN
    return "larger than the noise" if abs(difference) > half else "within the noise"


def finding(
    what: str,
    values: Sequence[float],
    names: Sequence[str],
    unit: str = "",
    *,
    digits: int = 3,
    errors: Sequence[float] | None = None,
    halves: Sequence[float] | None = None,
    verdicts: Sequence[str] | None = None,
    words: tuple[str, str] = ("lower", "higher"),
    noisy: bool = True,
) -> str:
    """What one number is for each model, and how it lies to the first model's; true whichever way that is.

    Args:
        what: the number's name.
        values: one for each model, the baseline first; NaN where not known.
        names: of the models.
        unit: such as `%`, whose differences are points.
        digits: significant ones, of the largest value.
        errors: standard errors, NaN where not known; numbers count as independent.
        halves: half of the 95 % interval of each instead.
        verdicts: what `verdict` says of each model but the first, where it is known already.
        words: for less and for more.
        noisy: whether noise is worth a word where no error is known; a setting has none.

    >>> finding("mCE", [46.1, 44.0, 46.1], ["FAN", "TAPADL", "TAP"], "%")
    'mCE: 46.1 % for FAN, 44.0 % for TAPADL (2.1 points lower), 46.1 % for TAP (the same); noise not known'
    >>> finding("APE", [20.0, 21.0], ["ViT", "PiT"], errors=[1.0, 1.0], words=("flatter", "sharper"))
    'APE: 20.0 for ViT, 21.0 for PiT (1.0 sharper, within the noise)'
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return f"{what}: not known"
    places = _places(values, decimals(known, digits))
    half = [math.nan] * len(values) if errors is None else [NORMAL * error for error in errors]
    half = half if halves is None else list(halves)
    said = [_number(value, places, unit) for value in values]
    if len(values) == 1:
        return f"{what}: {said[0]}{spread(half[0], noisy=noisy)}"
    judged = [verdict(value - values[0], half[0], each) for value, each in zip(values[1:], half[1:], strict=True)]
    judged = judged if verdicts is None else list(verdicts)
    places = max(places, _places_to_see(values, judged))
    said = [_number(value, places, unit) for value in values]
    parts = [f"{said[0]} for {names[0]}"]
    silent = all(each == UNKNOWN for each in judged)
    for value, text, name, judgement in zip(values[1:], said[1:], names[1:], judged, strict=True):
        doubt = "" if silent or judgement.startswith("larger") else f", {judgement}"
        side = _side(_rounded(value, places) - _rounded(values[0], places), places, unit, words, doubt)
        parts.append(f"{text} for {name}{side}")
    return f"{what}: {', '.join(parts)}{f'; {UNKNOWN}' if silent and noisy else ''}"


def spread(half_width: float, *, noisy: bool = True) -> str:
    """What follows a number that stands alone: half of its 95 % interval, or that its noise is not known.

    >>> spread(0.123), spread(math.nan)
    (' ± 0.12', ', noise not known')
    """
    if math.isfinite(half_width) and half_width > 0:
        return f" ± {half_width:.2g}"
    return f", {UNKNOWN}" if noisy else ""


def decimals(values: Sequence[float], digits: int = 3) -> int:
    """How many decimals give the largest of the values so many significant digits.

    >>> decimals([0.5, 46.1]), decimals([1234.5]), decimals([0.00123])
    (1, 0, 5)
    """
    largest = max((abs(value) for value in values), default=0.0)
    return max(0, digits - 1 - math.floor(math.log10(largest))) if largest else 0


def _places(values: Sequence[float], places: int) -> int:
    """One decimal more where rounded numbers would differ by something else than the rounded difference."""
    first = values[0]
    off = (
        _rounded(_rounded(value, places) - _rounded(first, places) - _rounded(value - first, places), places)
        for value in values[1:]
        if math.isfinite(value - first)
    )
    return places + 1 if any(off) else places


def _places_to_see(values: Sequence[float], judged: Sequence[str]) -> int:
    """How many decimals show every difference that is larger than its noise: it must not read as `the same`."""
    pairs = zip(values[1:], judged, strict=True)
    gaps = [abs(value - values[0]) for value, each in pairs if each.startswith("larger") and value != values[0]]
    return max((math.ceil(-math.log10(gap)) for gap in gaps), default=0)


def _rounded(value: float, places: int) -> float:
    return float(f"{value:.{places}f}")


def _number(value: float, places: int, unit: str) -> str:
    return f"{value:.{places}f}{f' {unit}' if unit else ''}" if math.isfinite(value) else "not known"


def _side(difference: float, places: int, unit: str, words: tuple[str, str], doubt: str) -> str:
    """How printed numbers differ: what a reader who subtracts them finds."""
    if not math.isfinite(difference):
        return ""
    size = f"{abs(difference):.{places}f}"
    if not float(size):
        return " (the same)"
    points = " points" if unit == "%" else ""
    return f" ({size}{points} {words[difference > 0]}{doubt})"
