"""Causal trace: which activations of the clean image restore the prediction on its corrupted version.

A forward on the corrupted image receives, at one place, the activations of the clean image (activation patching;
Meng et al. 2022, "Locating and editing factual associations in GPT", Sec. 2.1). With c the class that the model
predicts for the clean image and p its probability:

    effect = p(c | corrupted image, patched) − p(c | corrupted image)
    total effect = p(c | clean image) − p(c | corrupted image)

Patching the whole residual stream after a block of a plain ViT gives the total effect, so it is patched in cells of
the token grid.

Shape legend: n images, B batch, L layers, H heads, P prefix tokens, R C rows and columns of cells, h w token grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.adapters import describe
from vitlab.adapters.wrappers import unwrap
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.batches import reiterable
from vitlab.core.bounds import ChannelDeviations, ChannelMeans, Range, Seed, Severity, Weight
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.statistics import standard_error
from vitlab.core.step_cache import step
from vitlab.corruptions import CorruptionName
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.corrupted_pairs import clean_and_corrupted, corruption_function, normalisation
from vitlab.instruments.shared.predictions import device_of, predict
from vitlab.interventions import Activations, activations, intervene

CARD = Card(
    title="Where activations of the clean image restore the prediction on a corrupted one",
    paper="",
    cost="layers × (cells² + prefix tokens + heads + 6) forwards: 708 for DeiT-Ti",
    inputs="images",
    passes="several",
)

_NAME = "causal_trace"


def divide(grid: tuple[int, int], count: int) -> list[list[list[int]]]:
    """Divide a token grid into at most `count` × `count` cells of nearly equal size.

    Returns:
        The row-major token indices of each cell, by row and column of cells.

    >>> divide((2, 4), 2)
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    width = grid[1]
    rows, columns = (np.array_split(np.arange(side), min(count, side)) for side in grid)
    return [[[int(y * width + x) for y in own for x in across] for across in columns] for own in rows]


def _forwards(cells: int) -> str:
    return f"{cells:,} x {cells:,} cells are {cells**2:,} forwards for each layer"


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    corruption: CorruptionName | Callable[[Tensor], Tensor] = "gaussian_noise",
    severity: Severity = 3,
    sigma: Weight | None = None,
    seed: Seed = 0,
    cells: Annotated[int, Range(1, 64, cost=_forwards)] = 7,
    images: Annotated[int, Range(2, 10**6)] | None = None,
    mean: ChannelMeans | None = None,
    std: ChannelDeviations | None = None,
) -> Measurement:
    """Effect of patching clean activations into a forward on the corrupted image, by layer, token cell and head.

    Args:
        model: a classifier; it runs in evaluation mode and is not changed.
        batches: yields (images, targets) or images; labels are not used.
        corruption: name of an ImageNet-C corruption, or a function of pixels (B, C, h, w) in [0, 1].
        severity: severity of a named corruption, 1 to 5.
        sigma: if given, Gaussian noise of this standard deviation in pixels instead of `corruption`.
        seed: random seed; the noise of an image depends on it and on the index of the image.
        cells: cells per side of the token grid; each is patched by itself. At least 1.
        images: number of images to use, at least 2. Default: all.
        mean, std: normalisation of the images; needed if batches are not `Batches` and the model does not declare it.

    Returns:
        Effects on the probability of the clean prediction, averaged over images, each with its standard error
        (`…_error`): `tokens` (layer, row, column), of the residual stream after a layer in one cell; `prefix` (layer,
        prefix), of the class token and other prefix tokens; `heads` (layer, head), of the output of one attention
        head; `attention` and `mlp` (layer), of the output of a branch. NaN where a layer has no such place.
        `total_effect`, `clean_probability` and `corrupted_probability` ().
    """
    inner, device = unwrap(model), device_of(model)
    shift, scale = normalisation(inner, batches, mean, std, _NAME)
    corrupt = corruption_function(corruption, severity, sigma, seed)

    def read(items: Iterable[Any]) -> Iterator[Tensor]:
        return _limited(clean_and_corrupted(items, corrupt, shift, scale, device), images)

    iterate = reiterable(batches, read)
    with eval_mode(inner):
        first = next(iter(iterate()), None)
        if first is None:
            raise VitlabError(f"{_NAME} got no images; give batches with at least 2")
        anatomy = describe(inner, (int(first.shape[-2]), int(first.shape[-1])))
        layers = _layers(anatomy)
        with_heads = blocks_with_heads(inner, anatomy, layers, first.chunk(2)[0])
        effects = []
        for block in layers:
            trace = partial(_trace, inner, anatomy, block, iterate, cells, block.name in with_heads)
            effects.append(step(f"layer {block.name}", len(layers), trace))
    values, dims = _summary(effects)
    count = len(effects[0]["clean"])
    if count < 2:
        raise VitlabError(f"{_NAME} computes standard errors and needs at least two images; the data has {count}")
    axes = {"layer": tuple(block.name for block in layers)}
    name = corruption if isinstance(corruption, str) else getattr(corruption, "__qualname__", type(corruption).__name__)
    settings = {
        "corruption": name,
        "severity": severity,
        "sigma": sigma,
        "seed": seed,
        "cells": cells,
        "images": images,
    }
    about = provenance(device=str(device), images=count, data=getattr(batches, "fingerprint", ""))
    errors = {key: f"{key}_error" for key in values if f"{key}_error" in values}
    return Measurement(_NAME, type(inner).__name__, values, dims, axes, settings, about, errors)


