"""Image classification: creates the model, batches, loss and accuracy of a recipe for the training loop.

Shape legend: B batch, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab import zoo
from vitlab.adapters import describe
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.core.recipe import Objective, Recipe
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.images import DataSet, ImageArray, in_memory
from vitlab.data.order import evenly
from vitlab.data.patch_augment import augment_patches
from vitlab.data.resident import Resident
from vitlab.data.seeding import seeded_generator
from vitlab.data.streaming import ImageStream
from vitlab.data.workers import Workers
from vitlab.losses.distillation import distillation
from vitlab.preprocessing import Preprocessing
from vitlab.progress import waiting
from vitlab.recording.tape import Tape
from vitlab.tasks.attention_tape import AttentionTape, attention_tape, diversification
from vitlab.tasks.extra_losses import extra_losses
from vitlab.tasks.preprocessing import preprocessing_for
from vitlab.training.distributed import World, process_group, sum_over_ranks
from vitlab.training.loop import train


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
    """Train a classifier with a recipe in the folder `out`; resumes if the folder has a checkpoint.

    Args:
        recipe: the training run.
        out: the run folder.
        root: folder of the data sets; by default the environment variable VITLAB_DATA.
        device: `cpu` or `cuda`; by default CUDA if available.
        show: whether to show a progress bar on stderr.
        log: called with each row of metrics.
        compile_on_cpu: whether a recipe with `compile` is also compiled on a CPU.

    Returns:
        The last row of metrics: train_loss, loss, top1, top5, test_images (their number), and those of the averaged
        weights if there are any.
    """
    with process_group(device) as world, ExitStack() as stack:
        data = open_data(recipe.data, root=root, image_size=recipe.image_size)
        if recipe.evaluate_images:
            data = replace(data, test=data.test.subset(evenly(len(data.test), recipe.evaluate_images)))
        recipe = replace(recipe, model=with_classes(recipe.model, len(data.classes)))
        model = zoo.load(recipe.model, seed=recipe.seed).to(world.device)
        how = preprocessing_for(recipe, model, data)
        data = prepared(data, how)
        two_heads: Any = getattr(model, "set_distilled_training", None)
        if recipe.objective.distillation and two_heads is not None:
            two_heads(True)  # otherwise timm averages the outputs of the two heads
        anatomy = describe(model, recipe.image_size)  # fails early, with one line, for an unsupported image size
        tape = stack.enter_context(attention_tape(recipe.objective, model, anatomy))
        with waiting("drawing images", show=show and world.is_main):
            data = replace(data, train=in_memory(data.to_train_on()), test=in_memory(data.test))
        feed = batches(recipe, data, world)
        loss = make_loss(recipe.objective, _teacher(recipe, world), tape)
        test = Accuracy(data, feed, world, recipe, tape, how)
        about = {"preprocessing": how.record(), "classes": data.classes, "recipe": asdict(recipe)}
        options: dict[str, Any] = {"world": world, "show": show, "log": log, "compile_on_cpu": compile_on_cpu}
        return train(recipe, model, feed, loss, test, Run(Path(out)), about=about, **options)


def with_classes(expression: str, classes: int) -> str:
    """Returns the model expression with the number of classes of the data, unless it sets a number itself.

    A model of a file keeps its head if it has as many classes, else its head is new.
    """
    parsed = parse_model(expression)
    key = "num_labels" if parsed.source == "hf" else "num_classes"
    own = parsed.settings.get(key)
    if isinstance(own, int) and own < classes:
        raise VitlabError(f"{expression!r} has {key}={own}, but the data has {classes} classes; omit {key}")
    if parsed.source == "file" and own is None:
        built = parse_model(zoo.builder_of(expression))
        key = "num_labels" if built.source == "hf" else "num_classes"
        own = classes if built.settings.get(key) == classes else None
    if own is not None:
        return expression
    return str(replace(parsed, settings={**parsed.settings, key: classes}))


# -- preprocessing --------------------------------------------------------------------------------------------------


def prepared(data: DataSet, how: Preprocessing) -> DataSet:
    """Returns the data set with the normalisation of a run."""
    mean, std = how.mean, how.std
    train = None if data.train is None else replace(data.train, mean=mean, std=std)
    return replace(data, train=train, test=replace(data.test, mean=mean, std=std), mean=mean, std=std)


# -- batches --------------------------------------------------------------------------------------------------------


def batches(recipe: Recipe, data: DataSet, world: World) -> Resident | Workers | Patched:
    """Returns the source of training batches: small images are stored on the device, others are loaded by workers."""
    images = in_memory(data.to_train_on())
    share = {"batch_size": recipe.batch_size, "seed": recipe.seed, "rank": world.rank, "world": world.size}
    feed: Resident | Workers
    if isinstance(images, ImageArray) and tuple(images.images.shape[-2:]) == recipe.image_size:
        on_cuda = world.device.type == "cuda"
        half = on_cuda and recipe.precision == "bfloat16"
        feed = Resident(
            images.images.to(world.device),
            images.labels.to(world.device),
            data.mean,
            data.std,
            recipe.augment,
            dtype=torch.bfloat16 if half else torch.float32,
            compiled=recipe.compile and on_cuda,
            **share,
        )
    else:
        feed = Workers(images, recipe.image_size, recipe.augment, device=world.device, **share)
    return Patched(feed, data, recipe.seed) if recipe.augment.patches else feed


@dataclass(frozen=True)
class Patched:
    """A feed that adds to each batch a copy of its images with augmented patches (RVT)."""

    feed: Resident | Workers
    data: DataSet
    seed: int

    def __len__(self) -> int:
        return len(self.feed)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[tuple[Tensor, ...]]:
        """Iterate over batches (images, labels, partners, weights, patched images)."""
        for number, batch in enumerate(self.feed.epoch(epoch, start_batch), start_batch):
            generator = seeded_generator(batch.images.device, "patches", self.seed, epoch, number)
            yield (*batch, augment_patches(batch.images, self.data.mean, self.data.std, generator))


# -- loss -----------------------------------------------------------------------------------------------------------


def mixed_cross_entropy(logits: Tensor, labels: Tensor, partners: Tensor, weights: Tensor, smoothing: float) -> Tensor:
    """λ CE(labels) + (1 − λ) CE(partners), the cross entropy of mixed labels.

    Args:
        logits: (B, C).
        labels, partners: (B,) class indices.
        weights: (B,) λ.
        smoothing: label smoothing.

    >>> logits = torch.tensor([[0.0, 0.0]])
    >>> round(mixed_cross_entropy(logits, torch.tensor([0]), torch.tensor([1]), torch.tensor([0.3]), 0.0).item(), 4)
    0.6931
    """
    own = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
    other = F.cross_entropy(logits, partners, label_smoothing=smoothing, reduction="none")
    return torch.lerp(other, own, weights.to(own.dtype)).mean()


def make_loss(
    settings: Objective, teacher: nn.Module | None = None, tape: AttentionTape | None = None
) -> Callable[[nn.Module, tuple[Tensor, ...]], Tensor]:
    """Returns the loss function of a batch (images, labels, partners, weights[, patched images]).

    Args:
        settings: smoothing, ADL, distillation.
        teacher: the teacher for distillation.
        tape: ADL or attention recorded with gradients, see `attention_tape`; cleared before and after each batch.
    """
    added = extra_losses(settings.extra)
    needs_maps = any(each.needs_attention for each in added)

    def loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        images, labels, partners, weights, *patched = batch
        if tape is not None:
            tape.clear()
        own, distilled = outputs(model(images))
        value = mixed_cross_entropy(own, labels, partners, weights, settings.smoothing)
        if teacher is not None:
            with torch.no_grad():
                target = outputs(teacher(images))[0]
            distillation_loss = distillation(
                distilled, target, kind=settings.distillation or "hard", temperature=settings.temperature
            )
            value = torch.lerp(value, distillation_loss, settings.distillation_weight)
        if tape is not None and settings.diversification:
            value = value + settings.diversification * diversification(settings, tape)
        maps = [call.map() for call in tape.self_attention()] if isinstance(tape, Tape) and needs_maps else []
        for each in added:
            value = value + each(own, labels, maps)
        if patched:  # RVT adds the gradients of the patched batch; ADL uses the clean batch only
            value = value + mixed_cross_entropy(
                outputs(model(patched[0]))[0], labels, partners, weights, settings.smoothing
            )
        if tape is not None:
            tape.clear()  # else queries and keys of all layers are outputs of the compiled step
        return value

    return loss


def outputs(output: Any) -> tuple[Tensor, Tensor]:
    """Returns the logits of a model and of its distillation head, from a tensor, a tuple or a Hugging Face output."""
    if isinstance(output, tuple):  # DeiT's distilled training
        return output[0], output[1]
    logits = getattr(output, "logits", output)
    return logits, logits


def _teacher(recipe: Recipe, world: World) -> nn.Module | None:
    if not recipe.objective.distillation:
        return None
    if not recipe.objective.teacher:
        raise VitlabError("distillation needs a teacher; set objective.teacher to a model expression")
    return zoo.load(recipe.objective.teacher).to(world.device).eval().requires_grad_(False)


# -- metric ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy:
    """Loss, top-1 and top-5 accuracy of a model on the test images, with exact counts over all ranks.

    A tape that records the attention of the model is cleared after every batch.
    """

    data: DataSet
    feed: Any
    world: World
    recipe: Recipe
    tape: AttentionTape | None = None
    preprocessing: Preprocessing | None = None

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> dict[str, float]:
        """Returns the loss, and accuracies in per cent (collective)."""
        training = model.training
        model.eval()
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.recipe.precision)
        sums = torch.zeros(4, dtype=torch.float64, device=self.world.device)
        for images, labels in self._batches():
            with torch.autocast(self.world.device.type, kind, enabled=kind is not None):
                logits = outputs(model(images))[0].float()
            if self.tape is not None:
                self.tape.clear()  # the maps of the whole test set would not fit in memory
            ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
            total = F.cross_entropy(logits, labels, reduction="sum")
            sums += torch.stack([total, ranked[:, 0].sum(), ranked.sum(), torch.full_like(total, len(labels))]).double()
        model.train(training)
        loss, top1, top5, count = sum_over_ranks(sums, self.world).tolist()
        if not count:
            raise VitlabError("the test set is empty; use a data set with test images")
        metrics = {"loss": loss / count, "top1": 100 * top1 / count, "top5": 100 * top5 / count}
        return {**metrics, "test_images": count}

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        test, feed = in_memory(self.data.test), self.feed.feed if isinstance(self.feed, Patched) else self.feed
        if isinstance(feed, Workers) or not isinstance(test, ImageArray):
            return iter(self._stream)
        labels = test.labels.to(self.world.device)
        resident = replace(feed, images=test.images.to(self.world.device), labels=labels, compiled=False)
        return resident.evaluation(max(1, 1024 // self.world.size))

    @cached_property
    def _stream(self) -> ImageStream:
        how = self.preprocessing or Preprocessing(self.recipe.image_size, self.data.mean, self.data.std)
        share = max(1, self.recipe.batch_size // self.world.size)
        return ImageStream(
            self.data.test,
            how.transform(),
            how.mean,
            how.std,
            share,
            range(len(self.data.classes)),
            self.world.rank,
            self.world.size,
            self.world.device,
        )
