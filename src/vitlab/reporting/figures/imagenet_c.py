"""Error on the published files, with the drawing of `corruptions`."""

from vitlab.reporting.figures.corruptions import draw

__all__ = ["draw"]
