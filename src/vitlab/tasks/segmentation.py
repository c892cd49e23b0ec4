"""Semantic segmentation: creates the model, batches, loss and mean IoU of a recipe for the training loop.

Shape legend: B batch, K classes, H W pixels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.assemblies.segmenter import Segmenter
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.pixel_counts import count_pixels, mean_iou
from vitlab.core.recipe import Objective, Recipe, Segmentation
from vitlab.core.store import Run
from vitlab.data.order import evenly
from vitlab.data.segmentation_feed import PairFeed, PairStream
from vitlab.data.segmentation_pairs import IGNORE, PairData
from vitlab.data.segmentation_sets import open_pairs
from vitlab.preprocessing import Preprocessing
from vitlab.progress import waiting
from vitlab.stress_tests.shared.segmentation_evaluation import confusion_matrix
from vitlab.tasks.attention_tape import AttentionTape, attention_tape, diversification
from vitlab.tasks.preprocessing import preprocessing_for
from vitlab.tasks.unused_settings import check_unused_settings
from vitlab.training.distributed import World, process_group, sum_over_ranks
from vitlab.training.loop import train

#: The settings of `augment` and `objective` that have an effect.
_USED = ("augment.flip", "objective.diversification", "objective.tau", "objective.diversification_form")

_CHECKED = 16  # test images whose label maps are read before training


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
    """Train a segmentation model with a recipe in the folder `out`; resumes if the folder has a checkpoint.

    Args:
        recipe: the training run; its data is an expression of `data.segmentation_sets`.
        out, root, device, show, log, compile_on_cpu: see `tasks.classification.run`.

    Returns:
        The last row of metrics: train_loss, loss, miou and pixel_accuracy in per cent, test_images (their number), and
        those of the averaged weights if there are any.
    """
    check_unused_settings(recipe, "segmentation", _USED)
    with process_group(device) as world, ExitStack() as stack:
        data = open_pairs(recipe.data, root=root, image_size=recipe.image_size)
        if recipe.evaluate_images:
            data = replace(data, test=data.test.subset(evenly(len(data.test), recipe.evaluate_images).tolist()))
        _check_test_labels(data)
        recipe = replace(recipe, model=with_settings(recipe, len(data.classes)))
        model = zoo.load(recipe.model, seed=recipe.seed).to(world.device)
        if not isinstance(model, Segmenter):
            raise _not_a_segmenter(recipe.model)
        how = preprocessing_for(recipe, model, data, crop=1.0, crop_mode="squash")
        anatomy = describe(model, recipe.image_size)  # fails early, with one line, for an unsupported image size
        tape = stack.enter_context(attention_tape(recipe.objective, model, anatomy))
        with waiting("reading images", show=show and world.is_main):
            feed = _feed(recipe, data, how, world)
        loss = make_loss(recipe.segmentation, recipe.objective, tape)
        test = MeanIoU(data, world, recipe, how, tape)
        about = {"preprocessing": how.record(), "classes": data.classes, "recipe": asdict(recipe)}
        options: dict[str, Any] = {"world": world, "show": show, "log": log, "compile_on_cpu": compile_on_cpu}
        return train(recipe, model, feed, loss, test, Run(Path(out)), about=about, **options)


def with_settings(recipe: Recipe, classes: int) -> str:
    """Returns the model expression with the classes of the data, the size, stride and base size of the recipe.

    Settings that the expression has are kept; a smaller number of classes is an error.
    """
    parsed = parse_model(recipe.model)
    if parsed.source == "file":
        return recipe.model
    if parsed.source != "vitlab" or parsed.name not in plugins.assemblies():
        raise _not_a_segmenter(recipe.model)
    own = parsed.settings.get("classes")
    if isinstance(own, int) and own < classes:
        raise VitlabError(f"{recipe.model!r} has classes={own}, but the data has {classes} classes; omit classes")
    settings: dict[str, Any] = {"classes": classes, "size": recipe.image_size}
    if recipe.segmentation.inference == "slide":
        settings["stride"] = recipe.segmentation.stride
        if recipe.segmentation.base_size is not None:
            settings["base_size"] = recipe.segmentation.base_size
    return str(replace(parsed, settings={**settings, **parsed.settings}))


def _check_test_labels(data: PairData) -> None:
    """Read some test images, so that wrong labels fail before training: the first evaluation may be hours away.

    One class is a warning: in masks of 0 and 255 the second class is ignored, and a constant prediction has mIoU 100 %.
    """
    indices = evenly(len(data.test), _CHECKED).tolist()
    found = {label for index in indices for label in data.test[index][1].unique().tolist()} - {IGNORE}
    if len(found) == 1:
        warnings.warn(
            f"all counted pixels of {len(indices)} test images have the class {data.classes[found.pop()]!r}; expected "
            "several classes. Pixels of 255, or of ignore=, are not counted: in masks of 0 and 255, replace 255 by 1",
            stacklevel=2,
        )


def _not_a_segmenter(expression: str) -> VitlabError:
    return VitlabError(f"{expression!r} is not a segmentation model; write for example vitlab/upernet(backbone='…')")


def _feed(recipe: Recipe, data: PairData, how: Preprocessing, world: World) -> PairFeed:
    if data.train is None or not len(data.train):
        raise VitlabError(f"{data.name} has no training images; use another data set")
    return PairFeed(
        data.train,
        recipe.image_size,
        recipe.segmentation,
        how.mean,
        how.std,
        flip=recipe.augment.flip,
        batch_size=recipe.batch_size,
        seed=recipe.seed,
        rank=world.rank,
        world=world.size,
        device=world.device,
    )


# -- loss -----------------------------------------------------------------------------------------------------------


def pixel_cross_entropy(logits: Tensor, labels: Tensor, ignore: int) -> Tensor:
    """The mean cross entropy over the pixels that are not ignored; 0 if all are.

    Args:
        logits: (B, K, H, W).
        labels: (B, H, W) integers.
        ignore: the label of pixels that are not counted.

    >>> labels = torch.tensor([[[0, 255]]], dtype=torch.uint8)
    >>> round(pixel_cross_entropy(torch.zeros(1, 2, 1, 2), labels, 255).item(), 4)
    0.6931
    """
    total = F.cross_entropy(logits.float(), labels.long(), ignore_index=ignore, reduction="sum")
    return total / (labels != ignore).sum().clamp(min=1)


def make_loss(
    settings: Segmentation, objective: Objective, tape: AttentionTape | None = None
) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    """Returns the loss function of a batch (images, labels): cross entropy, with the auxiliary head's and ADL.

    Args:
        settings: the weight of the auxiliary head.
        objective: ADL's weight and form.
        tape: ADL or attention recorded with gradients, see `attention_tape`; cleared before and after each batch.
    """

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, labels = batch
        if tape is not None:
            tape.clear()
        output = model(images)
        value = pixel_cross_entropy(logits_of(output), labels, IGNORE)
        if isinstance(output, Mapping) and "aux" in output:
            value = value + settings.auxiliary_weight * pixel_cross_entropy(output["aux"], labels, IGNORE)
        if tape is not None:
            value = value + objective.diversification * diversification(objective, tape)
            tape.clear()  # else queries and keys of all layers are outputs of the compiled step
        return value

    return loss


def logits_of(output: Any) -> Tensor:
    """The logits (B, K, H, W) of a segmentation model's output: a tensor, or torchvision's `{"out": …}`."""
    logits: Tensor = output["out"] if isinstance(output, Mapping) else output
    return logits


# -- metric ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MeanIoU:
    """Loss, mean IoU and pixel accuracy of a model on the test images, from one confusion matrix over all ranks."""

    data: PairData
    world: World
    recipe: Recipe
    preprocessing: Preprocessing
    tape: AttentionTape | None = None

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Returns the loss per pixel, and mean IoU and pixel accuracy in per cent (collective)."""
        training, device = model.training, self.world.device
        model.eval()
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.recipe.precision)
        classes = len(self.data.classes)
        confusion = torch.zeros(classes, classes, dtype=torch.int64, device=device)
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        for images, labels in self._stream:
            with torch.autocast(device.type, kind, enabled=kind is not None):
                logits = logits_of(model(images)).float()
            if self.tape is not None:
                self.tape.clear()  # the maps of the whole test set would not fit in memory
            confusion += confusion_matrix(logits[:, :classes].argmax(1), labels, classes, IGNORE)
            total = F.cross_entropy(logits, labels.long(), ignore_index=IGNORE, reduction="sum")
            sums += torch.stack([total.double(), torch.full_like(total, len(images)).double()])
        model.train(training)
        loss, images_seen = sum_over_ranks(sums, self.world).tolist()
        counts = sum_over_ranks(confusion, self.world).cpu().numpy()
        pixels = counts.sum()
        if not pixels:
            raise VitlabError(f"all pixels of the {round(images_seen)} test images are ignored; expected labels")
        return {
            "loss": loss / float(pixels),
            "miou": 100 * float(mean_iou(count_pixels(counts))),
            "pixel_accuracy": 100 * float(np.trace(counts) / pixels),
            "test_images": images_seen,
        }

    @property
    def _stream(self) -> PairStream:
        share = max(1, self.recipe.batch_size // self.world.size)
        how, world = self.preprocessing, self.world
        return PairStream(
            self.data.test, how.mean, how.std, share, rank=world.rank, world=world.size, device=world.device
        )
