"""Pixels of a scene: shapes and textures as signed distances, painted back to front in batched operations.

No pixel goes through anything but +, −, ×, max, min, floor and √, which IEEE 754 rounds in one way only: vectorised or
not, on one thread or many, the bits are the same.

Shape legend: B scenes, K objects of a scene, P drawn objects of the batch (all scenes together), h w pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from vitlab.data.scene_layout import Look, Objects, Surface, take

Distance = Callable[[Tensor, Tensor], Tensor]


def _circle(u: Tensor, v: Tensor) -> Tensor:
    return (u * u).add_(v * v).sqrt_().sub_(1)


def _square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs(), v.abs()).sub_(math.sqrt(math.pi) / 2)


def _triangle(u: Tensor, v: Tensor) -> Tensor:
    sides = u.abs().mul_(math.sqrt(3) / 2).sub_(v * 0.5)
    return torch.maximum(sides, v).sub_(math.sqrt(math.pi / (3 * math.sqrt(3))))


def _star(u: Tensor, v: Tensor) -> Tensor:
    # Five points: two reflections fold the plane into the wedge of half a point, where one line is the outline.
    c, s = math.cos(math.pi / 5), math.sin(math.pi / 5)
    u = u.abs()
    fold = (u * c).sub_(v * s).clamp_(min=0).mul_(2)
    u, v = u - fold * c, v + fold * s
    fold = (u * -c).sub_(v * s).clamp_(min=0).mul_(2)
    u, v = (u + fold * c).abs_(), v + fold * s
    tip = math.sqrt(math.pi / (5 * 0.45 * s))  # the notches are 0.45 as far out as the tips
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
    """Coordinates (P, h, w) of every pixel centre in each object's own frame, rotated and in units of its scale."""
    x = _pixels(size[1], centres) - centres[:, :1]
    y = _pixels(size[0], centres) - centres[:, 1:]
    # In double, so that a last bit of cos that depends on the vector width is rounded away.
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
    """(P, h, w) signed distances in pixels, each row by the function of its kind."""
    out = scales.new_empty(len(kinds), *size)
    for kind, function in enumerate(functions):
        rows = (kinds == kind).nonzero()[:, 0]
        if len(rows):
            out[rows] = function(*_axes(centres[rows], angles[rows], scales[rows], size))
    return out.mul_(scales[:, None, None])


def _coverage(distances: Tensor) -> Tensor:
    """The part of a pixel that is inside, to first order; above ½ where its centre is. In place."""
    return distances.neg_().add_(0.5).clamp_(0, 1)


def _outlines(objects: Objects, size: tuple[int, int]) -> Tensor:
    return _distances(_OUTLINES, objects.shapes, objects.centres, objects.angles, objects.radii, size)


def _ink(surface: Surface, size: tuple[int, int]) -> Tensor:
    inks = _distances(_INKS, surface.textures, surface.anchors, surface.angles, surface.periods, size)
    return _coverage(inks)


def _dye(ink: Tensor, tones: Tensor) -> Tensor:
    """(P, 3, h, w): the first tone where there is no ink, the second where there is."""
    tones = tones[..., None, None]
    return (ink[:, None] * (tones[:, 1] - tones[:, 0])).add_(tones[:, 0])


def _back_to_front(objects: Objects) -> tuple[tuple[Tensor, Tensor], list[slice]]:
    """(scene, object) of the P drawn ones, farthest first, and the rows of each depth: no scene twice in one."""
    order = objects.depths.argsort(dim=1, descending=True)
    rank, scene = objects.present.gather(1, order).T.nonzero(as_tuple=True)
    ends = torch.searchsorted(rank, torch.arange(order.shape[1] + 1, device=rank.device)).tolist()
    rows = [slice(low, high) for low, high in pairwise(ends) if high > low]
    return (scene, order[scene, rank]), rows


def paint(objects: Objects, look: Look, size: tuple[int, int]) -> Tensor:
    """The pictures (B, 3, h, w) uint8."""
    canvas = _dye(_ink(look.ground, size), look.ground.tones).add_(_clutter(look, size)[:, None])
    where, depths = _back_to_front(objects)
    surfaces = take(look.surfaces, where)
    cover, ink = _coverage(_outlines(take(objects, where), size)), _ink(surfaces, size)
    for rows in depths:
        scenes = where[0][rows]
        below = canvas[scenes]
        above = _dye(ink[rows], surfaces.tones[rows])
        canvas[scenes] = above.sub_(below).mul_(cover[rows, None]).add_(below)
    x, y = (_pixels(side, look.light) - side / 2 for side in size[::-1])
    light = (x * look.light[:, :1])[:, None] + (y * look.light[:, 1:] + 1)[..., None]
    return canvas.mul_(light[:, None]).add_(0.5).clamp_(0, 255).to(torch.uint8)


def _clutter(look: Look, size: tuple[int, int]) -> Tensor:
    """(B, h, w): what the strokes add to the ground."""
    shade = look.light.new_zeros(len(look.light), *size)
    for k in range(look.lengths.shape[1]):
        u, v = _axes(look.centres[:, k], look.angles[:, k], torch.ones_like(look.angles[:, k]), size)
        u.abs_().sub_(look.lengths[:, k, None, None])
        v.abs_().sub_(look.widths[:, k, None, None])
        shade += _coverage(torch.maximum(u, v)).mul_(look.shades[:, k, None, None])
    return shade


def silhouettes(objects: Objects, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Seen pixels of each object (B, K, h, w), and how many it covers in the frame, hidden or not (B, K)."""
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