def _layers(anatomy: Anatomy) -> list[Block]:
    """The blocks whose output can be patched; an error if there are none."""
    layers = [block for block in anatomy.blocks if block.seam("block.out") is not None]
    if not layers:
        raise VitlabError(f"{_NAME}: no block of family {anatomy.family!r} has an output that can be patched")
    return layers


def forward_counts(model: nn.Module, anatomy: Anatomy, images: Tensor, cells: int) -> list[int]:
    """Returns the number of forwards of each layer.

    Three without a patch (clean, corrupted, activations of the clean images), one for each cell, prefix token and
    branch, and, if the layer has heads that can be patched, one for each head and one for their activations.

    Args:
        model: a classifier in evaluation mode, without wrappers.
        anatomy: the description of the model at the size of the images.
        images: (B, C, h, w); only the first is used.
        cells: cells per side of the token grid.
    """
    layers = _layers(anatomy)
    with_heads = blocks_with_heads(model, anatomy, layers, images)
    counts = []
    for block in layers:
        seam = block.seam("block.out")
        assert seam is not None
        count = 3 + sum(map(len, divide(seam.layout.grid, cells))) + seam.layout.prefix + len(_branches(block))
        if block.name in with_heads:
            count += 1 + _head_outputs(model, anatomy, block, images[:1]).at(block.name, "heads").shape[1]
        counts.append(count)
    return counts


def _limited(pairs: Iterable[Tensor], images: int | None) -> Iterator[Tensor]:
    """Yield pairs of clean and corrupted images until `images` clean ones were given; all if None."""
    left = images
    for pair in pairs:
        if not isinstance(pair, Tensor) or pair.ndim != 4:
            raise VitlabError(f"{_NAME} expects images (B, C, h, w); got {type(pair).__name__}")
        clean, corrupted = pair.chunk(2)
        yield torch.cat((clean[:left], corrupted[:left]))
        if left is not None:
            left -= len(clean)
            if left <= 0:
                return


def blocks_with_heads(model: nn.Module, anatomy: Anatomy, layers: Sequence[Block], clean: Tensor) -> set[str]:
    """Returns the names of the blocks whose head outputs can be read."""
    found = set()
    for block in layers:
        if block.mixer.queries is not None:
            try:
                _head_outputs(model, anatomy, block, clean[:1])
                found.add(block.name)
            except VitlabError:  # heads that are mixed after the softmax
                continue
    return found


def _branches(block: Block) -> dict[str, str]:
    """The branches of a block whose output can be patched: name and place."""
    return {name: place for name, place in (("attention", "attn"), ("mlp", "mlp")) if block.seam(f"{place}.out")}


def _head_outputs(model: nn.Module, anatomy: Anatomy, block: Block, images: Tensor) -> Activations:
    return activations(model, images, block=block.name, heads=True, anatomy=anatomy)


def _trace(
    model: nn.Module,
    anatomy: Anatomy,
    block: Block,
    iterate: Callable[[], Iterable[Tensor]],
    count: int,
    with_heads: bool,
) -> dict[str, np.ndarray]:
    """Returns the probability of the clean prediction of each image, clean, corrupted and for each patch of a layer."""
    parts = [patched_probabilities(model, anatomy, block, pair, count, with_heads) for pair in iterate()]
    return {key: torch.cat([part[key] for part in parts]).double().cpu().numpy() for key in parts[0]}


