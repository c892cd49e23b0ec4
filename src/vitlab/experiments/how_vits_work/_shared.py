"""Constants of HDVW's experiments."""

from __future__ import annotations

from vitlab.core.experiment import Scale

__all__ = ["CORRUPTED", "EARLY", "LATE", "LOGARITHM", "NEGATIVE", "POINTS", "SEEDS"]

#: The smallest relevant effects where the paper prints none, our choice: differences of accuracies in points (about
#: the standard error of top-1 on 10,000 images), of NEP, and of logarithms of eigenvalues.
POINTS, NEGATIVE, LOGARITHM = 0.5, 0.02, 0.1

#: Suffixes of the arms whose weights are those of an early epoch and the final ones.
EARLY, LATE = ", early", ", late"

#: What differs from the paper where networks are measured on CIFAR-100-C.
CORRUPTED: dict[Scale, tuple[str, ...]] = {
    "small": ("The corruptions are generated for 1,000 test images, in place of the files of CIFAR-100-C.",)
}

#: Training runs of each network; the paper does not state its number of runs.
SEEDS: dict[Scale, int] = {"smoke": 1, "small": 5, "full": 3}
