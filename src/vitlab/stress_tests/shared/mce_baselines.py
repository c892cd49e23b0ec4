"""Errors of AlexNet under the 15 corruptions, the denominators of mCE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from vitlab.core.bounds import Choices
from vitlab.core.errors import unknown
from vitlab.corruptions import CORRUPTIONS
from vitlab.corruptions.parameters import ParameterSet


@dataclass(frozen=True)
class Baseline:
    """Errors of a reference classifier, as fractions.

    Args:
        mean: error by corruption, averaged over the five severities.
        by_severity: errors by corruption at severities 1 to 5, if published.
        clean: error on clean images; None if not published.
    """

    mean: dict[str, float]
    by_severity: dict[str, tuple[float, ...]] = field(default_factory=dict)
    clean: float | None = None

    def error(self, corruption: str, severities: tuple[int, ...]) -> float:
        """Returns the mean error over some severities; NaN if it is not published.

        >>> BASELINES["imagenet"].error("fog", (1, 2, 3, 4, 5))
        0.819324
        >>> BASELINES["imagenet"].error("fog", (5,)), BASELINES["imagenet"].error("jpeg_compression", (5,))
        (0.945, nan)
        """
        if set(severities) == {1, 2, 3, 4, 5}:
            return self.mean.get(corruption, float("nan"))
        known = self.by_severity.get(corruption)
        return float(np.mean([known[severity - 1] for severity in severities])) if known else float("nan")


def resolve(name: str | None, classes: int, parameters: ParameterSet = "imagenet") -> str:
    """Returns the name of a baseline. None selects the one with the same classes and corruption strengths, if any.

    Args:
        name: the requested baseline.
        classes: the number of classes of the model.
        parameters: the corruption strengths. Errors under different strengths are not comparable.

    >>> resolve(None, 1000), resolve(None, 1000, "cifar"), resolve(None, 100, "cifar"), resolve("imagenet", 25, "cifar")
    ('imagenet', 'none', 'cifar100', 'imagenet')
    """
    own = {(1000, "imagenet"): "imagenet", (10, "cifar"): "cifar10", (100, "cifar"): "cifar100"}
    return name or own.get((classes, parameters), "none")


#: The name of a baseline, as a setting.
BaselineName = Annotated[str, Choices(("imagenet", "cifar10", "cifar100", "none"))]


def choose(name: str) -> Baseline | None:
    """Returns the baseline of that name, or None for `none`."""
    if name not in (*BASELINES, "none"):
        raise unknown("baseline", name, (*BASELINES, "none"))
    return BASELINES.get(name)


def _in_order(*errors: float) -> dict[str, float]:
    """Returns errors by corruption. The released CIFAR baselines list glass blur after zoom blur."""
    names = [name for name in CORRUPTIONS if name != "glass_blur"]
    names.insert(names.index("zoom_blur") + 1, "glass_blur")
    return dict(zip(names, errors, strict=True))


_IMAGENET = {
    "gaussian_noise": (0.886428, (0.69528, 0.82542, 0.93554, 0.98138, 0.99452)),
    "shot_noise": (0.894468, (0.71224, 0.85108, 0.93574, 0.98182, 0.99146)),
    "impulse_noise": (0.922640, (0.78374, 0.89808, 0.9487, 0.9872, 0.99548)),
    "defocus_blur": (0.819880, (0.65624, 0.73202, 0.85036, 0.91364, 0.94714)),
    "glass_blur": (0.826268, (0.64308, 0.75054, 0.88806, 0.91622, 0.93344)),
    "motion_blur": (0.785948, (0.5843, 0.70048, 0.82108, 0.8975, 0.92638)),
    "zoom_blur": (0.798360, (0.70008, 0.76992, 0.80784, 0.84198, 0.87198)),
    "snow": (0.866816, (0.71726, 0.88392, 0.86468, 0.9187, 0.94952)),
    "frost": (0.826572, (0.6139, 0.79734, 0.8879, 0.89942, 0.9343)),
    "fog": (0.819324, (0.67474, 0.7605, 0.84378, 0.8726, 0.945)),
    "brightness": (0.564592, (0.4514, 0.48502, 0.54048, 0.62166, 0.7244)),
    "contrast": (0.853204, (0.64548, 0.7615, 0.88874, 0.9776, 0.9927)),
    "elastic_transform": (0.646056, (0.52596, 0.70116, 0.55686, 0.64076, 0.80554)),
    "pixelate": (0.717840, (0.52218, 0.5462, 0.73728, 0.87092, 0.91262)),
    "jpeg_compression": (0.606500, ()),  # errors by severity are not published
}

#: `imagenet`: published with the benchmark; clean is 1 − 56.522 %, torchvision's AlexNet, the 43.5 % of the paper.
#: `cifar10`, `cifar100`: AlexNets trained by the authors of "How do vision transformers work?".
BASELINES: dict[str, Baseline] = {
    "imagenet": Baseline(
        {name: mean for name, (mean, _) in _IMAGENET.items()},
        {name: errors for name, (_, errors) in _IMAGENET.items() if errors},
        0.43478,
    ),
    "cifar10": Baseline(
        _in_order(
            *(0.3182, 0.2748, 0.3954, 0.1654, 0.211, 0.1622, 0.3043, 0.2484),
            *(0.2446, 0.2303, 0.1659, 0.2812, 0.196, 0.1835, 0.1972),
        )
    ),
    "cifar100": Baseline(
        _in_order(
            *(0.713, 0.6535, 0.786, 0.5218, 0.5589, 0.5498, 0.706, 0.5874),
            *(0.6106, 0.5654, 0.4884, 0.6178, 0.5224, 0.4687, 0.4983),
        )
    ),
}
