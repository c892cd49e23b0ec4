"""Experiments: a table or figure of a paper as data, its claims, the jobs that test them, and the verdicts.

An experiment is a module with

- `TITLE`: the table or figure and its subject, for example `CB Fig. 7: entropy with and without CB`;
- `PAPER`: the published numbers, a `Published` each; None where the paper only has a curve;
- `CLAIMS`: a `Claim` for each sentence that can be false;
- `plan(scale)`: the `Job`s of a scale; empty if the experiment has none at that scale;
- `check(results)`: one `Verdict` per claim, in their order;
- `DIFFERENCES`, optional: for each scale, sentences that state what differs from the paper: networks, data, images.

The docstring of the module states the choices that the paper leaves open. Pages and records name the networks that are
trained at a scale, their data and epochs without further entries.

These modules import `core` only: they are listed and planned without torch. The file is
`experiments/<paper>/<table or figure>.py`; `vitlab reproduce` finds it there, under its stem with the key of the paper:
`cb_fig_7`, `hdvw_fig_8`, `tapadl_table_1`.

The measurements of jobs that are neither instruments nor stress tests:

- `training`: the metrics of the run by epoch, with the names of its rows (`train_loss`, `loss`, `top1`, …, and the
  metrics of the task), with dims (epoch); `Results.by_seed` takes the last epoch;
- `sizes`: `parameters`, `macs`, `added_macs` ();
- `blocks`: `mixer` (the kinds of token mixers, as text), `stage`, `channels`, `heads`, `mlp`, `parts` (block), `grid`
  (block, side);
- `speed`: `images_per_second` () of a training step; only ratios of jobs of one run mean something. Settings:
  `speed(batch_size=32, steps=5, compiled=False)`.

At `smoke`, statistical claims are always reported as `not run`; deterministic ones get the verdict of `check`.

Each experiment has a test file `tests/experiments/<paper>/test_<table or figure>.py` with a function
`example(claim, effects) -> Results`: measurements for which the effects on this claim, one per seed, are those given.
For a deterministic claim the single effect is our value: the published number or another one; without a published
number 1.0 if the claim is true and 0.0 if not. `tests/experiments/test_contract.py` calls `check` on them and asserts
that every claim can hold, not hold and, if it is statistical, be inconclusive. `tests/experiments/synthetic.py` has
functions that make measurements. A folder with a file `examples.py` needs no such test files: it has one function
`example(name of the file, claim, effects)` for all experiments of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict, verdict

__all__ = [
    "SCALES",
    "Claim",
    "Job",
    "Published",
    "Results",
    "Scale",
    "exact",
    "judged",
    "not_run",
    "paired",
    "values_of",
]

#: `smoke`: embedded data, seconds; only deterministic claims are judged. `small`: CIFAR-100, the ImageNet sample or
#: CamVid, on one GPU. `released`: published weights on the real data sets, without training. `full`: the training of
#: the paper.
Scale = Literal["smoke", "small", "released", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)


#: A seed, or a seed and a part of the images.
Key = TypeVar("Key", int, tuple[int, int])


@dataclass(frozen=True)
class Published:
    """A number of a table or figure.

    Args:
        row: the row of the table, for example `ViT-S + CB`.
        column: the column, for example `top-1`.
        value: the number as printed; None if the paper only has a curve.
        runs: whether an experiment runs this row; False for results that the paper quotes from other work.
    """

    row: str
    column: str
    value: float | None
    runs: bool = True


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper that can be false.

    Args:
        name: a short name, unique in its experiment.
        sentence: the claim, with its direction: an effect is positive if it agrees with the claim.
        paper: the published effect; None if only the sign is claimed.
        smallest: the smallest relevant effect; by default half of `paper`, or 0 without it.
        deterministic: whether the claim is exact (counts, block plans, closed forms), so that every scale judges it.
        source: where the paper says so, for example `Table 2` or `Sec. 4.1`.
        unit: the unit of the effect or count, for tables: `points` (of per cent), `nats`, `M`, …; empty for a number
            without a unit.
    """

    name: str
    sentence: str
    paper: float | None = None
    smallest: float | None = None
    deterministic: bool = False
    source: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Job:
    """One measurement of one model. Jobs that are equal in all but `arm` are run once and shared by all experiments.

    Exactly one of `model` and `recipe` is given. A model that a recipe trains is trained first; equal recipes are
    trained once. A job with `trained` starts from the weights of another recipe, with the same seed: write
    `{trained}` for their path, for example `model="timm/deit_tiny_patch16_224(weights='{trained}')"`. `{root}` in
    `model`, `recipe` or `changes` is the folder of the data sets, where published weights are files too:
    `model="timm/deit_tiny_patch16_224(weights='{root}/deit_tiny_patch16_224.safetensors')"`.

    Args:
        arm: the name of the compared variant, for example `plain` or `cb`; with `seed`, `procedure` and `data` it
            identifies the job in its experiment.
        procedure: an instrument or stress test with its settings, for example `attention_entropy` or
            `corruptions(severities=(3,))`, where `{run}` is the folder of the training run (for `trajectory`); or
            `training` (the metrics of the training run), `sizes` (parameters and multiply-accumulates), `blocks` (the
            block plan) or `speed` (images per second of a training step).
        model: a model expression.
        recipe: a recipe expression, for example `vit_tiny_cifar100(part='cb')`.
        changes: settings of the recipe to replace, as `--set`: `("epochs=1", "optimizer.lr=0.001")`; if `trained` is
            given with `model`, settings of that recipe.
        trained: a recipe expression to train first, whose final weights replace `{trained}` in `model`, `recipe` or
            `changes`.
        snapshot: the weights to measure: None for the final ones, or the epoch of a snapshot of the recipe.
        data: a data expression; by default the data of the recipe, else `scenes`.
        images: number of images; None for the default of the procedure.
        repeats: number of disjoint parts of the images.
        seed: seed of the training run, or of the random weights of `model`.
        needs: files that must exist below the data root, for example `imagenet-a`; for the listing.
        gpu_minutes: estimated time on one GPU, training included.
        gigabytes: estimated size of the data that must be on disk.
    """

    arm: str
    procedure: str
    model: str = ""
    recipe: str = ""
    changes: tuple[str, ...] = ()
    trained: str = ""
    snapshot: int | None = None
    data: str | None = None
    images: int | None = None
    repeats: int = 1
    seed: int = 0
    needs: tuple[str, ...] = ()
    gpu_minutes: float = 0.0
    gigabytes: float = 0.0

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.recipe):
            raise VitlabError(f"job {self.arm!r} of {self.procedure}: give one of model= and recipe=")
        if bool(self.trained) != ("{trained}" in " ".join((self.model, self.recipe, *self.changes))):
            raise VitlabError(f"job {self.arm!r} of {self.procedure}: give both trained= and {{trained}}, or neither")

    @property
    def kind(self) -> str:
        """The name of the procedure, without its settings."""
        return self.procedure.partition("(")[0].strip()


