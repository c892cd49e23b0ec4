"""Pictures of experiments, drawn like the paper's figures and tables: same axes, same order, ours beside the paper's.

A file per paper has `PICTURES`: the functions that draw an experiment from its results, by name. Other experiments are
drawn by `effects.py`. The pictures are SVG files and need no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitlab.core.experiment import Results, Scale
from vitlab.core.store import write_atomically
from vitlab.experiments.catalogue import Experiment
from vitlab.experiments.pictures import context_broadcasting, how_vits_work, robust_token_attention
from vitlab.experiments.pictures.effects import draw_effects
from vitlab.experiments.record_numbers import results_of

__all__ = ["picture", "write_picture"]

#: Draws an experiment from its results at a scale.
Draw = Callable[[Experiment, Results, Scale], str]

_PICTURES: Mapping[str, Draw] = {
    **context_broadcasting.PICTURES,
    **how_vits_work.PICTURES,
    **robust_token_attention.PICTURES,
}


def picture(experiment: Experiment, results: Results, scale: Scale) -> str:
    """Returns the picture of an experiment as the text of an SVG file; without results only its claims."""
    draw = _PICTURES.get(experiment.name, draw_effects) if results.entries else draw_effects
    return draw(experiment, results, scale)


def write_picture(path: Path, experiment: Experiment, record: Mapping[str, Any]) -> Path:
    """Write the picture of a record beside it, with the suffix `.svg`.

    Args:
        path: the file of the record.
        experiment: the experiment.
        record: the record.
    """
    drawn = picture(experiment, results_of(record["numbers"]), record["scale"])
    with write_atomically(path.with_suffix(".svg")) as file:
        file.write(drawn.encode())
    return path.with_suffix(".svg")
