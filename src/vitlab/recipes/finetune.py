"""Fine-tuning of trained weights on any data set, with or without a part of the papers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from vitlab.core.bounds import Positive, PositiveShare, Range, Rate, Seed, Weight
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import ModelExpression, parse_model
from vitlab.core.recipe import Augment, BatchSize, Objective, Optimizer, Recipe, stored_recipe
from vitlab.core.store import read_about
from vitlab.recipes._parts import Epochs, PartName, identity_parts, parts

__all__ = ["finetune", "quick_finetune"]

_RESOLUTION = re.compile(r"_(\d{3})(?:[._]|$)")  # timm's names end with the input size: vit_base_patch16_384


def finetune(
    model: str = "timm/deit_tiny_patch16_224(pretrained=True)",
    data: str = "cifar100",
    part: str = "",
    blocks: str = "",
    identity: bool = True,
    diversification: Weight = 0.0,
    epochs: Epochs = 20,
    size: Annotated[int, Range(0, 8192)] = 0,
    batch_size: BatchSize = 256,
    lr: Positive = 5e-4,
    layer_decay: PositiveShare = 0.75,
    drop_path: Rate = 0.0,
    strong: bool = True,
    seed: Seed = 0,
) -> Recipe:
    """Fine-tune trained weights on any data set: new head, layer-wise learning rates, optional part, any resolution.

    The head is new if the data has another number of classes. Parts begin as the identity, so that they do not destroy
    the trained weights. This shows the effect of a part that is added at fine-tuning; the papers pretrain with it.

    Source: the fine-tuning settings of MAE (He et al. 2022, Table 9) and BEiT: AdamW, weight decay 0.05, layer-wise
    decay 0.75, cosine, RandAugment (9, 0.5), erasing 0.25, Mixup 0.8, CutMix 1.0, smoothing 0.1. Epochs (theirs: 100),
    batch (theirs: 1024), a fifth of the epochs as warm-up, at most 5, no drop path, and the learning rate are our
    choice: 5e-4 · batch / 512, DeiT's rule; MAE's is four times higher, for weights that were not trained with labels.
    Hardware: one GPU; small data sets also on a CPU.
    Runtime: not measured.
    Expected: None; it depends on model and data.
    Command: vitlab train "finetune(model='timm/deit_tiny_patch16_224(pretrained=True)', data='./photos', part='tap')"

    Args:
        model: an expression with trained weights: `pretrained=True`, `weights='FILE'`, or `file/RUN`, a run of vitlab.
        data: a data expression, or a folder of images.
        part: short name of a part, as in `deit_imagenet`, or a part with settings, `TokenAwarePooling(branches=3)`.
        blocks: the blocks of the part; by default those of the paper.
        identity: whether the part begins as the identity.
        diversification: weight λ of ADL; 0 for none.
        epochs: number of epochs.
        size: height and width of the images; 0 for those of the model. Position embeddings are interpolated. For
            models of timm, vitlab and file only: Hugging Face's and torchvision's are fine-tuned at their own size.
        batch_size: images per step.
        lr: learning rate at a batch of 512.
        layer_decay: factor of the learning rate from each block to the one before it.
        drop_path: rate of stochastic depth, for models of timm, vitlab and file.
        strong: the augmentation above; else random resized crops and flips only.
        seed: of head, order and augmentation.

    >>> finetune(part="tap", size=256).model.partition(" | ")[2]
    "TokenAwarePooling(identity_init=True, blocks='all')"
    >>> finetune(batch_size=512).optimizer.lr
    0.0005
    """
    parsed = parse_model(model)
    _need_weights(parsed)
    own = _own_size(parsed, size)
    side = (size, size) if size else own
    settings: dict[str, Any] = dict(parsed.settings)
    if side != own:
        settings["img_size"] = size
    if drop_path:
        settings["drop_path_rate"] = drop_path
    if settings != parsed.settings and parsed.source in ("hf", "torchvision"):
        given = " and ".join(name for name, value in (("size", side != own), ("drop_path", drop_path)) if value)
        raise VitlabError(
            f"{given} was given for {model!r}; expected a model of timm, vitlab or file, because weights of hf and "
            f"torchvision are loaded with their own position embeddings and layers; omit {given}"
        )
    calls = identity_parts(part, blocks) if identity else parts(part, blocks=blocks)
    strongly = Augment("resized", randaugment="rand-m9-mstd0.5-inc1", erasing=0.25, mixup=0.8, cutmix=1.0)
    return Recipe(
        model=str(replace(parsed, settings=settings, parts=(*parsed.parts, *calls))),
        data=data,
        image_size=side,
        epochs=epochs,
        batch_size=batch_size,
        augment=strongly if strong else Augment("resized"),
        optimizer=Optimizer(
            lr=lr * batch_size / 512,
            warmup_epochs=min(5.0, epochs / 5),
            min_lr=1e-6,
            layer_decay=layer_decay,
        ),
        objective=Objective(diversification=float(diversification)),
        precision="bfloat16",
        seed=seed,
    )


def quick_finetune(
    model: str = "file/runs/quick",
    part: PartName = "",
    diversification: Weight = 0.0,
    epochs: Epochs = 6,
    seed: Seed = 0,
) -> Recipe:
    """Fine-tune the model of a `quick` run on other scenes, with a new head for ten classes.

    Source: vitlab's own. `quick` has scenes whose shape and texture agree; here they are independent. It checks that a
    new head, parts with identity initialisation and layer-wise rates work together.
    Hardware: a laptop's CPU.
    Runtime: under a minute on two cores.
    Expected: top-1 of 43.2 with seed 0 on a CPU; 11.6 for the same steps from random weights; chance is 10.
    Command: vitlab train "quick_finetune(part='tap')"; before, vitlab train quick --out runs/quick

    Args:
        model: a run of `quick`, or any model for 32×32 pixels.
        part, diversification, epochs, seed: as in `finetune`.
    """
    data = "scenes(train=2048, test=1024, objects=1, classes=10)"
    settings = {"size": 32, "batch_size": 16, "lr": 3.2e-2, "strong": False, "seed": seed}
    recipe = finetune(model, data, part, diversification=diversification, epochs=epochs, **settings)  # type: ignore[arg-type]
    return replace(recipe, augment=Augment(crop="none"), precision="float32")


def _need_weights(parsed: ModelExpression) -> None:
    """Raise an error for a model with random weights."""
    named = parsed.source == "timm" and "." in parsed.name and parsed.settings.get("pretrained", True)
    given = (
        parsed.settings.get("pretrained") or parsed.settings.get("weights") or parsed.settings.get("checkpoint_path")
    )
    if parsed.source != "file" and not named and not given:
        raise VitlabError(
            f"{str(parsed)!r} has random weights; to fine-tune, add pretrained=True or weights='FILE', or use file/RUN"
        )


def _own_size(parsed: ModelExpression, given: int) -> tuple[int, int]:
    """Height and width of the model's input: from its settings, its run, its name, or 224.

    A run that does not exist yet is assumed to have the given size, if there is one.
    """
    own = parsed.settings.get("img_size", parsed.settings.get("image_size"))
    if isinstance(own, int):
        return own, own
    if own:
        return int(own[0]), int(own[1])
    if parsed.source == "file":
        run = Path(parsed.name)
        if given and not run.exists():
            return given, given
        about = read_about(run / "model.safetensors" if run.is_dir() else run)
        return stored_recipe(about["recipe"]).image_size if "recipe" in about else (224, 224)
    named = _RESOLUTION.search(parsed.name)
    return (int(named[1]), int(named[1])) if named else (224, 224)
