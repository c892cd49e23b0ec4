"""The corruptions of ImageNet-C and CIFAR-C as batched functions on pixels: seeded, any size, any device."""

from vitlab.corruptions.apply import CORRUPTIONS, EXTRA, GROUPS, Corruption, corrupt

__all__ = ["CORRUPTIONS", "EXTRA", "GROUPS", "Corruption", "corrupt"]
