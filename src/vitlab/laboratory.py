"""Measure models by name: load them, give each the data as it eats it, run instruments or stress tests, store."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from rich.progress import Progress
from torch import nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.core import plugins
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.measurement import Measurement
from vitlab.data.catalogue import open_data
from vitlab.data.images import ImageArray, ImageSet
from vitlab.data.resident import Resident
from vitlab.data.workers import Workers
from vitlab.instruments import measure as measure_one
from vitlab.instruments import measure_together
from vitlab.stress_tests import stress as stress_one


def measure(
    models: Sequence[str],
    instruments: Sequence[str],
    out: Path,
    *,
    data: str = "scenes",
    root: Path | None = None,
    images: int = 64,
    show: bool = True,
) -> Iterator[Path]:
    """Measure each model with each instrument; what a folder already holds is not measured again.

    Args:
        models: model expressions.
        instruments: names, each perhaps with settings: `lesion(images=32)`.
        out: the folder for measurements.
        data: a data expression; its test images are taken.
        root: the folder that holds the data sets.
        images: how many of them.
        show: whether to show a progress bar.

    Yields:
        The path of each measurement, as it is ready.
    """
    known = plugins.instruments()
    yield from _each(models, "instrument", instruments, known, measure_one, out, data, root, images, show)


def stress(
    models: Sequence[str],
    stress_tests: Sequence[str],
    out: Path,
    *,
    data: str = "scenes",
    root: Path | None = None,
    images: int = 64,
    show: bool = True,
) -> Iterator[Path]:
    """Put each model under each stress test, as `measure` does with instruments: `adversarial(norm='l2')`."""
    known = plugins.stress_tests()
    yield from _each(models, "stress test", stress_tests, known, stress_one, out, data, root, images, show)


def _each(
    models: Sequence[str],
    kind: str,
    wanted: Sequence[str],
    known: Mapping[str, str],
    run: Callable[..., Measurement],
    out: Path,
    data: str,
    root: Path | None,
    images: int,
    show: bool,
) -> Iterator[Path]:
    """Run what is wanted of one kind on each model; yields the path of each measurement, as it is ready."""
    asked = [parse_call(text) for text in wanted]
    for name, _ in asked:
        if name not in known:
            raise unknown(kind, name, known)
    with Progress(disable=not show, transient=True) as progress:
        task = progress.add_task("", total=len(models) * len(asked))
        for text in models:
            progress.update(task, description=f"loading {text}")
            model = zoo.load(text, seed=0)
            batches = batches_for(model, data, images, root)
            weights = _digest(*(tensor.detach().cpu().numpy().tobytes() for tensor in model.state_dict().values()))
            for name, settings in asked:
                stem = out / _slug(text) / (f"{name}-{_digest(repr(settings))[:6]}" if settings else name)
                identity = _digest(text, weights, name, repr(settings), batches.fingerprint)
                if not _has(stem, identity):
                    progress.update(task, description=f"{name} of {text}")
                    found = run(name, model, batches, subject=text, **settings)
                    about = {**found.provenance, "identity": identity}
                    replace(found, settings={**found.settings, **settings}, provenance=about).save(stem)
                progress.advance(task)
                yield stem.with_name(f"{stem.name}.json")


def measure_in_one_pass(
    model: nn.Module, subject: str, instruments: Sequence[str], batches: Batches
) -> list[Measurement]:
    """Several instruments that watch a single pass, at their default settings."""
    return [replace(found, subject=subject) for found in measure_together(instruments, model, batches).values()]


def batches_for(model: nn.Module, data: str, images: int, root: Path | None = None, batch_size: int = 16) -> Batches:
    """The first test images of a data set, at the model's own size and in its own normalisation.

    Args:
        model: its pretrained configuration says mean and std; a model without one gets those of the data.
        data: a data expression.
        images: how many.
        root: the folder that holds the data sets.
        batch_size: of the batches.
    """
    if images < 1:
        raise VitlabError(f"images={images}: at least one image is needed")
    size = describe(model).input_size
    test = open_data(data, root=root, image_size=size).test
    if len(test) < images:
        raise VitlabError(
            f"{images} images were asked for, but the test set of {data!r} has {len(test)}; ask for fewer"
        )
    chosen = _normalised(model, test.subset(range(images)))
    if isinstance(chosen, ImageArray) and tuple(chosen.images.shape[-2:]) == size:
        feed = Resident(chosen.images, chosen.labels, chosen.mean, chosen.std, batch_size=batch_size)
        items = list(feed.evaluation())
    else:
        items = list(Workers(chosen, chosen, size, batch_size=batch_size, processes=0).evaluation())
    return Batches(items, chosen.mean, chosen.std, chosen.classes, f"{data} test[:{images}] {chosen.fingerprint}")


def _normalised(model: nn.Module, images: ImageSet) -> ImageSet:
    """The images with the mean and std that the model says it was made for (timm's configuration, or our own files)."""
    config = getattr(model, "pretrained_cfg", None) or {}
    if "mean" not in config or "std" not in config:
        return images
    return replace(images, mean=tuple(config["mean"]), std=tuple(config["std"]))


def _has(stem: Path, identity: str) -> bool:
    """Whether a measurement of the same weights, settings and data is already there."""
    try:
        return Measurement.load(stem).provenance.get("identity") == identity
    except VitlabError:
        return False


def _digest(*parts: str | bytes) -> str:
    digest = blake2b(digest_size=8)
    for part in parts:
        block = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(block)}:".encode())
        digest.update(block)
    return digest.hexdigest()


def _slug(text: str) -> str:
    """A model expression as the name of a folder, which no other expression has."""
    words = re.sub(r"[^\w.-]+", "_", text).strip("_")[:80]
    return f"{words}-{_digest(text)[:6]}"
