"""The corruptions of ImageNet-C and CIFAR-C as batched, seeded functions on pixels of any size and device."""

from vitlab.corruptions.apply import CORRUPTIONS, DETERMINISTIC, EXTRA, GROUPS, Corruption, CorruptionName, corrupt

__all__ = ["CORRUPTIONS", "DETERMINISTIC", "EXTRA", "GROUPS", "Corruption", "CorruptionName", "corrupt"]
