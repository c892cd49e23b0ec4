"""Read activations and attention of a model while it runs."""

from __future__ import annotations

from vitlab.recording.tape import Feature, Tape, record

__all__ = ["Feature", "Tape", "record"]
