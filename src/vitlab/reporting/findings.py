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
    errors: Sequence[float] | None = None,
    halves: Sequence[float] | None = None,
    gaps: Sequence[float] | None = None,
    verdicts: Sequence[str] | None = None,
    words: tuple[str, str] = ("lower", "higher"),
    noisy: bool = True,
) -> str:
    """A sentence with one number per model and its difference from the first model's.

    All numbers are rounded to the smallest error of a difference. If no error is known, the printed differences are
    those of the printed numbers.

    Args:
        what: the name of the number.
        values: one per model, the baseline first; NaN if unknown.
        names: the names of the models.
        unit: such as `%`; differences in percent are called points.
        errors: standard errors, NaN if unknown; the numbers are treated as independent.
        halves: half of the 95 % interval of each number, instead of `errors`.
        gaps: half of the 95 % interval of the difference of each model but the first, if already computed.
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
    places = _places(values, decimals(known))
    half = [math.nan] * len(values) if errors is None else [NORMAL * error for error in errors]
    half = half if halves is None else list(halves)
    if len(values) == 1:
        return f"{what}: {_with_unit(values[0], half[0], places, unit, noisy=noisy)}"
    if len(known) == 1:
        return f"{what}: {_single(values, names, half, places, unit, noisy=noisy)}"
    gaps = [math.hypot(half[0], each) for each in half[1:]] if gaps is None else list(gaps)
    own = [verdict(value - values[0], each) for value, each in zip(values[1:], gaps, strict=True)]
    verdicts = own if verdicts is None else list(verdicts)
    certain = [error_places(each) for each in gaps if _is_known(each)]
    places = max(certain) if certain else max(places, _places_to_see(values, verdicts))
    texts = [_number(value, places, unit) for value in values]
    parts = [f"{texts[0]} for {names[0]}"]
    unknown = all(each == UNKNOWN for each in verdicts)
    for value, text, name, one in zip(values[1:], texts[1:], names[1:], verdicts, strict=True):
        noise = "" if unknown or one.startswith("larger") else one
        gap = value - values[0] if certain else _rounded(value, places) - _rounded(values[0], places)
        parts.append(f"{text} for {name}{_side(gap, places, unit, words, noise)}")
    return f"{what}: {', '.join(parts)}{f'; {UNKNOWN}' if unknown and noisy else ''}"


def with_error(value: float, half_width: float, form: str = ".3g", sign: str = "", *, noisy: bool = True) -> str:
    """A number rounded to half of its 95 % interval, or that its noise is not known.

    Args:
        value: the number.
        half_width: half of its 95 % interval; NaN if unknown.
        form: the format of the number if the interval is unknown.
        sign: `+` to print the sign of positive numbers.
        noisy: whether to mention unknown noise.

    >>> with_error(66.1, 11.2), with_error(0.1234, 0.0456, sign="+"), with_error(0.1234, math.nan, ".2f")
    ('66 ± 11', '+0.123 ± 0.046', '0.12, noise not known')
    """
    if not _is_known(half_width):
        return f"{value:{sign}{form}}{f', {UNKNOWN}' if noisy else ''}"
    places = error_places(half_width)
    return f"{value:{sign}.{places}f} ± {half_width:.{places}f}"


def error_places(half_width: float) -> int:
    """Decimal places that show two significant digits of an error, at most 6.

    >>> error_places(0.0123), error_places(11.2)
    (3, 0)
    """
    return 3 if half_width <= 0 else min(6, max(0, 1 - math.floor(math.log10(half_width))))


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
        f"{_with_unit(value, each, places, unit, noisy=False)} for {name}"
        for value, each, name in zip(values, half, names, strict=True)
    ]
    certain = any(_is_known(each) for value, each in zip(values, half, strict=True) if math.isfinite(value))
    return f"{', '.join(texts)}{f'; {UNKNOWN}' if noisy and not certain else ''}"


def _with_unit(value: float, half_width: float, places: int, unit: str, *, noisy: bool) -> str:
    """A number with its interval and unit, if it is known."""
    if not math.isfinite(value):
        return _number(value, places, unit)
    after = f" {unit}" if unit else ""
    if not _is_known(half_width):
        return f"{value:.{places}f}{after}{f', {UNKNOWN}' if noisy else ''}"
    return f"{with_error(value, half_width)}{after}"


def _is_known(half_width: float) -> bool:
    return math.isfinite(half_width) and half_width > 0


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
    """The difference in words."""
    if not math.isfinite(difference):
        return ""
    size = f"{abs(difference):.{places}f}"
    if not float(size):
        return f" ({noise})" if difference and noise else " (the same)"
    points = " points" if unit == "%" else ""
    return f" ({size}{points} {words[difference > 0]}{f', {noise}' if noise else ''})"
