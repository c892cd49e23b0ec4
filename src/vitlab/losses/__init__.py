"""Auxiliary training losses: pure functions of tensors."""
