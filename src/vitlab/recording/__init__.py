"""Read activations and attention of a model while it runs."""

from __future__ import annotations

from vitlab.recording.diversification import DiversificationTape, record_diversification
from vitlab.recording.tape import Feature, Tape, record

__all__ = ["DiversificationTape", "Feature", "Tape", "record", "record_diversification"]
