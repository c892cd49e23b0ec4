"""Fused operators for GPUs, each in one file beside the plain torch that says what it computes.

An operator here changes how fast a number comes and how much memory it takes, never which number. Callers ask
`supports` and otherwise take the plain road, which every device can go.
"""
