"""RandAugment for whole batches of small images, by timm's text for it.

A layer deals its images to fifteen operations (see `dealing`), so that each operation works once, on a run of known
length, and no image goes through work that is thrown away. What differs from timm: the shares are stratified; warps are
bilinear (timm takes bilinear or bicubic at random); grey levels may differ by one, since Pillow cuts fractions off.

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
from vitlab.data.random_assignment import deal, put, take
from vitlab.data.warping import warp

__all__ = ["OPERATIONS", "Layer", "RandAugment", "apply_layer", "arguments", "draw_layer", "parse"]

_WARPS = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_PIXELS = tuple(getattr(pixels, name) for name in pixels.__all__)

#: timm's fifteen, in the order in which they own the slots of a layer.
OPERATIONS = (*_WARPS, *pixels.__all__)


@dataclass(frozen=True)
class RandAugment:
    """What the text says.

    Args:
        magnitude: m, of 10.
        layers: n, operations one after another.
        probability: p, that a layer acts on an image.
        deviation: mstd, of the normal noise on m; infinite: uniform from 0 to m.
        largest: mmax, the end of the range of m.
        increasing: inc, whether more magnitude always means more change.
    """

    magnitude: float = 10
    layers: int = 2
    probability: float = 0.5
    deviation: float = 0
    largest: float = 10
    increasing: bool = False


class Layer(NamedTuple):
    """The draws of one layer, (S,) each: the image in a slot, whether the slot acts, its magnitude, its sign (±1)."""

    rows: Tensor
    active: Tensor
    magnitudes: Tensor
    signs: Tensor


def parse(text: str) -> RandAugment:
    """Read timm's text; its weighted and three-operation sets (`t…`) are not offered here.

    >>> parse("rand-m9-n2-mstd0.5-inc1")
    RandAugment(magnitude=9, layers=2, probability=0.5, deviation=0.5, largest=10, increasing=True)
    """
    head, *sections = text.split("-")
    given = {}
    for section in sections:
        match = re.fullmatch(r"(mstd|mmax|inc|m|n|p)(\d+\.?\d*|inf)", section)
        if not match:
            raise VitlabError(
                f"no RandAugment section {section!r} in {text!r}; write m, n, p, mstd, mmax, inc and numbers"
            )
        given[match[1]] = float(match[2])
    if head != "rand":
        raise VitlabError(f"{text!r} is no RandAugment; write for example rand-m9-n2-mstd0.5-inc1")
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
    """Deal n images to the operations, and draw a magnitude and a sign for each slot.

    >>> layer = draw_layer(300, parse("rand-m9-mstd0.5"), torch.Generator().manual_seed(0))
    >>> len(layer.rows), bool(layer.magnitudes.max() <= 10)
    (150, True)
    """
    rows, active = deal(count, settings.probability, generator, kinds=len(OPERATIONS))
    slots, device = len(rows), generator.device
    signs = torch.where(torch.rand(slots, generator=generator, device=device) < 0.5, -1.0, 1.0)
    if settings.deviation == math.inf:
        magnitudes = settings.magnitude * torch.rand(slots, generator=generator, device=device)
    else:
        magnitudes = settings.magnitude + settings.deviation * torch.randn(slots, generator=generator, device=device)
    return Layer(rows, active, magnitudes.clamp(0, settings.largest), signs)


def apply_layer(images: Tensor, layer: Layer, increasing: bool, fill: Tensor) -> Tensor:
    """One layer of RandAugment.

    Args:
        images: (n, 3, h, w) uint8.
        layer: from `draw_layer`.
        increasing: of the settings.
        fill: (3,) float32 in [0, 255], what warps show outside the image; timm takes the mean of the data.

    Returns:
        (n, 3, h, w) uint8.
    """
    if not len(layer.rows):
        return images
    chosen = take(images, layer.rows)
    given = arguments(layer.magnitudes, layer.signs, increasing)
    warped = len(layer.rows) // len(OPERATIONS) * len(_WARPS)  # the warps stand first and share one pass of sampling
    maps = _maps(given[:warped], images.shape[3] / images.shape[2])
    # Pillow cuts fractions off; the 0.001 keeps what is whole, but for float32, from losing a grey level.
    changed = [(warp(chosen[:warped].float(), maps, fill) + 0.001).to(torch.uint8)]
    runs = zip(chosen[warped:].chunk(len(_PIXELS)), given[warped:].chunk(len(_PIXELS)), strict=True)
    changed += [act(run, value) for act, (run, value) in zip(_PIXELS, runs, strict=True)]
    kept = torch.where(layer.active[:, None, None, None], torch.cat(changed), chosen)
    return put(images, layer.rows, kept)


def arguments(magnitudes: Tensor, signs: Tensor, increasing: bool) -> Tensor:
    """What each operation takes for its magnitude M, by timm's ranges: (S,) -> (S,), fifteen runs.

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
    """Pillow's inverse maps (5 s, 2, 3) of the five warps, in the coordinates of `warp`; aspect is w / h.

    Rotations turn about the middle; shears start from the upper left corner, as Pillow's do.
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