@dataclass(frozen=True)
class Results:
    """The measurements of an experiment's jobs.

    Args:
        entries: jobs that were run, each with its measurement; a job with `repeats` has one entry per part of the
            images.
    """

    entries: Sequence[tuple[Job, Measurement]] = field(default_factory=tuple)

    def select(
        self, arm: str, kind: str, where: Callable[[Job], bool] = lambda job: True
    ) -> Iterator[tuple[Job, Measurement]]:
        """Iterate over the entries of an arm and a procedure that satisfy a condition."""
        return ((job, found) for job, found in self.entries if (job.arm, job.kind) == (arm, kind) and where(job))

    def by_seed(
        self,
        arm: str,
        kind: str,
        value: str | Callable[[Measurement], float],
        where: Callable[[Job], bool] = lambda job: True,
    ) -> dict[int, float]:
        """Returns a number of each run of an arm, by seed; the mean over the parts of the images if there are parts.

        Args:
            arm, kind, where: see `select`.
            value: the name of a scalar, or of a value by epoch, whose last entry is taken; or a function of the
                measurement.
        """
        found: dict[int, list[float]] = {}
        for job, measurement in self.select(arm, kind, where):
            found.setdefault(job.seed, []).append(_number(measurement, value))
        return {seed: float(np.mean(numbers)) for seed, numbers in found.items()}

    def by_part(
        self,
        arm: str,
        kind: str,
        value: str | Callable[[Measurement], float],
        where: Callable[[Job], bool] = lambda job: True,
    ) -> dict[tuple[int, int], float]:
        """Returns a number of each part of the images, by seed and part: the pairs of effects on one published model.

        Args:
            arm, kind, value, where: see `by_seed`.
        """
        return {
            (job.seed, int(measurement.provenance.get("part", (1,))[0])): _number(measurement, value)
            for job, measurement in self.select(arm, kind, where)
        }


