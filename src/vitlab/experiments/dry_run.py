"""Validate the jobs of a plan without running them.

Models are built on the meta device, where they have no weights and no memory. Recipes, settings of procedures and data
expressions are checked as a run would check them; files are not opened.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from vitlab import zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_call, parse_model
from vitlab.core.recipe import Recipe
from vitlab.core.settings import check_settings
from vitlab.core.store import write_tensors
from vitlab.data.catalogue import check_data
from vitlab.data.segmentation_sets import check_pairs
from vitlab.experiments.plan import Plan
from vitlab.experiments.speed import speed
from vitlab.experiments.work import SPECIAL, Training, Work, module_of
from vitlab.inputs.pairs import only_pairs
from vitlab.preprocessing.resolution import input_size
from vitlab.runner.measured_model import procedure

__all__ = ["Checked", "dry_run"]

#: Bytes per parameter of a training step: weights, gradients and two moments in float32.
_TRAINING_BYTES = 16

#: Images of a batch of a measurement.
_MEASURED_BATCH = 16


@dataclass(frozen=True)
class Checked:
    """A validated training run or measurement.

    Args:
        title: what it is.
        problem: why it cannot run, in one line; empty if it can.
        gigabytes: estimated memory on the device; NaN if unknown.
    """

    title: str
    problem: str
    gigabytes: float = math.nan


def dry_run(plan: Plan) -> Iterator[Checked]:
    """Validate all training runs and measurements of a plan, stored ones included."""
    root = plan.root or "{root}"
    for name, problems in plan.problems.items():
        for job, problem in problems.items():
            yield Checked(f"{name}: {job.procedure} of {job.arm}, seed {job.seed}", problem)
    with TemporaryDirectory() as folder:
        for run in plan.trainings:
            yield _checked(f"training {run.text}, seed {run.seed}", partial(_check_training, run, root, Path(folder)))
        for work in plan.works:
            title = f"{work.job.procedure} of {work.job.arm}, seed {work.job.seed}"
            yield _checked(title, partial(_check_work, work, root, Path(folder)))


def _checked(title: str, check: Callable[[], float]) -> Checked:
    try:
        return Checked(title, "", check())
    except VitlabError as error:
        return Checked(title, " ".join(str(error).split()))


def _check_training(run: Training, root: str, folder: Path) -> float:
    """Check a training run; returns its estimated memory."""
    recipe = run.recipe(_trained(run.first, root, folder), root)
    if importlib.util.find_spec(f"vitlab.tasks.{recipe.task}") is None:
        raise VitlabError(f"there is no task {recipe.task!r}")
    check = {"classification": check_data, "segmentation": check_pairs}.get(recipe.task)
    if check is not None:
        check(recipe.data)
    if recipe.objective.teacher:
        _meta_model(zoo.builder_of(recipe.objective.teacher))
    return _recipe_memory(recipe, recipe)


def _check_work(work: Work, root: str, folder: Path) -> float:
    """Check a measurement; returns the estimated memory of its model."""
    job = work.job
    trained = _trained(work.needs[0] if job.trained else None, root, folder)
    name, settings = parse_call(job.procedure)
    module_of(name)
    if name in SPECIAL:
        check_settings(name, speed if name == "speed" else _without_settings, settings)
        if name == "training" and not job.recipe:
            raise VitlabError("the procedure training needs recipe=")
    else:
        known = plugins.instruments() if name in plugins.instruments() else plugins.stress_tests()
        procedure("procedure", job.procedure, known)
    if job.data is not None:
        data = job.data.replace("{root}", root)
        (check_pairs if only_pairs(data) else check_data)(data)
    if job.model:
        text = job.model.replace("{trained}", trained).replace("{root}", root)
        return _memory(zoo.builder_of(text), None, None)
    recipe = Training(job.recipe, job.changes, job.seed).recipe(trained, root)
    if job.snapshot and job.snapshot not in recipe.snapshots:
        raise VitlabError(f"the recipe saves no snapshot of epoch {job.snapshot}; it has {recipe.snapshots}")
    return _recipe_memory(recipe, None)


def _without_settings(model: object, batches: object) -> None:
    """The signature of procedures without settings."""


def _trained(run: Training | None, root: str, folder: Path) -> str:
    """A file that replaces the weights of a run: it names the model and has no tensors. Empty without a run."""
    if run is None:
        return ""
    path = folder / f"{run.key()}.safetensors"
    if not path.exists():
        model = zoo.builder_of(run.recipe(_trained(run.first, root, folder), root).model)
        write_tensors(path, {}, {"model": model})
    return str(path)


@cache
def _meta_model(builder: str) -> nn.Module | None:
    """The model on the meta device; None for a model of Hugging Face, whose configuration may need a download."""
    if parse_model(builder).source == "hf":
        return None
    with torch.device("meta"):
        return zoo.load(builder).eval().requires_grad_(False)


def _recipe_memory(recipe: Recipe, training: Recipe | None) -> float:
    """The memory of the model of a recipe; NaN for tasks whose models take more than images, or choose boxes."""
    builder = zoo.builder_of(recipe.model)
    if recipe.task == "vqa":  # parts are fitted by a forward with text, which the meta device cannot run
        builder = str(replace(parse_model(builder), parts=()))
    if recipe.task in ("detection", "vqa"):
        _meta_model(builder)
        return math.nan
    return _memory(builder, recipe.image_size, training)


def _memory(builder: str, size: tuple[int, int] | None, recipe: Recipe | None) -> float:
    """Estimated memory in gigabytes: of a training step with a recipe, of a forward pass without one."""
    if _meta_model(builder) is None:
        return math.nan
    parameters, outputs = _elements(builder, size)
    if recipe is None:
        return (4 * parameters + 4 * outputs * _MEASURED_BATCH) / 1e9
    width = 4 if recipe.precision == "float32" else 2
    return (_TRAINING_BYTES * parameters + width * outputs * recipe.batch_size / recipe.accumulate) / 1e9


@cache
def _elements(builder: str, size: tuple[int, int] | None) -> tuple[int, float]:
    """The number of parameters, and of elements of all modules' outputs for one image (NaN if it cannot be run)."""
    model = _meta_model(builder)
    assert model is not None
    parameters = sum(parameter.numel() for parameter in model.parameters())
    outputs = 0

    def count(module: nn.Module, given: object, output: object) -> None:
        nonlocal outputs
        outputs += output.numel() if isinstance(output, Tensor) else 0

    leaves = [module for module in model.modules() if not list(module.children())]
    handles = [leaf.register_forward_hook(count) for leaf in leaves]
    try:
        model(torch.empty(1, 3, *(size or input_size(model)), device="meta"))
    except NotImplementedError:  # an operation without a meta version
        return parameters, math.nan
    except (RuntimeError, AssertionError, ValueError, TypeError, IndexError) as error:
        raise VitlabError(f"{builder} cannot be run with images of {size}: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return parameters, float(outputs)