def patched_probabilities(
    model: nn.Module, anatomy: Anatomy, block: Block, pair: Tensor, count: int, with_heads: bool
) -> dict[str, Tensor]:
    """Returns the probability of the clean prediction of each image: clean, corrupted, and for each patch of a layer.

    Args:
        model: a classifier in evaluation mode, without wrappers; the caller disables gradients.
        anatomy: the description of the model at the size of the images.
        block: a block with the seam `block.out`.
        pair: (2 B, C, h, w), clean images, then their corrupted versions.
        count: cells per side of the token grid.
        with_heads: whether the outputs of the heads are patched too.

    Returns:
        `clean` and `corrupted` (B,); `tokens` (B, R, C); `prefix` (B, P), `heads` (B, H), `attention` and `mlp` (B,)
        where the block has them.
    """
    clean, corrupted = pair.chunk(2)
    seam = block.seam("block.out")
    assert seam is not None
    branches = _branches(block)
    places = ["block", *branches.values()]
    stored = activations(model, clean, block=block.name, at=places, anatomy=anatomy)
    expected = predict(model, clean, _NAME)
    chosen = expected.argmax(1, keepdim=True)

    def probability(logits: Tensor) -> Tensor:
        return logits.softmax(1).gather(1, chosen)[:, 0]

    def patched(**where: Any) -> Tensor:
        with intervene(model, "patch", block=block.name, anatomy=anatomy, **where):
            return probability(predict(model, corrupted, _NAME))

    prefix = seam.layout.prefix
    by_cell = [
        [patched(source=stored, tokens=[prefix + token for token in cell]) for cell in row]
        for row in divide(seam.layout.grid, count)
    ]
    result = {
        "clean": probability(expected),
        "corrupted": probability(predict(model, corrupted, _NAME)),
        "tokens": torch.stack([torch.stack(row, 1) for row in by_cell], 1),  # (B, R, C)
        **{name: patched(source=stored, at=place) for name, place in branches.items()},
    }
    if prefix:
        result["prefix"] = torch.stack([patched(source=stored, tokens=[token]) for token in range(prefix)], 1)
    if with_heads:
        heads = _head_outputs(model, anatomy, block, clean)
        number = heads.at(block.name, "heads").shape[1]
        result["heads"] = torch.stack([patched(source=heads, head=head) for head in range(number)], 1)
    return result


def _summary(effects: Sequence[Mapping[str, np.ndarray]]) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """Means and standard errors over images; layers of other sizes are padded with NaN."""
    values: dict[str, np.ndarray] = {}
    dims: dict[str, tuple[str, ...]] = {}
    inner = {"tokens": ("row", "column"), "prefix": ("prefix",), "heads": ("head",), "attention": (), "mlp": ()}
    for key, axes in inner.items():
        layers = [each[key] - _like(each["corrupted"], each[key]) if key in each else None for each in effects]
        if all(layer is None for layer in layers):
            continue
        shape = tuple(np.max([layer.shape[1:] for layer in layers if layer is not None], axis=0)) if axes else ()
        mean, error = (np.full((len(layers), *shape), np.nan) for _ in range(2))
        for index, layer in enumerate(layers):
            if layer is not None:
                where: Any = (index, *(slice(size) for size in layer.shape[1:]))
                mean[where], error[where] = layer.mean(0), standard_error(layer)
        values |= {key: mean, f"{key}_error": error}
        dims |= {key: ("layer", *axes), f"{key}_error": ("layer", *axes)}
    total = effects[0]["clean"] - effects[0]["corrupted"]
    values |= {"total_effect": np.array(total.mean()), "total_effect_error": np.array(standard_error(total))}
    values |= {f"{key}_probability": np.array(effects[0][key].mean()) for key in ("clean", "corrupted")}
    return values, {key: dims.get(key, ()) for key in values}


def _like(values: np.ndarray, array: np.ndarray) -> np.ndarray:
    """(n,) -> (n, 1, …), to be subtracted from an array (n, …)."""
    return values.reshape(-1, *[1] * (array.ndim - 1))
