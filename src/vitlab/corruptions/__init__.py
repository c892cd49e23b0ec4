"""The corruptions of ImageNet-C and CIFAR-C as batched functions on pixels: seeded, any size, any device."""

from vitlab.corruptions.apply import CORRUPTIONS, DETERMINISTIC, EXTRA, GROUPS, Corruption, corrupt

__all__ = ["CORRUPTIONS", "DETERMINISTIC", "EXTRA", "GROUPS", "Corruption", "corrupt"]