def _number(found: Measurement, value: str | Callable[[Measurement], float]) -> float:
    if callable(value):
        return float(value(found))
    if value not in found.values:
        raise VitlabError(f"{found.kind} of {found.subject} has no value {value!r}; it has: {', '.join(found.values)}")
    array = np.asarray(found.values[value])
    if tuple(found.dims.get(value, ())) == ("epoch",) and array.size:
        array = array[-1]
    if array.size != 1:
        raise VitlabError(f"{value!r} of {found.kind} has shape {array.shape}; give a function that reduces it")
    return float(array.reshape(()))


def paired(first: Mapping[Key, float], second: Mapping[Key, float]) -> list[float]:
    """Returns second − first for each seed, or seed and part, that both have.

    >>> paired({0: 1.0, 1: 2.0}, {1: 2.5, 2: 9.0})
    [0.5]
    """
    return [second[key] - first[key] for key in sorted(first) if key in second]


def judged(claim: Claim, effects: Sequence[float]) -> Verdict:
    """Returns the verdict on a statistical claim from one effect per pair of runs; `not run` without effects.

    >>> judged(Claim("gain", "the part raises accuracy", paper=1.2), [0.8, 1.0, 0.9]).outcome
    'holds'
    """
    return verdict(claim.sentence, effects, claim.paper, claim.smallest)


def exact(claim: Claim, ours: float | None, tolerance: float = 0.0, what: str = "") -> Verdict:
    """Returns the verdict on a deterministic claim: it holds if `ours` is within `tolerance` of the published value.

    Args:
        claim: a claim with `deterministic=True`; without a published number `ours` is 1.0 if it is true, 0.0 if not.
        ours: our value; None if it was not computed.
        tolerance: the largest absolute difference, for example half of the last printed digit.
        what: an explanation for the verdict.

    >>> exact(Claim("count", "ViT-S has 22.1 M parameters", paper=22.1, deterministic=True), 22.05, 0.05).outcome
    'holds'
    """
    if not claim.deterministic:
        raise VitlabError(f"claim {claim.name!r} is not deterministic; use judged()")
    if ours is None:
        return not_run(claim)
    published = 1.0 if claim.paper is None else claim.paper
    holds = abs(ours - published) <= tolerance + 1e-9 * abs(published)
    compared = f"ours {ours:.6g}, published {published:.6g}, tolerance {tolerance:.3g}"
    why = what or (compared if claim.paper is not None else f"the condition is {'true' if holds else 'false'}")
    return Verdict(claim.sentence, claim.paper, ours, None, 0.0, "holds" if holds else "does not hold", why)


def not_run(claim: Claim, why: str = "no runs yet") -> Verdict:
    """Returns the verdict `not run`, with the reason."""
    least = claim.smallest if claim.smallest is not None else (claim.paper or 0.0) / 2
    return Verdict(claim.sentence, claim.paper, None, None, abs(least), "not run", why)


def values_of(found: Measurement, name: str, **labels: Any) -> np.ndarray:
    """Returns a value of a measurement, selected by labels along its axes.

    >>> found = Measurement("k", "m", {"v": np.array([1.0, 2.0])}, {"v": ("layer",)}, {"layer": ("a", "b")})
    >>> float(values_of(found, "v", layer="b"))
    2.0
    """
    if name not in found.values:
        raise VitlabError(f"{found.kind} of {found.subject} has no value {name!r}; it has: {', '.join(found.values)}")
    array, dims = np.asarray(found.values[name]), list(found.dims.get(name, ()))
    for axis, label in labels.items():
        known = list(found.axes.get(axis, range(array.shape[dims.index(axis)] if axis in dims else 0)))
        if axis not in dims or label not in known:
            raise VitlabError(f"{name!r} of {found.kind} has no {axis}={label!r}; it has: {known}")
        array = array.take(known.index(label), axis=dims.index(axis))
        dims.remove(axis)
    return array
