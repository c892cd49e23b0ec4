"""Drawings of their own, one file an instrument, named like it: `draw(measurements) -> [figure, ...]`."""
