"""Fused GPU operators, each in one file with its reference implementation in plain PyTorch.

A fused operator changes speed and memory, not the result. Callers check `supports` and otherwise use the reference
implementation, which runs on every device.
"""
