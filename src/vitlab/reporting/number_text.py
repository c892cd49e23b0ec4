"""Numbers as text: rounded to their error, shares in percent, with a true minus sign."""

from __future__ import annotations

import math
import re

from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.findings import UNKNOWN, error_places
from vitlab.reporting.words import value_in_words

#: Words in the names of shares, which are shown in percent.
_SHARES = ("accuracy", "error", "mce", "miou", "ece", "ap", "ap50", "ap75", "confidence")

#: Shares that are not recognised by their name or description, by kind.
_SHARES_OF = {
    "lesion": ("baseline",),
    "hessian_spectrum": ("negative_proportion",),
    "attention_entropy": ("normalised",),
    "shape_texture": ("shape_bias",),
    "question_answers": ("overall_prior", "prior"),
    "imagenet_p": ("mfr", "flip_rate", "flip_probability"),
}

#: Significant digits of a number whose error is not known, and of a difference.
_DIGITS, _DIFFERENCE_DIGITS = 4, 3

#: Numbers from here on have an exponent.
_EXPONENT_FROM = 1e7


def unit_of(kind: str, name: str) -> tuple[float, str]:
    """The factor and the unit of a value of a kind.

    >>> unit_of("calibration", "accuracy"), unit_of("training", "top1"), unit_of("loss_landscape", "nll")
    ((100.0, '%'), (1.0, '%'), (1.0, ''))
    >>> unit_of("occlusion", "drop"), unit_of("lesion", "change")
    ((100.0, 'points'), (100.0, 'points'))
    """
    if kind == "training":
        return 1.0, "%" if name.startswith(("top", "miou", "accuracy", "box", "mask", "pixel")) else ""
    name = name.partition("[")[0]
    if "drop" in name.split("_") or (kind, name) == ("lesion", "change"):
        return 100.0, "points"  # a difference of two accuracies
    share = any(word in name.split("_") for word in _SHARES) or name in _SHARES_OF.get(kind, ())
    return (100.0, "%") if share or value_in_words(kind, name).startswith("share") else (1.0, "")


def value_text(number: Number, scale: float = 1.0) -> str:
    """A number rounded to its error.

    >>> value_text(Number(0.71234, 0.01), 100), value_text(Number(3.14159)), value_text(Number(-2.0, 0.1))
    ('71.2 ± 2.0', '3.142', '−2.00 ± 0.20')
    """
    half = scale * number.half_width
    if not math.isfinite(half):
        return significant(scale * number.value, _DIGITS)
    places = error_places(half)
    return minus(f"{scale * number.value:.{places}f} ± {half:.{places}f}")


def difference_text(difference: Difference, scale: float = 1.0) -> str:
    """A difference with its sign, rounded to its error.

    >>> difference_text(Difference("", "", "", Number(1.0, 0.3), Number(0.0, 0.4)))
    '−1.00 ± 0.98'
    """
    half = scale * difference.half_width
    if not math.isfinite(half):
        return significant(scale * difference.value, _DIFFERENCE_DIGITS, sign="+")
    places = error_places(half)
    return minus(f"{scale * difference.value:+.{places}f} ± {half:.{places}f}")


def significant(value: float, digits: int, sign: str = "-") -> str:
    """A number with a number of significant digits; with all digits before the point below ten million.

    Args:
        value: the number.
        digits: significant digits.
        sign: `+` to also mark positive numbers.

    >>> significant(0.00247213, 4), significant(-3020.4, 3, sign="+"), significant(999.6, 3), significant(1.5e9, 3)
    ('0.002472', '−3020', '1000', '1.5e+09')
    """
    text = f"{value:{sign}.{digits}g}"
    return minus(f"{value:{sign}.0f}" if "e+" in text and abs(value) < _EXPONENT_FROM else text)


def clearness(difference: Difference) -> str:
    """`clear` if the difference is larger than its noise, `unclear` if not, `unknown` if its noise is not known."""
    if difference.verdict == UNKNOWN:
        return "unknown"
    return "clear" if difference.strength > 1 else "unclear"


def minus(text: str) -> str:
    """Text with the minus sign U+2212 before numbers in place of the hyphen.

    >>> minus("-0.5, 1e-05, ImageNet-C, +2")
    '−0.5, 1e−05, ImageNet-C, +2'
    """
    return re.sub(r"(?<![\w.)])-(?=\d)|(?<=\de)-(?=\d)", "−", text)
