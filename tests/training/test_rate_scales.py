"""Factors of the learning rate per parameter."""

from __future__ import annotations

import pytest
import timm
from timm.optim import param_groups_layer_decay
from torch import nn

from cases import CASES as VITS
from cases import Case
from cases.everything import CASES
from vitlab.adapters import describe
from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Optimizer
from vitlab.surgery import retrofit
from vitlab.training.rate_scales import rate_scales

#: Where libraries keep the classifier, and what is between it and the final norm: ViLT's pooler, CoaT's sum, and
#: NaFlexViT's attention pooling.
CLASSIFIER = ("head.", "head_dist.", "heads.", "classifier.", "fc.", "vilt.pooler.", "aggregate.", "attn_pool.")


@pytest.mark.parametrize("case", VITS, ids=lambda case: case.family)
def test_the_factors_of_a_vit_are_those_of_timm(case: Case) -> None:
    model = case.model()
    expected = {}
    for group in param_groups_layer_decay(model, layer_decay=0.7):
        expected |= {id(parameter): group["lr_scale"] for parameter in group["params"]}
    scales = rate_scales(model, Optimizer(layer_decay=0.7))
    assert {name: expected[id(parameter)] for name, parameter in model.named_parameters()} == pytest.approx(scales)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_every_model_has_a_factor_for_every_layer(case: Case) -> None:
    """Blocks by the formula; no parameter of the backbone at full rate; the classifier at that of the head."""
    model = case.model()
    anatomy = describe(model, case.size)
    scales = rate_scales(model, Optimizer(layer_decay=0.5, head_lr=4.0 if case.classifier else 1.0), case.size)
    names = [name for name, _ in model.named_parameters()]
    assert list(scales) == names
    depth, modules = len(anatomy.blocks), dict(model.named_modules())
    for block in anatomy.blocks:
        path = block.name if block.name in modules else block.mixer.path
        inside = [name for name in names if name.startswith(path + ".")]
        own = {scales[name] for name in inside}
        assert own <= {0.5 ** (depth - other.index) for other in anatomy.blocks}, block.name
        assert 0.5 ** (depth - block.index) in own or not inside or modules[path] in _shared(anatomy, modules)
    assert scales[names[0]] == 0.5 ** (depth + 1), "the stem is registered first"
    head = {name for name in names if scales[name] == 4.0}
    assert head == {name for name in names if case.classifier and name.startswith(CLASSIFIER)}


def _shared(anatomy: object, modules: dict[str, nn.Module]) -> list[nn.Module]:
    """Mixers that several blocks share."""
    paths = [block.mixer.path for block in anatomy.blocks]  # type: ignore[attr-defined]
    return [modules[path] for path in paths if paths.count(path) > 1]


@pytest.mark.parametrize("family", ["mobilevit", "naflexvit", "efficientvit"])
def test_the_head_is_the_last_layer_of_timm(family: str) -> None:
    """The last convolution belongs to the last stage; attention pooling after the final norm belongs to the head."""
    case = next(case for case in CASES if case.family == family)
    model = case.model()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = param_groups_layer_decay(model, layer_decay=0.7)
    expected = {names[id(each)] for group in groups if group["lr_scale"] == 1 for each in group["params"]}
    scales = rate_scales(model, Optimizer(head_lr=3.0), case.size)
    assert {name for name in scales if scales[name] == 3.0} == expected


def test_new_parameters_of_parts_learn_at_full_rate() -> None:
    model = retrofit(VITS[0].model(), "TokenAwarePooling()")
    retrofit(model, "ScaledContextBroadcast()")
    scales = rate_scales(model, Optimizer(layer_decay=0.5))
    assert {scales[name] for name in scales if "vitlab_" in name} == {1.0}
    assert scales["blocks.0.attn.qkv.weight"] == 0.5**3

    scales = rate_scales(retrofit(VITS[0].model(), "UniformHead(form='B')"), Optimizer(layer_decay=0.5, head_lr=2.0))
    assert scales["blocks.1.attn.qkv.weight"] == 0.5**2 and scales["blocks.1.attn.extra_value.weight"] == 1.0
    assert scales["head.weight"] == scales["head.bias"] == 2.0 and scales["norm.weight"] == 0.5


def test_the_head_of_an_assembly_is_everything_outside_its_backbone() -> None:
    model = nn.Module()
    model.decoder, model.backbone = nn.Linear(2, 2), timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=0)
    scales = rate_scales(model, Optimizer(layer_decay=0.5, head_lr=10.0))
    assert {scales["decoder.weight"], scales["decoder.bias"]} == {10.0}
    assert scales["backbone.pos_embed"] == 0.5**3 and scales["backbone.blocks.1.mlp.fc1.weight"] == 0.5
    only_head = rate_scales(model, Optimizer(head_lr=10.0))
    assert only_head["decoder.weight"] == 10.0 and only_head["backbone.blocks.0.mlp.fc1.weight"] == 1.0


def test_a_head_rate_without_a_head_is_an_error() -> None:
    model = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=0)
    with pytest.raises(VitlabError, match="VisionTransformer has no head"):
        rate_scales(model, Optimizer(head_lr=2.0))


def test_equal_rates_do_not_describe_the_model() -> None:
    assert rate_scales(nn.Linear(1, 1), Optimizer()) == {"weight": 1.0, "bias": 1.0}
