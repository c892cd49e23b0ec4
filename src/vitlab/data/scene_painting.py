"""Draw the pixels of scenes: shapes and textures as signed distances, painted back to front in batched operations.

Pixels use only +, −, ×, max, min, floor and √, whose rounding IEEE 754 defines exactly: results are bit-identical with
any vector width and any number of threads.

Shape legend: B scenes, K objects of a scene, P drawn objects of the batch (all scenes together), h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from vitlab.data.scene_layout import Appearance, Objects, Surface, take

Distance = Callable[[Tensor, Tensor], Tensor]


def _circle(u: Tensor, v: Tensor) -> Tensor:
    return (u * u).add_(v * v).sqrt_().sub_(1)


def _square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs(), v.abs()).sub_(math.sqrt(math.pi) / 2)


def _triangle(u: Tensor, v: Tensor) -> Tensor:
    sides = u.abs().mul_(math.sqrt(3) / 2).sub_(v * 0.5)
    return torch.maximum(sides, v).sub_(math.sqrt(math.pi / (3 * math.sqrt(3))))


def _star(u: Tensor, v: Tensor) -> Tensor:
    # Five points: two reflections map the plane to the wedge of half a point, where the outline is one line.
    c, s = math.cos(math.pi / 5), math.sin(math.pi / 5)
    u = u.abs()
    fold = (u * c).sub_(v * s).clamp_(min=0).mul_(2)
    u, v = u - fold * c, v + fold * s
    fold = (u * -c).sub_(v * s).clamp_(min=0).mul_(2)
    u, v = (u + fold * c).abs_(), v + fold * s
    tip = math.sqrt(math.pi / (5 * 0.45 * s))  # the inner radius is 0.45 of the outer
    edge = (0.45 * s * tip, (0.45 * c - 1) * tip)
    length = math.hypot(*edge)
    return (u * (-edge[1] / length)).add_((v - tip) * (edge[0] / length))


def _cross(u: Tensor, v: Tensor) -> Tensor:
    u, v = u.abs(), v.abs()
    arm = math.sqrt(math.pi / (4 * (2 * 0.3 - 0.3**2)))
    return torch.maximum(torch.maximum(u, v).sub_(arm), torch.minimum(u, v).sub_(0.3 * arm))


def _stripe(u: Tensor) -> Tensor:
    return (u - u.floor()).sub_(0.5).abs_().sub_(0.25)


def _plain(u: Tensor, v: Tensor) -> Tensor:
    return torch.ones_like(u)


def _striped(u: Tensor, v: Tensor) -> Tensor:
    return _stripe(u)


def _checked(u: Tensor, v: Tensor) -> Tensor:
    a, b = _stripe(u), _stripe(v)
    return torch.maximum(torch.minimum(a, b), torch.maximum(a, b).neg_())


def _dotted(u: Tensor, v: Tensor) -> Tensor:
    return _circle((u - u.floor()).sub_(0.5), (v - v.floor()).sub_(0.5)).add_(1 - 0.33)


def _ringed(u: Tensor, v: Tensor) -> Tensor:
    return _stripe(_circle(u, v))


#: In the order of `SHAPES`: signed distance to an outline around an area of π, negative inside.
_OUTLINES: tuple[Distance, ...] = (_circle, _square, _triangle, _star, _cross)
#: In the order of `TEXTURES`: signed distance to the ink, in periods of 1.
_INKS: tuple[Distance, ...] = (_plain, _striped, _checked, _dotted, _ringed)


def _pixels(side: int, like: Tensor) -> Tensor:
    return torch.arange(side, dtype=like.dtype, device=like.device) + 0.5


def _axes(centres: Tensor, angles: Tensor, scales: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns the coordinates (P, h, w) of the pixel centres in each object's rotated and scaled frame."""
    x = _pixels(size[1], centres) - centres[:, :1]
    y = _pixels(size[0], centres) - centres[:, 1:]
    # In float64, so that differences of cos in the last bit between vector widths are rounded away.
    cos = (angles.double().cos() / scales).float()[:, None]
    sin = (angles.double().sin() / scales).float()[:, None]
    return (x * cos)[:, None] + (y * sin)[..., None], (x * -sin)[:, None] + (y * cos)[..., None]


