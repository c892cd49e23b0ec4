"""Losses: pure functions of tensors that steer training."""
