"""Factors of the learning rate per parameter: layer-wise decay over the blocks, and the head.

The factors follow timm's `param_groups_layer_decay` (BEiT) on a ViT, but the layers are the blocks that `describe`
finds, so that they exist for every described model.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from vitlab.adapters import describe
from vitlab.core.anatomy import Anatomy, Block
from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Optimizer
from vitlab.fitted import parts

__all__ = ["backbone_of", "rate_scales"]


def rate_scales(model: nn.Module, settings: Optimizer, image_size: tuple[int, int] | None = None) -> dict[str, float]:
    """Returns the factor of the learning rate of each parameter, by name.

    With L blocks and layer decay γ, block i (from 0) has γ^(L − i) and the stem γ^(L + 1). Parameters between two
    blocks, such as a downsampling, belong to the block before them, and so does the final norm. The parameters of
    parts, which are new, have 1, and the head has `head_lr`. The head of a classifier is everything registered after
    the final norm, or after the last stage if there is none; that of a model with an attribute `backbone` is everything
    outside it.

    Args:
        model: any model; it is described only if a factor differs from 1.
        settings: `layer_decay` and `head_lr`.
        image_size: height and width of the model's input. Default: the size that it was built for.
    """
    names = [name for name, _ in model.named_parameters()]
    if settings.layer_decay == 1 and settings.head_lr == 1:
        return dict.fromkeys(names, 1.0)
    prefix, backbone = backbone_of(model)
    if prefix and settings.layer_decay == 1:
        layers: dict[str, int | None] = {name: 0 for name in names if name.startswith(prefix)}
        last = -1
    else:
        padded = getattr(model, "backbone_size", None)  # an assembly pads its images
        anatomy = describe(backbone, padded(image_size) if padded is not None and image_size else image_size)
        layers = {prefix + name: layer for name, layer in _layers(backbone, anatomy)}
        last = len(anatomy.blocks)
    head = [name for name in names if layers.get(name) is None]
    if not head and settings.head_lr != 1:
        raise VitlabError(f"invalid optimizer.head_lr={settings.head_lr}: {type(model).__name__} has no head; omit it")
    new = _part_parameters(model)
    scales = {}
    for name in names:
        layer = layers.get(name)
        if layer is None:
            scales[name] = float(settings.head_lr)
        else:
            scales[name] = 1.0 if name in new else float(settings.layer_decay ** (last + 1 - layer))
    return scales


def backbone_of(model: nn.Module) -> tuple[str, nn.Module]:
    """Returns the path of the backbone, as a prefix of parameter names, and the backbone; ("", model) for a classifier.

    >>> backbone_of(nn.ModuleDict({"backbone": nn.ReLU(), "head": nn.Linear(1, 1)}))
    ('backbone.', ReLU())
    >>> backbone_of(nn.ReLU())
    ('', ReLU())
    """
    prefix = ""
    while isinstance(inner := model._modules.get("backbone"), nn.Module):
        prefix, model = f"{prefix}backbone.", inner
    return prefix, model


def _layers(model: nn.Module, anatomy: Anatomy) -> Iterator[tuple[str, int | None]]:
    """Yields each parameter's name and layer, in order of registration; None for the head.

    Layer 0 is the stem, layer i + 1 block i. Other parameters have the layer of the one before them; after the last
    registered block, that of the last block.
    """
    paths = [(f"{path}.", block.index + 1) for block in anatomy.blocks for path in _paths(model, block)]
    names = [name for name, _ in model.named_parameters()]
    own = {name: next((layer for path, layer in paths if name.startswith(path)), None) for name in names}
    last = max((position for position, name in enumerate(names) if own[name] is not None), default=-1)
    head = _head(model, names[last + 1 :], [path for path, _ in paths])
    layer = 0
    for position, name in enumerate(names):
        if position > last:
            layer = len(anatomy.blocks)
        layer = layer if own[name] is None else own[name] or 0
        yield name, None if name in head else layer


def _head(model: nn.Module, names: list[str], blocks: list[str]) -> set[str]:
    """The parameters of the head, of those registered after the blocks: all after the last norm and the last stage.

    The unit of a parameter is the largest module that contains it and no block. A norm is a unit without matrices, so
    that a norm inside the classifier belongs to the classifier. A unit before others that ends with a norm, such as a
    last convolution, is not of the head.
    """
    stage = _last_stage(blocks) if blocks else None
    units: dict[str, list[str]] = {}
    for name in names:
        steps = name.split(".")
        prefixes = [".".join(steps[: i + 1]) + "." for i in range(len(steps))]
        unit = next((p for p in prefixes if not any(block.startswith(p) for block in blocks)), name)
        units.setdefault(unit, []).append(name)
    head: set[str] = set()
    for unit, members in reversed(units.items()):
        last = members[-1].rpartition(".")[0]
        end = [name for name in members if name.rpartition(".")[0] == last]
        in_stage = stage is not None and unit.startswith(stage)
        if in_stage or _is_norm(model, members) or (head and _is_norm(model, end)):
            break
        head |= set(members)
    return head


def _is_norm(model: nn.Module, names: list[str]) -> bool:
    return all(model.get_parameter(name).ndim < 2 for name in names)


def _last_stage(blocks: list[str]) -> str:
    """The part, of the smallest module that contains all blocks, with the last block; paths end with a dot.

    >>> _last_stage(["stages.0.layers.0.", "stages.1.layers.0."])
    'stages.1.'
    """
    steps = [path.split(".")[:-1] for path in blocks]
    common = 0
    while all(len(path) > common + 1 and path[: common + 1] == steps[0][: common + 1] for path in steps):
        common += 1
    return ".".join(steps[-1][: common + 1]) + "."


def _paths(model: nn.Module, block: Block) -> list[str]:
    """The modules of a block: the one with its name, else those of its mixer and seams."""
    if block.name in dict(model.named_modules()):
        return [block.name]
    return [block.mixer.path, *(seam.path for seam in block.seams)]


def _part_parameters(model: nn.Module) -> set[str]:
    """The names of parameters that parts added; a part that replaces an attention also has those of the attention."""
    new = set()
    for part in parts(model):
        module = model.get_submodule(part.path)
        original = getattr(module, "vitlab_original", (None,))[0]
        old = dict(original.named_parameters()) if original is not None else {}
        new |= {f"{part.path}.{name}" for name, _ in module.named_parameters() if name not in old}
    return new
