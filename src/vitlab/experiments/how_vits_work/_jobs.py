"""The jobs of HDVW's experiments at each scale.

`smoke` trains six tiny networks on 64 scenes; networks of one kind share one of them. `small` trains on CIFAR-100 for
30 epochs instead of 305. `full` is the training of the paper. Costs follow from the images per second of the networks;
equal trainings are counted in every job that needs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from vitlab.core.experiment import Job, Scale
from vitlab.experiments.how_vits_work._networks import Network
from vitlab.experiments.how_vits_work._shared import SEEDS

__all__ = ["jobs", "released", "tiny_changes"]

#: Epochs after which the Hessian of the early phase is computed, by scale; the paper does not state its epochs.
_EARLY_EPOCH: dict[Scale, int] = {"smoke": 1, "small": 5, "full": 10}
_EPOCHS: dict[Scale, int] = {"small": 30, "full": 305}

_TINY_DATA = "scenes(train=64, test=32, objects=1, cues='agree')"
_TINY_MODELS = {
    "cnn": "vitlab/alternet50_cifar(depths=(2, 2), plan=(0, 0), width=8, num_classes=25)",
    "alternet": "vitlab/alternet50_cifar(depths=(2, 2), plan=(0, 1), width=8, heads=(1, 2), num_classes=25)",
    "vit": "vitlab/vit_tiny_cifar(patch_size=8, embed_dim=24, depth=4, num_classes=25)",
    "pit": (
        "vitlab/pit_tiny_cifar(patch_size=8, stride=4, base_dims=(8, 8), depth=(2, 2), heads=(1, 2), num_classes=25)"
    ),
    "swin": "vitlab/swin_tiny_cifar(patch_size=4, embed_dim=8, depths=(2, 2, 2), num_heads=(1, 2, 4), num_classes=25)",
    "conv": "vitlab/conv_vit_tiny_k3(patch_size=8, embed_dim=24, depth=2, num_classes=25)",
}
_TINY_CHANGES = (
    f"data={_TINY_DATA}",
    "epochs=3",
    "batch_size=16",
    "snapshots=(1, 2, 3)",
    "optimizer.warmup_epochs=1",
    "evaluate_every=3",
)
_SMALL_CHANGES = ("epochs=30", "snapshots=(5, 10, 15, 20, 25, 30)", "precision=bfloat16", "compile=True")


@dataclass(frozen=True)
class _Measured:
    """What is measured: by scale the procedure, the number of images and the minutes."""

    smoke: tuple[str, int | None]
    small: tuple[str, int | None]
    full: tuple[str, int | None]
    minutes: float = 0.5
    needs: tuple[str, ...] = ()
    gigabytes: float = 0.0

    def at(self, scale: Scale) -> tuple[str, int | None]:
        """The procedure and its number of images; `released` measures as `full`."""
        chosen: tuple[str, int | None] = getattr(self, "full" if scale == "released" else scale)
        return chosen


_TINY_HESSIAN = "hessian_spectrum(count=2, batch_size=4, mini_batches=1, limit=20)"
_TRAJECTORY = "trajectory(snapshots='{run}')"
_MEASURED = {
    "fit": _Measured(("train_fit", 16), ("train_fit", 10_000), ("train_fit", 10_000)),
    "hessian": _Measured((_TINY_HESSIAN, 4), ("hessian_spectrum", 512), ("hessian_spectrum", 4992), 3.0),
    "landscape": _Measured(
        ("loss_landscape(points=3)", 8), ("loss_landscape(points=11)", 1024), ("loss_landscape", 50_000), 5.0
    ),
    "trajectory": _Measured((_TRAJECTORY, None), (_TRAJECTORY, None), (_TRAJECTORY, None), 0.1),
    "fourier": _Measured(("feature_fourier", 16), ("feature_fourier", 1000), ("feature_fourier", 10_000)),
    "variance": _Measured(("feature_variance", 16), ("feature_variance", 1000), ("feature_variance", 10_000)),
    "cka": _Measured(("representation_cka", 16), ("representation_cka", 1024), ("representation_cka", 10_000)),
    "lesion": _Measured(("lesion", 16), ("lesion", 2000), ("lesion", 10_000), 2.0),
    "noise": _Measured(
        ("frequency_noise(frequencies=(0.2, 0.9))", 8), ("frequency_noise", 2000), ("frequency_noise", 10_000), 2.0
    ),
    "calibration": _Measured(("calibration", 16), ("calibration", 10_000), ("calibration", 10_000)),
    "corruptions": _Measured(
        ("corruptions(names=('fog',), severities=(3,))", 8),
        ("corruptions", 1000),
        ("cifar_c", None),
        10.0,
        needs=("CIFAR-100-C",),
        gigabytes=2.9,
    ),
    "imagenet_c": _Measured(
        ("corruptions(names=('fog',), severities=(3,))", 8),
        ("corruptions", 1000),
        ("imagenet_c", None),
        60.0,
        needs=("imagenet-c",),
        gigabytes=50.0,
    ),
}


def tiny_changes(trained: Network) -> tuple[str, ...]:
    """The settings of `how_vits_work_cifar` that train the tiny network which replaces a network at `smoke`."""
    return (f"model={_TINY_MODELS[trained.tiny]}", *_TINY_CHANGES)


def jobs(scale: Scale, networks: Mapping[str, Network], *measured: str) -> list[Job]:
    """The jobs of trained networks: every network, measured in every way, for every seed of the scale.

    Args:
        scale: `smoke`, `small` or `full`; no jobs at `released`.
        networks: by arm.
        measured: keys of `_MEASURED`; `hessian, early` and `hessian, late` are separate arms.
    """
    if scale == "released":
        return []
    return [
        _job(scale, arm, each, what, seed)
        for arm, each in networks.items()
        for what in measured
        for seed in range(SEEDS[scale])
    ]


def _job(scale: Scale, arm: str, trained: Network, what: str, seed: int) -> Job:
    key, _, phase = what.partition(", ")
    how = _MEASURED[key]
    procedure, images = how.at(scale)
    snapshot = _EARLY_EPOCH[scale] if phase == "early" else None
    name = f"{arm}, {phase}" if phase else arm
    if scale == "smoke":
        tiny = tiny_changes(trained)
        return Job(name, procedure, recipe="how_vits_work_cifar", changes=tiny, snapshot=snapshot, images=images)
    files = how.needs if scale == "full" else ()
    return Job(
        name,
        procedure,
        recipe=trained.recipe,
        changes=(*(_SMALL_CHANGES if scale == "small" else ()), *trained.changes),
        snapshot=snapshot,
        images=images,
        seed=seed,
        needs=(*trained.needs, *files),
        gpu_minutes=round(_minutes(trained, scale) + how.minutes, 1),
        gigabytes=trained.gigabytes + (how.gigabytes if files else 0.0),
    )


def _minutes(trained: Network, scale: Scale) -> float:
    """The estimated training time on one GPU."""
    epochs = trained.epochs.get(scale, _EPOCHS.get(scale, 0))
    return round(trained.images * epochs / trained.rate / 60, 1)


def released(models: Mapping[str, str], *measured: str, seeds: int = 0) -> list[Job]:
    """The jobs of published weights: 10,000 images of ImageNet or CIFAR-100 in five disjoint parts, or a set of files.

    Args:
        models: model expressions by arm.
        measured: keys of `_MEASURED`.
        seeds: to compare with trained networks at `full`, measure the same weights once for each of their seeds, on all
            10,000 images; 0 for one measurement on parts.
    """
    return [
        _released(arm, model, what, seed, 1 if seeds else 5)
        for arm, model in models.items()
        for what in measured
        for seed in range(seeds or 1)
    ]


def _released(arm: str, model: str, what: str, seed: int, repeats: int) -> Job:
    how = _MEASURED[what]
    procedure, minutes = how.at("released")[0], how.minutes + 2.0
    weights = tuple(re.findall(r"\{root\}/([^']+)'", model))
    if how.needs:
        needs = (*how.needs, *weights)
        size = how.gigabytes
        return Job(arm, procedure, model=model, seed=seed, needs=needs, gpu_minutes=minutes, gigabytes=size)
    on_imagenet = not weights  # HDVW's own weights are of CIFAR-100
    return Job(
        arm,
        procedure,
        model=model,
        data="imagenet" if on_imagenet else "cifar100",
        images=10_000,
        repeats=repeats,
        seed=seed,
        needs=("imagenet",) if on_imagenet else ("cifar-100-binary", *weights),
        gpu_minutes=minutes,
        gigabytes=(150.0 if what == "fit" else 6.7) if on_imagenet else 0.2,  # with or without the training images
    )
