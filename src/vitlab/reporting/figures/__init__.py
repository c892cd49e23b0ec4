"""Drawings by kind: one module per instrument or stress test, with `draw(measurements)`, a list of figures."""
