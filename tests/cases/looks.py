"""Synthetic measurements of attention and feature instruments for any depth and number of heads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name


def _measured(kind: str, subject: str, values: dict, dims: dict, axes: dict | None = None, **settings) -> Measurement:
    arrays = {name: np.asarray(value) for name, value in values.items()}
    errors = errors_by_name({name: tuple(dims.get(name, ())) for name in values})
    return Measurement(kind, subject, arrays, dims, axes or {}, settings, {}, errors)


def _by_layer(values: dict) -> dict:
    return {name: ("layer", "head")[: np.ndim(value)] for name, value in values.items()}


def entropy(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    bound = np.full(depth, np.log(50))
    mean = level * bound[:, None] + 0.1 * rng.random((depth, heads))
    values = {"mean": mean, "p15": mean - 0.2, "p85": mean + 0.2, "class_row": mean - 0.3}
    values |= {"normalised": mean / bound[:, None], "bound": bound}
    return _measured("attention_entropy", subject, values, _by_layer(values))


def distance(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    attended = level + 0.1 * rng.random((depth, heads))
    values = {"distance": attended / 49, "attended": attended, "uniform": np.full(depth, 0.65)}
    return _measured("attention_distance", subject, values, _by_layer(values))


def stability(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    mean = level + 0.1 * rng.random((depth, heads))
    histogram = rng.random((depth, heads, 10))
    histogram /= histogram.sum(2, keepdims=True)
    values = {"mean": mean, "quantiles": np.stack([mean - 0.1, mean, mean + 0.1]), "histogram": histogram}
    values |= {"distribution": histogram.mean((0, 1)), "overall": mean.mean()}
    dims = {"mean": ("layer", "head"), "quantiles": ("quantile", "layer", "head")}
    dims |= {"histogram": ("layer", "head", "similarity"), "distribution": ("similarity",), "overall": ()}
    axes = {"quantile": (0.25, 0.5, 0.75), "similarity": tuple(np.linspace(0.05, 0.95, 10).tolist())}
    return _measured("attention_stability", subject, values, dims, axes, corruption="gaussian_noise")


def diversity(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    pairs = np.stack([np.full((heads, heads), level) + 0.01 * layer for layer in range(depth)])
    pairs[:, np.arange(heads), np.arange(heads)] = 1
    local = level + 0.1 * rng.random((depth, heads))
    values = {"head_similarity": pairs[:, 0, -1], "head_pairs": pairs, "row_similarity": local}
    values |= {"self_mass": local / 3, "neighbourhood_mass": local}
    dims = {**_by_layer(values), "head_pairs": ("layer", "head", "other head")}
    return _measured("attention_diversity", subject, values, dims)


def overfocus(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    top = level + 0.1 * rng.random((2, depth, heads))
    values = {"top1": top[0] / 2, "gini": top[1], "top": top, "top1_of_mean": top[0].mean(1) / 2}
    values["gini_of_mean"] = top[1].mean(1)
    dims = {**_by_layer(values), "top": ("share", "layer", "head")}
    return _measured("token_overfocus", subject, values, dims, {"share": (0.05, 0.1)})


def maps(subject="a", depth=2, heads=3, level=0.5, rng=None, queries=None, grid=(3, 4), prefix=1) -> Measurement:
    rng = rng or np.random.default_rng(0)
    tokens = grid[0] * grid[1] + prefix
    queries = tuple(range(tokens)) if queries is None else queries
    values, dims = {}, {"key_grid": ("layer", "side"), "key_prefix": ("layer",)}
    layers = tuple(f"blocks.{i}" for i in range(min(depth, 2)))
    axes = {"layer": layers, "side": ("height", "width"), "image": (0, 7)}
    for layer in layers:
        weights = rng.random((2, heads, len(queries), tokens)) ** (1 / level)
        values[layer] = weights / weights.sum(-1, keepdims=True)
        own = [f"{axis} of {layer}" for axis in ("head", "query", "key")]
        dims[layer] = ("image", *own)
        axes |= {own[0]: tuple(range(heads)), own[1]: queries}
    values |= {"key_grid": np.array([grid] * len(layers)), "key_prefix": np.full(len(layers), prefix)}
    return _measured("attention_maps", subject, values, dims, axes)


def softmax(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    x = np.linspace(-4, 4, 9)
    first = 1 / (1 + np.exp(x[None] - x[:, None]))
    mean = level + 0.1 * rng.random((depth, heads))
    by_entropy = rng.random((depth, 5))
    by_entropy[:, 0] = np.nan  # no row is that sparse
    values = {"mean": mean, "correlation": mean, "bound": np.full(depth, 0.98), "scale": np.full(depth, np.nan)}
    values |= {"by_entropy": by_entropy, "plane_softmax": first, "plane_norm": 2 * first * (1 - first)}
    values |= {"curve_entropy": np.linspace(0, np.log(50), 7), "curve_norm": np.linspace(0, 0.98, 7)}
    dims = {**_by_layer(values), "by_entropy": ("layer", "entropy share")}
    dims |= dict.fromkeys(("plane_softmax", "plane_norm"), ("x1", "x2"))
    dims |= dict.fromkeys(("curve_entropy", "curve_norm"), ("point",))
    axes = {"entropy share": (0.1, 0.3, 0.5, 0.7, 0.9), "x1": tuple(x.tolist()), "x2": tuple(x.tolist())}
    return _measured("softmax_gradient", subject, values, dims, axes)


def scale(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rise = np.linspace(0.1, 0.1 + level, depth)
    values = {"ratio": rise, "ratio_signed": rise, "mean": -rise, "mean_absolute": rise / 10}
    return _measured("broadcast_scale", subject, values, dict.fromkeys(values, ("layer",)))


def reach(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    rng = rng or np.random.default_rng(0)
    total = 1 + rng.random((3, depth, 2))
    total[:, 0, 1] = np.nan  # a weight that the first block does not have
    values = {"total": total, "through": level * total * np.array([0.5, 0.8, 1.0])[:, None, None], "changed": total / 2}
    axes = {
        "seam": ("mlp.in", "mlp.mid", "mlp.out"),
        "block": tuple(range(depth)),
        "weight": ("fc1.weight", "fc2.weight"),
    }
    return _measured("gradient_reach", subject, values, dict.fromkeys(values, ("seam", "block", "weight")), axes)


def _stream(depth: int, grids: list[tuple[int, int]] | None = None) -> tuple[dict, np.ndarray]:
    """Places and steps of a ViT, and the grid at each place."""
    places = tuple(f"blocks.{i} {tap}" for i in range(depth) for tap in ("in", "mid", "out"))
    steps = tuple(f"blocks.{i} {kind}" for i in range(depth) for kind in ("MSA", "MLP"))
    grid = np.repeat(np.array(grids or [(8, 8)] * depth), 3, 0)
    return {"place": places, "step": steps, "side": ("h", "w")}, grid


def _walk(depth: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """A value that falls by `level` at each MSA and rises by half of it at each MLP; and these changes."""
    change = np.tile([-level, level / 2], depth)
    before = np.concatenate(([0.0], np.cumsum(change)))
    value = np.array([before[2 * block + tap] for block in range(depth) for tap in range(3)])
    return value, change


def fourier(subject="a", depth=4, heads=3, level=0.5, rng=None, grids=None) -> Measurement:
    axes, grid = _stream(depth, grids)
    high, change = _walk(depth, level)
    amplitude = (high - 3)[:, None] * np.linspace(0, 1, 4)
    frequency = np.tile(np.linspace(0, 0.75, 4), (len(high), 1))
    values = {"amplitude": amplitude, "frequency": frequency, "high": high - 3, "change": change, "grid": grid}
    dims = {**dict.fromkeys(("amplitude", "frequency"), ("place", "index")), "high": ("place",)}
    dims |= {"change": ("step",), "grid": ("place", "side")}
    return _measured("feature_fourier", subject, values, dims, axes)


def variance(subject="a", depth=4, heads=3, level=0.5, rng=None, grids=None) -> Measurement:
    axes, grid = _stream(depth, grids)
    value, change = _walk(depth, level)
    values = {"variance": value + 10, "change": change, "grid": grid}
    dims = {"variance": ("place",), "change": ("step",), "grid": ("place", "side")}
    return _measured("feature_variance", subject, values, dims, axes)


def cka(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    apart = np.abs(np.arange(depth)[:, None] - np.arange(depth))
    return _measured("representation_cka", subject, {"cka": level**apart}, {"cka": ("layer", "other_layer")})


def lesion(subject="a", depth=4, heads=3, level=0.5, rng=None) -> Measurement:
    units = tuple(f"blocks.{i} {kind}" for i in range(depth) for kind in ("MSA", "MLP"))
    change = np.linspace(-level, 0, len(units))
    values = {"change": change, "standard_error": np.full(len(units), 0.02), "accuracy": 0.9 + change}
    values |= {"nll_change": -2 * change, "nll_standard_error": np.full(len(units), 0.1)}
    values |= {"block": np.repeat(np.arange(depth), 2), "stage": np.repeat(np.arange(depth) // 2, 2)}
    dims = {**dict.fromkeys(values, ("unit",)), "baseline": ()}
    return _measured("lesion", subject, {**values, "baseline": 0.9}, dims, {"unit": units})


#: By the kind of measurement; `level` moves what the figure's finding speaks of.
LOOKS: dict[str, Callable[..., Measurement]] = {
    "attention_entropy": entropy,
    "attention_distance": distance,
    "attention_stability": stability,
    "attention_diversity": diversity,
    "token_overfocus": overfocus,
    "attention_maps": maps,
    "softmax_gradient": softmax,
    "broadcast_scale": scale,
    "gradient_reach": reach,
    "feature_fourier": fourier,
    "feature_variance": variance,
    "representation_cka": cka,
    "lesion": lesion,
}
