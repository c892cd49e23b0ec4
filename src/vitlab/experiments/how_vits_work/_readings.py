"""Numbers of predictions and of the loss surface that the claims of HDVW compare."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.core.experiment import values_of
from vitlab.core.measurement import Measurement
from vitlab.experiments.how_vits_work._effects import Reading

__all__ = [
    "ACCURACY",
    "CALIBRATION_ERROR",
    "ERROR",
    "HIGH_NOISE_DROP",
    "LOG_APE",
    "LOG_SIZE",
    "LOW_NOISE_DROP",
    "NEAR_RISE",
    "NEP",
    "NLL_RISE",
    "NLL_TRAIN",
    "OVERCONFIDENCE",
    "RISE",
    "ROBUSTNESS",
    "ROUGHNESS",
    "TURNING",
]


def _scalar(name: str, factor: float = 1.0) -> Callable[[Measurement], float]:
    return lambda found: factor * float(values_of(found, name))


# -- predictions, in per cent and nats --------------------------------------------------------------------------------

ERROR = Reading("test error [%]", ("train_fit",), _scalar("test_error", 100), "points")
ACCURACY = Reading(
    "top-1 [%]", ("train_fit",), lambda found: 100 - 100 * float(values_of(found, "test_error")), "points"
)
NLL_TRAIN = Reading("NLL_train", ("train_fit",), _scalar("train_nll"), "nats")
ROBUSTNESS = Reading(
    "mean accuracy under corruptions [%]",
    ("corruptions", "cifar_c", "imagenet_c"),
    _scalar("mean_accuracy", 100),
    "points",
)
OVERCONFIDENCE = Reading("signed ECE [%]", ("calibration",), _scalar("signed_ece", 100), "points")
CALIBRATION_ERROR = Reading("ECE [%]", ("calibration",), _scalar("ece", 100), "points")


def _drop(low: float, high: float) -> Callable[[Measurement], float]:
    """The mean drop of accuracy over a range of frequencies, in points."""

    def value(found: Measurement) -> float:
        frequency = np.array(found.axes["frequency"], dtype=float)
        inside = (frequency >= low - 1e-9) & (frequency <= high + 1e-9)
        return 100 * float(values_of(found, "drop")[inside].mean())

    return value


#: Our choice of the two ends of the axis; frequency 0, a change of brightness, belongs to neither.
LOW_NOISE_DROP = Reading("drop under noise from 0.1π to 0.3π", ("frequency_noise",), _drop(0.1, 0.3), "points")
HIGH_NOISE_DROP = Reading("drop under noise from 0.8π to 1.0π", ("frequency_noise",), _drop(0.8, 1.0), "points")

# -- the loss surface -------------------------------------------------------------------------------------------------

NEP = Reading("NEP", ("hessian_spectrum",), _scalar("negative_proportion"))


def _log_ape(found: Measurement) -> float:
    average = float(values_of(found, "positive_average"))
    return float(np.log(average)) if average > 0 else float("nan")


LOG_APE = Reading("log APE", ("hessian_spectrum",), _log_ape)
LOG_SIZE = Reading(
    "log of the mean |eigenvalue|",
    ("hessian_spectrum",),
    lambda found: float(np.log(np.abs(values_of(found, "eigenvalues")).mean())),
)


def _ring_rise(value: str, near: bool) -> Callable[[Measurement], float]:
    """The mean over a square ring around the centre minus the centre: the boundary, or the nearest ring."""

    def rise(found: Measurement) -> float:
        surface = values_of(found, value)
        middle = len(surface) // 2
        offset = np.abs(np.arange(len(surface)) - middle)
        distance = np.maximum(offset[:, None], offset[None, :])
        return float(surface[distance == (1 if near else middle)].mean() - surface[middle, middle])

    return rise


RISE = Reading("rise of NLL + l2 to the boundary", ("loss_landscape",), _ring_rise("total", near=False))
NLL_RISE = Reading("rise of the NLL to the boundary", ("loss_landscape",), _ring_rise("nll", near=False))
NEAR_RISE = Reading("rise of NLL + l2 next to the optimum", ("loss_landscape",), _ring_rise("total", near=True))


def _roughness(found: Measurement) -> float:
    """log ‖surface − paraboloid‖ / ‖paraboloid − its mean‖, for the paraboloid of least squares."""
    surface = values_of(found, "total")
    x, y = np.meshgrid(np.linspace(-1, 1, surface.shape[0]), np.linspace(-1, 1, surface.shape[1]), indexing="ij")
    basis = np.stack([x**0, x, y, x * x, x * y, y * y], -1).reshape(-1, 6)
    fitted = basis @ np.linalg.lstsq(basis, surface.ravel(), rcond=None)[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.log(np.linalg.norm(surface.ravel() - fitted)) - np.log(np.linalg.norm(fitted - fitted.mean())))


ROUGHNESS = Reading("log distance from a paraboloid", ("loss_landscape",), _roughness)


def _turning(found: Measurement) -> float:
    angle = values_of(found, "angle")
    angle = angle[np.isfinite(angle)]
    return float(np.abs(np.diff(angle, 2)).sum()) if len(angle) > 2 else float("nan")


#: The sum of |second differences| of the angle is our measure of an irregular trajectory.
TURNING = Reading("irregularity of the trajectory", ("trajectory",), _turning)
