"""The title of a figure: the number of each model, its difference from the baseline, and its noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vitlab.core.repeats import NORMAL

UNKNOWN = "noise not known"


def verdict(difference: float, half_width: float, other: float = 0.0) -> str:
    """Whether two numbers differ by more than their noise; used in titles, tables and the summary.

    The interval of a difference of independent numbers has the half width √(a² + b²) of the half widths a and b of
    both, which readers can check from the printed numbers (Zou and Donner, Statistics in Medicine 2008). It is
    conservative: wider than Welch's interval if the intervals are Student's over few repeats.

    Args:
        difference: the difference of two numbers.
        half_width, other: half of the 95 % interval of each number, or of the difference and 0; NaN or 0 if unknown.

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
    """A sentence with one number per model and its difference from the first model's.

    Args:
        what: the name of the number.
        values: one per model, the baseline first; NaN if unknown.
        names: the names of the models.
        unit: such as `%`; differences in percent are called points.
        digits: significant digits of the largest value.
        errors: standard errors, NaN if unknown; the numbers are treated as independent.
        halves: half of the 95 % interval of each number, instead of `errors`.
        verdicts: the result of `verdict` for each model but the first, if already computed.
        words: for a smaller and a larger number.
        noisy: whether to mention unknown noise; False for numbers without noise, such as settings.

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
    if len(values) == 1:
        return f"{what}: {_number(values[0], places, unit)}{interval(half[0], noisy=noisy)}"
    if len(known) == 1:
        return f"{what}: {_single(values, names, half, places, unit, noisy=noisy)}"
    own = [verdict(value - values[0], half[0], each) for value, each in zip(values[1:], half[1:], strict=True)]
    verdicts = own if verdicts is None else list(verdicts)
    places = max(places, _places_to_see(values, verdicts))
    texts = [_number(value, places, unit) for value in values]
    parts = [f"{texts[0]} for {names[0]}"]
    unknown = all(each == UNKNOWN for each in verdicts)
    for value, text, name, one in zip(values[1:], texts[1:], names[1:], verdicts, strict=True):
        noise = "" if unknown or one.startswith("larger") else f", {one}"
        side = _side(_rounded(value, places) - _rounded(values[0], places), places, unit, words, noise)
        parts.append(f"{text} for {name}{side}")
    return f"{what}: {', '.join(parts)}{f'; {UNKNOWN}' if unknown and noisy else ''}"


def interval(half_width: float, *, noisy: bool = True) -> str:
    """The text after a single number: half of its 95 % interval, or that its noise is not known.

    >>> interval(0.123), interval(math.nan)
    (' ± 0.12', ', noise not known')
    """
    if math.isfinite(half_width) and half_width > 0:
        return f" ± {half_width:.2g}"
    return f", {UNKNOWN}" if noisy else ""


def decimals(values: Sequence[float], digits: int = 3) -> int:
    """The number of decimals that gives the largest of the values `digits` significant digits.

    >>> decimals([0.5, 46.1]), decimals([1234.5]), decimals([0.00123])
    (1, 0, 5)
    """
    largest = max((abs(value) for value in values), default=0.0)
    return max(0, digits - 1 - math.floor(math.log10(largest))) if largest else 0


def _places(values: Sequence[float], places: int) -> int:
    """One decimal more if the difference of the rounded numbers is not the rounded difference."""
    first = values[0]
    off = (
        _rounded(_rounded(value, places) - _rounded(first, places) - _rounded(value - first, places), places)
        for value in values[1:]
        if math.isfinite(value - first)
    )
    return places + 1 if any(off) else places


def _single(
    values: Sequence[float], names: Sequence[str], half: Sequence[float], places: int, unit: str, *, noisy: bool
) -> str:
    """The numbers of several models of which one is known: its interval is given, and nothing is compared."""
    texts = [
        f"{_number(value, places, unit)}{interval(each, noisy=False) if math.isfinite(value) else ''} for {name}"
        for value, each, name in zip(values, half, names, strict=True)
    ]
    certain = any(interval(each, noisy=False) for value, each in zip(values, half, strict=True) if math.isfinite(value))
    return f"{', '.join(texts)}{f'; {UNKNOWN}' if noisy and not certain else ''}"


def _places_to_see(values: Sequence[float], verdicts: Sequence[str]) -> int:
    """The number of decimals at which no difference larger than its noise is printed as `the same`."""
    pairs = zip(values[1:], verdicts, strict=True)
    gaps = [abs(value - values[0]) for value, each in pairs if each.startswith("larger") and value != values[0]]
    return max((math.ceil(-math.log10(gap)) for gap in gaps), default=0)


def _rounded(value: float, places: int) -> float:
    return float(f"{value:.{places}f}")


def _number(value: float, places: int, unit: str) -> str:
    return f"{value:.{places}f}{f' {unit}' if unit else ''}" if math.isfinite(value) else "not known"


def _side(difference: float, places: int, unit: str, words: tuple[str, str], noise: str) -> str:
    """The difference of the printed numbers, in words."""
    if not math.isfinite(difference):
        return ""
    size = f"{abs(difference):.{places}f}"
    if not float(size):
        return " (the same)"
    points = " points" if unit == "%" else ""
    return f" ({size}{points} {words[difference > 0]}{noise})"
