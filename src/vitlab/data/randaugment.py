"""RandAugment for batches of small images, configured by timm's strings.

A layer assigns its images to fifteen operations (see `random_assignment`), so that each operation runs once, on a known
number of images, and no result is discarded. Differences from timm: the shares are stratified; warps are bilinear (timm
chooses bilinear or bicubic at random); grey levels may differ by one, since Pillow truncates.

Shape legend: n images, S slots of a layer (fifteen runs of s), h w pixels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data import pixel_operations as pixels
from vitlab.data.random_assignment import assign_slots, put, take
from vitlab.data.warping import warp

__all__ = ["OPERATIONS", "Layer", "RandAugment", "apply_layer", "arguments", "draw_layer", "parse"]

_WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_PIXELS = tuple(getattr(pixels, name) for name in pixels.__all__)

#: timm's fifteen operations, in the order of their slots in a layer.
OPERATIONS = (*_WARPS, *pixels.__all__)


@dataclass(frozen=True)
class RandAugment:
    """Settings of RandAugment.

    Args:
        magnitude: m, of 10.
        layers: n, the number of operations applied in sequence.
        probability: p, the probability that a layer changes an image.
        deviation: mstd, the standard deviation of m; infinite: uniform from 0 to m.
        largest: mmax, the largest m.
        increasing: inc, whether a larger magnitude always means a larger change.
    """

    magnitude: float = 10
    layers: int = 2
    probability: float = 0.5
    deviation: float = 0
    largest: float = 10
    increasing: bool = False


class Layer(NamedTuple):
    """The random numbers of one layer, (S,) each: image row, whether the slot is active, magnitude, sign (±1)."""

    rows: Tensor
    active: Tensor
    magnitudes: Tensor
    signs: Tensor


def parse(text: str) -> RandAugment:
    """Parse timm's configuration string; its weighted and three-operation sets (`t…`) are not supported.

    >>> parse("rand-m9-n2-mstd0.5-inc1")
    RandAugment(magnitude=9, layers=2, probability=0.5, deviation=0.5, largest=10, increasing=True)
    """
    head, *sections = text.split("-")
    given = {}
    for section in sections:
        match = re.fullmatch(r"(mstd|mmax|inc|m|n|p)(\d+\.?\d*|inf)", section)
        if not match:
            raise VitlabError(
                f"invalid section {section!r} of RandAugment {text!r}; expected m, n, p, mstd, mmax or inc and a number"
            )
        given[match[1]] = float(match[2])
    if head != "rand":
        raise VitlabError(f"invalid RandAugment {text!r}; expected for example rand-m9-n2-mstd0.5-inc1")
    deviation = given.get("mstd", 0.0)
    return RandAugment(
        magnitude=int(given.get("m", 10)),
        layers=int(given.get("n", 2)),
        probability=min(given.get("p", 0.5), 1.0),
        deviation=math.inf if deviation > 100 else deviation,
        largest=int(given.get("mmax", 10)),
        increasing=bool(given.get("inc", 0)),
    )


def draw_layer(count: int, settings: RandAugment, generator: torch.Generator) -> Layer:
    """Assign n images to the operations, and draw a magnitude and a sign for each slot.

    >>> layer = draw_layer(300, parse("rand-m9-mstd0.5"), torch.Generator().manual_seed(0))
    >>> len(layer.rows), bool(layer.magnitudes.max() <= 10)
    (150, True)
    """
    rows, active = assign_slots(count, settings.probability, generator, kinds=len(OPERATIONS))
    slots, device = len(rows), generator.device
    signs = torch.where(torch.rand(slots, generator=generator, device=device) < 0.5, -1.0, 1.0)
    if settings.deviation == math.inf:
        magnitudes = settings.magnitude * torch.rand(slots, generator=generator, device=device)
    else:
        magnitudes = settings.magnitude + settings.deviation * torch.randn(slots, generator=generator, device=device)
    return Layer(rows, active, magnitudes.clamp(0, settings.largest), signs)


def apply_layer(images: Tensor, layer: Layer, increasing: bool, fill: Tensor) -> Tensor:
    """Apply one layer of RandAugment.

    Args:
        images: (n, 3, h, w) uint8.
        layer: from `draw_layer`.
        increasing: of the settings.
        fill: (3,) float32 in [0, 255], fill colour of warps outside the image; timm uses the mean of the data.

    Returns:
        (n, 3, h, w) uint8.
    """
    if not len(layer.rows):
        return images
    chosen = take(images, layer.rows)
    given = arguments(layer.magnitudes, layer.signs, increasing)
    warped = len(layer.rows) // len(OPERATIONS) * len(_WARPS)  # the warps come first and share one sampling call
    maps = _maps(given[:warped], images.shape[3] / images.shape[2])
    # Pillow truncates; 0.001 prevents float32 rounding errors from lowering whole numbers by a grey level.
    changed = [(warp(chosen[:warped].float(), maps, fill) + 0.001).to(torch.uint8)]
    runs = zip(chosen[warped:].chunk(len(_PIXELS)), given[warped:].chunk(len(_PIXELS)), strict=True)
    changed += [act(run, value) for act, (run, value) in zip(_PIXELS, runs, strict=True)]
    result = torch.where(layer.active[:, None, None, None], torch.cat(changed), chosen)
    return put(images, layer.rows, result)


def arguments(magnitudes: Tensor, signs: Tensor, increasing: bool) -> Tensor:
    """Convert magnitudes M to the arguments of the operations, by timm's ranges: (S,) -> (S,), fifteen runs.

    rotate ±3 M degrees; shear ±0.03 M; translate ±0.045 M of the side; posterize ⌊0.4 M⌋ bits, solarize from ⌊25.6 M⌋;
    blends 0.1 + 0.18 M; increasing: 4 - those bits, from 256 - that, blends 1 ± 0.09 M (at least 0.1); solarize-add
    ⌊11 M⌋ up to 128.

    >>> values = arguments(torch.full((15,), 9.0), torch.ones(15), increasing=True)
    >>> {name: round(value, 3) for name, value in zip(OPERATIONS, values.tolist())}["posterize"]
    1.0
    """
    level = dict(zip(OPERATIONS, magnitudes.chunk(len(OPERATIONS)), strict=True))
    sign = dict(zip(OPERATIONS, signs.chunk(len(OPERATIONS)), strict=True))
    bits, start = (0.4 * level["posterize"]).floor(), (25.6 * level["solarize"]).floor().clamp(max=256)
    value = level | {
        "rotate": 3 * level["rotate"] * sign["rotate"],
        "posterize": 4 - bits if increasing else bits,
        "solarize": 256 - start if increasing else start,
        "solarize_add": (11 * level["solarize_add"]).floor().clamp(max=128),
    }
    for name, slope in {"shear_x": 0.03, "shear_y": 0.03, "translate_x": 0.045, "translate_y": 0.045}.items():
        value[name] = slope * level[name] * sign[name]
    for name in ("color", "contrast", "brightness", "sharpness"):
        blend = (1 + 0.09 * level[name] * sign[name]).clamp(min=0.1)
        value[name] = blend if increasing else 0.1 + 0.18 * level[name]
    return torch.cat([value[name] for name in OPERATIONS])


def _maps(values: Tensor, aspect: float) -> Tensor:
    """Returns Pillow's inverse maps (5 s, 2, 3) of the five warps, in the coordinates of `warp`; aspect is w / h.

    Rotations are about the centre; shears are relative to the upper left corner, as in Pillow.
    """
    angle, shear_x, shear_y, shift_x, shift_y = values.chunk(len(_WARPS))
    angle = torch.deg2rad(angle)
    zero = torch.zeros_like(angle)
    one = zero + 1
    maps = (
        (angle.cos(), -angle.sin() / aspect, zero, angle.sin() * aspect, angle.cos(), zero),
        (one, shear_x / aspect, shear_x / aspect, zero, one, zero),
        (one, zero, zero, shear_y * aspect, one, shear_y * aspect),
        (one, zero, 2 * shift_x, zero, one, zero),
        (one, zero, zero, zero, one, 2 * shift_y),
    )
    return torch.cat([torch.stack(entries, 1).unflatten(1, (2, 3)) for entries in maps])
