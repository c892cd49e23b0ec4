"""Error on the published files, drawn as `corruptions` draws those made on the fly."""

from vitlab.reporting.figures.corruptions import draw

__all__ = ["draw"]
