"""Every model of timm, and every image model of Hugging Face, is described or refused with one line.

Models are built on the meta device, and on the CPU if they do not run there. `make test-full` scans all names and
prints its counts; the quick tests take a seeded sample.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import timm
import torch
from timm.layers import set_fused_attn
from torch import Tensor, nn

import vitlab
from vitlab.adapters import inputs_of
from vitlab.adapters.softmaxes import softmax_modules

#: Tasks of Hugging Face whose models take images and nothing else.
TASKS = (
    "IMAGE_CLASSIFICATION",
    "IMAGE",
    "BACKBONE",
    "MASKED_IMAGE_MODELING",
    "DEPTH_ESTIMATION",
    "SEMANTIC_SEGMENTATION",
    "OBJECT_DETECTION",
)
#: Values without which the default configuration of a class does not run on any image.
CONFIGURATIONS = {"Llama4VisionModel": {"intermediate_size": 3072}}  # 4 · 768, the channels of four joined patches
#: Sizes of images, where 224 gives fewer tokens than the model has queries.
SIZES = {"RfDetrForObjectDetection": 560}
SMALL = 6_000_000  # parameters of the models that are built for real
SHARE = 0.95  # of the models with attention that are described


@dataclass(frozen=True)
class Row:
    """The outcome for one model.

    `described`, `empty` if it was described without seams and maps, `refused`, `crashed`,
    `other inputs` if it takes more than images, or videos or text instead, and
    `not built` if its constructor needs a library that is not installed or a setting. `attention` is whether the model
    counts among those with attention: models that take images, also if they need more than images, but not text.
    """

    name: str
    outcome: str
    reason: str = ""
    attention: bool = False


def scan(name: str, build: Callable[[], nn.Module]) -> Row:
    """Build a model and describe it."""
    row = _scan(name, build, "meta")
    return _scan(name, build, "cpu") if "meta" in row.reason and row.outcome != "described" else row


def _scan(name: str, build: Callable[[], nn.Module], device: str) -> Row:
    try:
        with warnings.catch_warnings(), torch.device(device):
            warnings.simplefilter("ignore")
            model = build().eval()
    except Exception as error:
        return Row(name, "not built", f"{type(error).__name__}: {error}")
    try:
        found = vitlab.describe(model, SIZES.get(name))
        usable = bool(found.seams) or any(block.mixer.queries is not None for block in found.blocks)
        attention = _attends(model) or any("attention" in block.mixer.kind for block in found.blocks)
        return Row(name, "described" if usable else "empty", attention=attention)
    except vitlab.VitlabError as error:
        no_images = "not images" in str(error) or "needs input_ids" in str(error)
        others = no_images or "in addition to images" in str(error)
        return Row(name, "other inputs" if others else "refused", str(error), not no_images and _attends(model))
    except Exception as error:
        return Row(name, "crashed", f"{type(error).__name__}: {error}")


def _attends(model: nn.Module) -> bool:
    """Whether the forward computes attention; for a model that does not run, whether a module is named so."""
    try:
        return bool(softmax_modules(model, inputs_of(model)))
    except Exception:
        return any("attention" in type(module).__name__.lower() for module in model.modules())


def check(title: str, rows: list[Row], share: float = 0.0) -> None:
    """Print the counts; nothing crashes, reasons are one line, and nearly all models with attention are described."""
    outcomes = Counter(row.outcome for row in rows)
    attending = [row for row in rows if row.attention and row.outcome != "not built"]
    described = sum(row.outcome == "described" for row in attending)
    print(f"\n{title}: {len(rows)} models, " + ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items())))
    print(f"with attention: {described} of {len(attending)} described")
    for row in rows:
        if row.outcome in ("refused", "empty", "crashed"):
            print(f"  {row.name}: {row.outcome}: {row.reason}")
    assert not [row for row in rows if row.outcome in ("empty", "crashed")]
    assert all("\n" not in row.reason for row in rows if row.outcome == "refused")
    assert described >= share * len(attending)


def own_names() -> list[str]:
    """The models that timm defines, without those that other packages and tests register with it."""
    names = timm.list_models()
    return sorted(name for name in names if timm.model_entrypoint(name).__module__.startswith("timm."))


def timm_names(sample: int | None) -> list[str]:
    """All names of timm, or a sample of modules with one name each."""
    if sample is None:
        return own_names()
    modules = random.Random(0).sample(sorted(timm.list_modules()), sample)
    return [min(timm.list_models(module=module), key=lambda name: (len(name), name)) for module in modules]


def hugging_face_classes() -> dict[str, Any]:
    """Image models of Hugging Face by class name; classes whose libraries are not installed are omitted."""
    import transformers
    from transformers.models.auto import modeling_auto

    names: set[str] = set()
    for task in TASKS:
        for classes in getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").values():
            names |= {classes} if isinstance(classes, str) else set(classes)
    return {name: getattr(transformers, name) for name in sorted(names) if hasattr(transformers, name)}


def _default(kind: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        model: nn.Module = kind(kind.config_class(**CONFIGURATIONS.get(kind.__name__, {})))
        return model

    return build


def _named(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        return timm.create_model(name)

    return build


def test_a_sample_of_timm() -> None:
    check("timm, sample", [scan(name, _named(name)) for name in timm_names(8)])


@pytest.mark.full
def test_all_of_timm() -> None:
    check("timm", [scan(name, _named(name)) for name in timm_names(None)], SHARE)


def test_a_sample_of_hugging_face() -> None:
    classes = hugging_face_classes()
    chosen = random.Random(0).sample(sorted(classes), 4)
    check("Hugging Face, sample", [scan(name, _default(classes[name])) for name in chosen])


def test_models_of_hugging_face_that_had_no_seams() -> None:
    """MobileViTV2's transformers return patches, and the modules around them maps; Data2Vec is a ViT."""
    classes = hugging_face_classes()
    names = ("Data2VecVisionForSemanticSegmentation", "MobileViTV2ForImageClassification")
    check("Hugging Face, two", [scan(name, _default(classes[name])) for name in names], 1.0)


