"""Object detection and instance segmentation: creates the model, batches, loss and average precision of a recipe.

Shape legend: B batch, K objects of an image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import Recipe
from vitlab.core.store import Run
from vitlab.data.detection import DetectionData
from vitlab.data.detection_batches import STRIDE, targets_of
from vitlab.data.detection_feed import DetectionFeed
from vitlab.data.detection_sets import open_detection
from vitlab.data.detection_stream import DetectionStream
from vitlab.data.order import evenly
from vitlab.eval_mode import eval_mode
from vitlab.instruments.shared.average_precision import Detections, Kind, detect, precision_curves, summary
from vitlab.preprocessing import Preprocessing
from vitlab.tasks.preprocessing import preprocessing_for
from vitlab.tasks.unused_settings import check_unused_settings
from vitlab.training.distributed import World, process_group, sum_over_ranks
from vitlab.training.loop import train

MODEL = "mask_rcnn"

_KINDS: tuple[Kind, Kind] = ("box", "mask")


def run(
    recipe: Recipe,
    out: str | Path,
    *,
    root: str | Path | None = None,
    device: str | None = None,
    show: bool = False,
    log: Callable[[dict[str, Any]], None] | None = None,
    compile_on_cpu: bool = False,
) -> dict[str, Any]:
    """Train a detector with a recipe in the folder `out`; resumes if the folder has a checkpoint.

    Args:
        recipe: the training run; its data is an expression of `data.detection_sets`.
        out, root, device, show, log, compile_on_cpu: see `tasks.classification.run`.

    Returns:
        The last row of metrics: train_loss; box_ap, box_ap50, mask_ap and mask_ap50 in per cent; test_images (their
        number); and those of the averaged weights if there are any.
    """
    check(recipe)
    with process_group(device) as world:
        data = open_detection(recipe.data, root=root, image_size=recipe.image_size)
        if recipe.evaluate_images:
            data = replace(data, test=data.test.subset(evenly(len(data.test), recipe.evaluate_images).tolist()))
        recipe = replace(recipe, model=with_settings(recipe, len(data.classes)))
        model = zoo.load(recipe.model, seed=recipe.seed).to(world.device)
        how = preprocessing_for(recipe, model, data)
        describe(model, recipe.image_size)  # fails early, with one line, for an unsupported image size
        feed = make_feed(recipe, data, how, world)
        test = AveragePrecision(data, world, recipe, how)
        about = {"preprocessing": how.record(), "classes": data.classes, "recipe": asdict(recipe)}
        options: dict[str, Any] = {"world": world, "show": show, "log": log, "compile_on_cpu": compile_on_cpu}
        return train(recipe, model, feed, loss_of, test, Run(Path(out)), about=about, **options)


def check(recipe: Recipe) -> None:
    """Raise for settings that detection does not have: they would have no effect."""
    check_unused_settings(recipe, "detection", ("augment.flip",), {"augment.crop": "none"})
    if recipe.compile:
        raise VitlabError("invalid compile=True: the shapes of detection batches change; set compile=False")
    if any(side % STRIDE for side in recipe.image_size):
        raise VitlabError(f"invalid image_size={recipe.image_size}; expected multiples of {STRIDE}")


def with_settings(recipe: Recipe, classes: int) -> str:
    """Returns the model expression with the classes of the data, and the size and limits of the recipe.

    Settings that the expression has are kept; another number of classes is an error.
    """
    parsed = parse_model(recipe.model)
    if parsed.source == "file":
        return recipe.model
    if parsed.source != "vitlab" or parsed.name != MODEL:
        raise VitlabError(
            f"{recipe.model!r} is not a detector; write for example vitlab/{MODEL}(backbone={recipe.model!r})"
        )
    own = parsed.settings.get("classes", classes)
    if own != classes:
        raise VitlabError(f"{recipe.model!r} has classes={own}, but the data has {classes} classes; omit classes")
    limits = {"score": recipe.detection.score, "predictions": recipe.detection.predictions}
    settings = {"classes": classes, "size": recipe.image_size, **limits}
    return str(replace(parsed, settings={**settings, **parsed.settings}))


def sides_of(recipe: Recipe) -> tuple[tuple[int, ...], int, int]:
    """Returns the shorter sides of training images, the shorter side of test images, and the largest longer side.

    >>> sides_of(Recipe("m", "scenes", image_size=(800, 1344)))
    ((800,), 800, 1333)
    """
    short, long = sorted(recipe.image_size)
    return recipe.detection.sides or (short,), short, min(long, recipe.detection.longest)


def make_feed(recipe: Recipe, data: DetectionData, how: Preprocessing, world: World) -> DetectionFeed:
    """Returns the source of training batches."""
    sides, _, longest = sides_of(recipe)
    return DetectionFeed(
        data.to_train_on(),
        sides,
        longest,
        how.mean,
        how.std,
        flip=recipe.augment.flip,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        rank=world.rank,
        world=world.size,
        device=world.device,
    )


def loss_of(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    """The sum of the losses of proposals (class, box) and of predictions (class, box, mask) on a `DetectionBatch`."""
    losses: dict[str, Tensor] = model(batch[0], targets_of(batch), batch[1])
    return torch.stack(list(losses.values())).sum()


@dataclass(frozen=True)
class AveragePrecision:
    """Box and mask AP of a model on the test images; predictions of all ranks are gathered on rank 0."""

    data: DetectionData
    world: World
    recipe: Recipe
    preprocessing: Preprocessing

    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Returns AP and AP at an overlap of 0.5 in per cent (collective)."""
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.recipe.precision)
        context = torch.autocast(self.world.device.type, kind, enabled=kind is not None)
        with eval_mode(model):
            found = gathered(detect(model, self._stream(), context), self.world)
        values: dict[str, float] = {}
        if self.world.is_main:
            for each in _KINDS:
                values |= summary(precision_curves(found, len(self.data.classes), each), each)
            values = {**{name: 100 * value for name, value in values.items()}, "test_images": float(len(found.images))}
        return broadcast(values, self.world)

    def _stream(self) -> DetectionStream:
        _, side, longest = sides_of(self.recipe)
        how, world = self.preprocessing, self.world
        share = max(1, self.recipe.batch_size // world.size)
        place: dict[str, Any] = {"rank": world.rank, "world": world.size, "device": world.device}
        return DetectionStream(self.data.test, side, longest, how.mean, how.std, share, **place)


def gathered(found: Detections, world: World) -> Detections:
    """Returns the detections of all ranks on rank 0, and those of this rank on the others (collective)."""
    if world.size == 1:
        return found
    parts: list[Any] | None = [None] * world.size if world.is_main else None
    dist.gather_object(found, parts)
    joined = Detections()
    for part in parts or [found]:
        joined.extend(part)
    return joined


_METRICS = (*(f"{kind}_{name}" for kind in _KINDS for name in ("ap", "ap50")), "test_images")


def broadcast(values: dict[str, float], world: World) -> dict[str, float]:
    """Returns the metrics of rank 0 on all ranks (collective)."""
    numbers = torch.tensor([values.get(name, 0.0) for name in _METRICS], dtype=torch.float64, device=world.device)
    return dict(zip(_METRICS, sum_over_ranks(numbers, world).tolist(), strict=True))
