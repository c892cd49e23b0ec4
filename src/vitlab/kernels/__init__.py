"""Fused operators, each with its reference implementation in plain PyTorch.

A fused operator changes speed and memory, not the result. Callers check whether the kernel is available and otherwise
use the reference implementation, which runs on every device. `VITLAB_KERNELS=0` disables all kernels.
"""