def test_models_with_the_main_input_of_language_models_count() -> None:
    """Llama 4's vision model takes pixel_values only; Mllama's needs more, and counts as a model with attention."""
    import transformers

    names = ("Llama4VisionModel", "MllamaVisionModel", "PerceiverForImageClassificationLearned")
    rows = [scan(name, _default(getattr(transformers, name))) for name in names]
    assert [(row.outcome, row.attention) for row in rows] == [
        *(("described", True), ("other inputs", True), ("described", True))
    ]


def test_the_inputs_of_a_model_are_those_of_its_forward() -> None:
    """`main_input_name` counts only where the forward has this parameter."""

    class Broken(nn.Module):
        main_input_name = "input_ids"

        def fail(self) -> None:
            raise RuntimeError("broken")

    class Images(Broken):
        def forward(self, pixel_values: Tensor, mask: Tensor | None = None) -> None:
            self.fail()

    class Grids(Broken):
        def forward(self, pixel_values: Tensor, grids: Tensor) -> None:
            self.fail()

    class Text(Broken):
        def forward(self, input_ids: Tensor) -> None:
            self.fail()

    reasons = {Images: r"does not run on 224x224 images \(broken\)", Grids: "needs grids in addition to images"}
    for kind, reason in {**reasons, Text: "takes input_ids, not images"}.items():
        with pytest.raises(vitlab.VitlabError, match=rf"^{kind.__name__} {reason}"):
            vitlab.describe(kind())


@pytest.mark.full
def test_all_of_hugging_face() -> None:
    check("Hugging Face", [scan(name, _default(kind)) for name, kind in hugging_face_classes().items()], SHARE)


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("VideoMAEModel", "VideoMAEConfig", "takes videos, not images"),
        ("ImageGPTModel", "ImageGPTConfig", "takes input_ids, not images"),
        ("Siglip2Model", "Siglip2Config", "needs input_ids in addition to images"),
        ("MllamaVisionModel", "MllamaVisionConfig", "needs aspect_ratio_ids, aspect_ratio_mask in addition to images"),
        ("Llama4VisionModel", "Llama4VisionConfig", "does not run on 448x448 images .in vision_adapter.mlp.fc1: "),
        ("ResNetModel", "ResNetConfig", "no softmax between tokens was recorded"),
    ],
)
def test_the_reason_of_an_error_is_true(name: str, config: str, reason: str) -> None:
    import transformers

    with torch.device("meta"):
        model = getattr(transformers, name)(getattr(transformers, config)())
    with pytest.raises(vitlab.VitlabError, match=reason) as caught:
        vitlab.describe(model)
    assert "input_size=" not in str(caught.value)


# -- built for real ----------------------------------------------------------------------------------------------------


