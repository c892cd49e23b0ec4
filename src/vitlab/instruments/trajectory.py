"""Trajectory: polar coordinates of the weights during training, relative to the final weights (HDVW Figs. 1b, C.4b).

    Δw_t = w_t − w_optimal,   r_t = ‖Δw_t‖ / ‖Δw_init‖,   θ_t = angle between Δw_t and Δw_init

Caveat: the authors withdrew this figure as hard to reproduce and misleading, and ask readers to disregard it (issue 13
of their repository). Two coordinates contain little information about a path in millions of dimensions: a smooth curve
does not support conclusions.

Shape legend: T snapshots, P weights in total.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.provenance import provenance
from vitlab.core.store import read_tensors
from vitlab.instruments.shared.loss_surface import Weights, weights_of

CARD = Card(
    title="Polar coordinates of training snapshots, seen from the last weights",
    paper="HDVW Figs. 1b, C.4b (withdrawn by the authors)",
    cost="no forward; each snapshot is read once",
    inputs="nothing",
    passes="none",
    needs=("snapshots",),
)

Snapshot = str | Path | nn.Module | Mapping[str, Tensor]


def polar(offset: Tensor, start: Tensor) -> tuple[float, float]:
    """r and θ of an offset from the optimum, relative to the offset of the start (HDVW, caption of Fig. 1).

    θ = 2 atan2(‖u − v‖, ‖u + v‖) for the unit vectors u, v: cos⁻¹ is inaccurate for small angles.

    Args:
        offset: (P,) Δw_t.
        start: (P,) Δw_init.

    Returns:
        r_t, and θ_t in [0, π]; θ_t is NaN for a zero offset.

    >>> polar(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0]))
    (0.5, 1.5707963267948966)
    """
    offset, start = offset.double(), start.double()
    length, full = float(offset.norm()), float(start.norm())
    if not length:
        return 0.0, float("nan")
    u, v = offset / length, start / full
    return length / full, 2 * float(torch.atan2((u - v).norm(), (u + v).norm()))


def measure(
    model: nn.Module, batches: Iterable[Any] = (), *, snapshots: str | Path | Sequence[Snapshot] = ()
) -> Measurement:
    """Polar coordinates of snapshots around a model's weights. See the caveat above: the authors withdrew the figure.

    Args:
        model: w_optimal, usually the end of training.
        batches: not used.
        snapshots: a run folder with snapshots; or a sequence in the order of training, w_init first, of paths of
            safetensors files, models, or mappings from parameter names to tensors. Buffers are ignored.

    Returns:
        `radius` and `angle` (snapshot), the angle in radians, NaN for a snapshot equal to the model.
    """
    if isinstance(snapshots, (str, Path)):
        snapshots = run_snapshots(Path(snapshots))
        labels: tuple[str | int, ...] = tuple(path.stem for path in snapshots)
    elif isinstance(snapshots, (Mapping, nn.Module)) or not len(snapshots):
        raise VitlabError(
            "trajectory needs snapshots=; expected a run folder, or a list in training order, initial weights first"
        )
    else:
        labels = tuple(str(s) if isinstance(s, (str, Path)) else index for index, s in enumerate(snapshots))
    optimum = weights_of(model)
    start: Tensor | None = None
    coordinates = []
    for index, snapshot in enumerate(snapshots):
        offset = _offset(snapshot, optimum, f"snapshot {index}")
        start = offset if start is None else start
        if not bool(start.any()):
            raise VitlabError(
                "the first snapshot equals the model; expected the initial weights first, and the trained model"
            )
        coordinates.append(polar(offset, start))
    radius, angle = np.array(coordinates).T
    return Measurement(
        "trajectory",
        type(model).__name__,
        {"radius": radius, "angle": angle},
        {"radius": ("snapshot",), "angle": ("snapshot",)},
        {"snapshot": labels},
        {"snapshots": len(coordinates)},
        provenance(images=0),
    )


def run_snapshots(folder: Path) -> list[Path]:
    """The snapshots of a run folder (or of its folder `snapshots`), sorted by epoch, starting with epoch 0."""
    try:
        exists = folder.is_dir()
    except OSError:  # the name is too long
        exists = False
    if not exists:
        raise VitlabError(f"invalid snapshots={str(folder)!r}; expected an existing run folder, or a list of snapshots")
    inner = folder / "snapshots" if (folder / "snapshots").is_dir() else folder
    paths = sorted(inner.glob("epoch-*.safetensors"), key=lambda path: (len(path.stem), path.stem))
    if not paths:
        raise VitlabError(f"{inner} has no snapshots; train with snapshots=(…), the epochs to save")
    if paths[0].stem != "epoch-0000":
        raise VitlabError(
            f"the snapshots in {inner} begin with {paths[0].stem}; trajectory needs the initial weights, "
            "epoch-0000, which runs with snapshots save; train again"
        )
    return paths


def _offset(snapshot: Snapshot, optimum: Weights, label: str) -> Tensor:
    """(P,) w_t − w_optimal, flattened, on the CPU."""
    if isinstance(snapshot, (str, Path)):
        label = f"snapshot {snapshot}"
    weights = _weights(snapshot, label)
    pieces = []
    for name, best in optimum.items():
        if name not in weights or weights[name].shape != best.shape:
            shape = tuple(weights[name].shape) if name in weights else "missing"
            raise VitlabError(f"{label} is of another model: {name!r} is {shape}; expected {tuple(best.shape)}")
        piece = weights[name].detach().to("cpu", best.dtype) - best.cpu()
        if not bool(piece.isfinite().all()):
            raise VitlabError(f"{label} has weights that are not finite: {name!r}")
        pieces.append(piece.flatten())
    return torch.cat(pieces)


def _weights(snapshot: Snapshot, label: str) -> Mapping[str, Tensor]:
    if isinstance(snapshot, (str, Path)):
        return read_tensors(snapshot)[0]
    if isinstance(snapshot, nn.Module):
        return weights_of(snapshot)
    if isinstance(snapshot, Mapping):
        return snapshot
    raise VitlabError(f"{label} is a {type(snapshot).__name__}; expected a path, a model or a mapping of tensors")