def _distances(
    functions: tuple[Distance, ...],
    kinds: Tensor,
    centres: Tensor,
    angles: Tensor,
    scales: Tensor,
    size: tuple[int, int],
) -> Tensor:
    """Returns signed distances (P, h, w) in pixels, each row by the function of its kind."""
    out = scales.new_empty(len(kinds), *size)
    for kind, function in enumerate(functions):
        rows = (kinds == kind).nonzero()[:, 0]
        if len(rows):
            out[rows] = function(*_axes(centres[rows], angles[rows], scales[rows], size))
    return out.mul_(scales[:, None, None])


def _coverage(distances: Tensor) -> Tensor:
    """Returns the share of a pixel that is inside, to first order; above ½ if its centre is inside. In place."""
    return distances.neg_().add_(0.5).clamp_(0, 1)


def _outlines(objects: Objects, size: tuple[int, int]) -> Tensor:
    return _distances(_OUTLINES, objects.shapes, objects.centres, objects.angles, objects.radii, size)


def _ink(surface: Surface, size: tuple[int, int]) -> Tensor:
    inks = _distances(_INKS, surface.textures, surface.anchors, surface.angles, surface.periods, size)
    return _coverage(inks)


def _colourise(ink: Tensor, tones: Tensor) -> Tensor:
    """Returns colours (P, 3, h, w): the first tone without ink, the second with ink."""
    tones = tones[..., None, None]
    return (ink[:, None] * (tones[:, 1] - tones[:, 0])).add_(tones[:, 0])


def _back_to_front(objects: Objects) -> tuple[tuple[Tensor, Tensor], list[slice]]:
    """Returns (scene, object) of the P objects, farthest first, and the rows of each depth (a scene once at most)."""
    order = objects.depths.argsort(dim=1, descending=True)
    rank, scene = objects.present.gather(1, order).T.nonzero(as_tuple=True)
    ends = torch.searchsorted(rank, torch.arange(order.shape[1] + 1, device=rank.device)).tolist()
    rows = [slice(low, high) for low, high in pairwise(ends) if high > low]
    return (scene, order[scene, rank]), rows


def paint(objects: Objects, appearance: Appearance, size: tuple[int, int]) -> Tensor:
    """Returns the images (B, 3, h, w) uint8."""
    canvas = _colourise(_ink(appearance.ground, size), appearance.ground.tones).add_(
        _clutter(appearance, size)[:, None]
    )
    where, depths = _back_to_front(objects)
    surfaces = take(appearance.surfaces, where)
    cover, ink = _coverage(_outlines(take(objects, where), size)), _ink(surfaces, size)
    for rows in depths:
        scenes = where[0][rows]
        below = canvas[scenes]
        above = _colourise(ink[rows], surfaces.tones[rows])
        canvas[scenes] = above.sub_(below).mul_(cover[rows, None]).add_(below)
    x, y = (_pixels(side, appearance.light) - side / 2 for side in size[::-1])
    light = (x * appearance.light[:, :1])[:, None] + (y * appearance.light[:, 1:] + 1)[..., None]
    return canvas.mul_(light[:, None]).add_(0.5).clamp_(0, 255).to(torch.uint8)


def _clutter(appearance: Appearance, size: tuple[int, int]) -> Tensor:
    """Returns what the strokes add to the background, (B, h, w)."""
    shade = appearance.light.new_zeros(len(appearance.light), *size)
    for k in range(appearance.lengths.shape[1]):
        u, v = _axes(appearance.centres[:, k], appearance.angles[:, k], torch.ones_like(appearance.angles[:, k]), size)
        u.abs_().sub_(appearance.lengths[:, k, None, None])
        v.abs_().sub_(appearance.widths[:, k, None, None])
        shade += _coverage(torch.maximum(u, v)).mul_(appearance.shades[:, k, None, None])
    return shade


def silhouettes(objects: Objects, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Returns the visible pixels of each object (B, K, h, w), and how many it covers, occluded or not (B, K)."""
    where, depths = _back_to_front(objects)
    inside = _outlines(take(objects, where), size) < 0
    covered = torch.zeros_like(objects.depths)
    covered[where] = inside.flatten(1).sum(1)
    hidden = inside.new_zeros(len(covered), *size)
    for rows in reversed(depths):
        scenes, front = where[0][rows], inside[rows].clone()
        inside[rows] &= ~hidden[scenes]
        hidden[scenes] |= front
    seen = inside.new_zeros(*covered.shape, *size)
    seen[where] = inside
    return seen, covered