class Mixing(nn.Module):
    """A part that changes every token."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x + 0.5 * x.roll(1, dims=1) + 0.1


def _input_size(name: str) -> tuple[int, ...]:
    config = timm.get_pretrained_cfg(name)
    assert config is not None
    return config.input_size or (3, 224, 224)


def small_models(count: int) -> list[str]:
    """A seeded sample of timm's small models for small images, one of each class."""
    names = own_names()
    random.Random(1).shuffle(names)
    chosen: dict[str, str] = {}
    for name in names:
        size = _input_size(name)
        if max(size) > 256 or name.startswith(("naflex", "gemma")):
            continue
        with torch.device("meta"):
            model = timm.create_model(name)
        if sum(parameter.numel() for parameter in model.parameters()) <= SMALL:
            chosen.setdefault(type(model).__name__, name)
        if len(chosen) == count:
            break
    return list(chosen.values())


def built(name: str, fused: bool) -> nn.Module:
    """The model with parameters from a fixed seed, and with or without fused attention."""
    set_fused_attn(fused)
    try:
        torch.manual_seed(0)
        model = timm.create_model(name).eval()
    finally:
        set_fused_attn(True)
    return with_noise(model)


def with_noise(model: nn.Module) -> nn.Module:
    """Add noise to all parameters: some are initialised with zeros, so that a branch or the head has no effect."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    return model


def explicit_maps(model: nn.Module, images: Tensor, paths: list[str]) -> dict[str, Tensor]:
    """The inputs of `attn_drop`, which are the maps of a model without fused attention."""
    found: dict[str, Tensor] = {}

    def keep(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            found[path] = arguments[0]

        return hook

    for path in paths:
        if (drop := getattr(model.get_submodule(path), "attn_drop", None)) is not None:
            drop.register_forward_pre_hook(keep(path))
    with torch.no_grad():
        model(images)
    return found


def check_real(name: str) -> tuple[int, int, int, int]:
    """Returns 1 if it is described, and the numbers of seams, of maps, and of maps equal to an explicit softmax."""
    model = built(name, fused=True)
    size = _input_size(name)
    images = torch.randn(2, *size, generator=torch.Generator().manual_seed(0))
    try:
        anatomy = vitlab.describe(model, size[-1])
    except vitlab.VitlabError:
        return 0, 0, 0, 0
    with torch.no_grad():
        plain = model(images)
        for seam in anatomy.seams:
            if seam == "attn":
                continue  # replaced, not hooked
            having = [block.name for block in anatomy.blocks if block.seam(seam)]
            vitlab.retrofit(model, Mixing(), at=seam, blocks=having, input_size=size[-1])
            assert not torch.equal(model(images), plain), f"{name}: parts at {seam} changed nothing"
            vitlab.restore(model)
            assert torch.equal(model(images), plain), f"{name}: restore after {seam} changed the outputs"
        with vitlab.record(model, "attention", input_size=size[-1]) as tape:
            assert torch.equal(model(images), plain), f"{name}: recording changed the outputs"
    maps = {block.mixer.path: tape[block.name] for block in anatomy.blocks if block.mixer.queries is not None}
    explicit = explicit_maps(built(name, fused=False), images, list(maps))
    compared = 0
    for path, recorded in maps.items():
        assert (recorded.sum(-1) - 1).abs().max() < 1e-4, f"{name}: rows of {path} do not sum to one"
        if path in explicit and explicit[path].shape == recorded.shape:
            torch.testing.assert_close(recorded, explicit[path], rtol=1e-3, atol=1e-5)
            compared += 1
    return 1, len(anatomy.seams), len(maps), compared


def check_sample(names: list[str]) -> tuple[int, int, int, int]:
    """The sums over models."""
    results = {name: check_real(name) for name in names}
    described, seams, maps, compared = (sum(numbers) for numbers in zip(*results.values(), strict=True))
    print(
        f"\nbuilt: {len(results)} models, {described} described, {seams} seams restored bit by bit, {maps} maps, "
        f"{compared} equal to a softmax"
    )
    return described, seams, maps, compared


def test_a_sample_built_for_real() -> None:
    """MobileViT has nine softmaxes between tokens, the two ViTs six and nine, ConvNeXt none."""
    described, seams, maps, compared = check_sample(["test_vit", "test_vit4", "mobilevit_xxs", "test_convnext"])
    assert described == 4 and seams >= 28
    assert maps == compared == 6 + 9 + 9


@pytest.mark.full
def test_a_larger_sample_built_for_real() -> None:
    """With timm 1.0.31: 39 models, 158 seams, 85 maps, of which two have no module that takes the explicit map."""
    names = small_models(40)
    described, seams, maps, compared = check_sample(names)
    assert described == len(names) >= 39 and seams >= 150
    assert maps >= 80 and compared >= maps - 2
