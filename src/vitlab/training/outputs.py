"""What a training run writes: rows of metrics, checkpoints and weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from vitlab.core.recipe import Recipe
from vitlab.core.store import Run, write_tensors
from vitlab.fitted import by_kind, parts
from vitlab.identity import weights_digest
from vitlab.training.distributed import World, full_tensor
from vitlab.training.state import Position, TrainingState
from vitlab.zoo import builder_of


@dataclass
class Outputs:
    """Writes the results of a run. All ranks call the methods, rank 0 writes.

    Args:
        run: the folder.
        recipe: the settings of the run.
        state: the tensors of a checkpoint.
        position: the position of the run.
        world: the ranks.
        log: called with each row of metrics, in addition to `metrics.jsonl`.
        about: metadata saved with weights, such as the normalisation.
    """

    run: Run
    recipe: Recipe
    state: TrainingState
    position: Position
    world: World
    log: Callable[[dict[str, Any]], None] | None = None
    about: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self._saved_step = self.position.step  # the step of the newest checkpoint

    def row(self, row: dict[str, Any]) -> None:
        """Write a row of metrics."""
        if self.world.is_main:
            self.run.log(row)
            if self.log is not None:
                self.log(row)

    def due(self) -> bool:
        """Whether the recipe asks for a checkpoint at this step."""
        every = self.recipe.checkpoint_every
        return bool(every) and self.position.step % every == 0

    def checkpoint(self, row: Mapping[str, Any] | None = None) -> None:
        """Save a checkpoint; at the end of an epoch with its row of metrics, which has no evaluation yet."""
        self._saved_step = self.position.step
        tensors = self.state.tensors()
        if self.world.is_main:
            settings = self.state.settings(self.position) | ({} if row is None else {"row": dict(row)})
            self.run.save_checkpoint(self.position.step, tensors, settings)

    @contextmanager
    def checkpoint_on_error(self, row: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Save a checkpoint before an error of the data is raised; sharded ranks cannot save without the others."""
        try:
            yield
        except Exception:
            alone = self.world.size == 1 or not self.recipe.sharded
            if alone and self.position.step > self._saved_step and math.isfinite(float(self.position.total)):
                self.checkpoint(row)
            raise

    def weights(self, name: str, model: nn.Module) -> None:
        """Save weights as a model that can be loaded as `file/PATH`."""
        tensors = {key: full_tensor(tensor) for key, tensor in model.state_dict().items()}
        if self.world.is_main:
            metadata: dict[str, Any] = {"model": builder_of(self.recipe.model), "compiled": self.recipe.compile}
            metadata |= {"weights": weights_digest(model, tensors), "parts": by_kind(parts(model))}
            write_tensors(self.run.folder / f"{name}.safetensors", tensors, metadata | dict(self.about or {}))
