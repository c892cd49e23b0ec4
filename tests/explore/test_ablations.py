"""Ablations of the page against hooks by hand on timm's modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cases.everything import CASES as FAMILIES
from cases.exploring import PLAIN, model_input, one_model
from vitlab.adapters import describe
from vitlab.core.errors import VitlabError
from vitlab.explore import views
from vitlab.explore.ablations import ablated, check, places
from vitlab.explore.conditions import Ablation, Condition
from vitlab.explore.shown_model import ShownModel


@pytest.fixture(scope="module")
def shown() -> ShownModel:
    return one_model()


def without_head(layer: int, head: int) -> Callable[[nn.Module], Any]:
    """Zero the slice of a head, 8 of 24 channels, in the input of the projection."""

    def zero(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor]:
        x = arguments[0].clone()
        x[..., 8 * head : 8 * head + 8] = 0
        return (x,)

    return lambda model: model.blocks[layer].attn.proj.register_forward_pre_hook(zero)


def without_branch(layer: int, name: str) -> Callable[[nn.Module], Any]:
    return lambda model: getattr(model.blocks[layer], name).register_forward_hook(
        lambda module, arguments, output: output * 0
    )


def without_block(layer: int) -> Callable[[nn.Module], Any]:
    return lambda model: model.blocks[layer].register_forward_hook(lambda module, arguments, output: arguments[0])


CASES = {
    "head": ([Ablation(1, "head", 2)], [without_head(1, 2)]),
    "two heads of a layer": (
        [Ablation(1, "head", 0), Ablation(1, "head", 2)],
        [without_head(1, 0), without_head(1, 2)],
    ),
    "all heads of the last layer": ([Ablation(2, "head", h) for h in range(3)], [without_head(2, h) for h in range(3)]),
    "attention": ([Ablation(0, "attn")], [without_branch(0, "attn")]),
    "mlp": ([Ablation(2, "mlp")], [without_branch(2, "mlp")]),
    "block": ([Ablation(1, "block")], [without_block(1)]),
    "last block": ([Ablation(2, "block")], [without_block(2)]),
    "several": (
        [Ablation(0, "head", 1), Ablation(0, "mlp"), Ablation(1, "block"), Ablation(2, "attn")],
        [without_head(0, 1), without_branch(0, "mlp"), without_block(1), without_branch(2, "attn")],
    ),
}


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_predictions_equal_those_of_hooks_by_hand(shown: ShownModel, case: str) -> None:
    ablations, hooks = CASES[case]
    x = model_input(shown)
    whole = shown.model(x)[0].softmax(-1)
    handles = [hook(shown.model) for hook in hooks]
    expected = shown.model(x)[0].softmax(-1)
    for handle in handles:
        handle.remove()
    view = views.view(shown, Condition("0", ablations=tuple(sorted(ablations))))
    assert view["reference"] == "the model without ablations"
    for row in view["predictions"]:
        assert abs(row["probability"] - expected[row["index"]]) < 1e-5
        assert abs(row["before"] - whole[row["index"]]) < 1e-5
    assert (expected - whole).abs().max() > 1e-3  # otherwise nothing was tested
    lens = view["layers"][-1]["lens"][0]
    assert abs(lens["probability"] - expected.max()) < 1e-5
    assert torch.equal(shown.model(x)[0].softmax(-1), whole)  # no hook remains


@torch.no_grad()
def test_the_lens_of_an_ablated_block_is_that_of_the_layer_before(shown: ShownModel) -> None:
    layers = views.view(shown, Condition("0", ablations=(Ablation(1, "block"),)))["layers"]
    assert layers[1]["lens"] == layers[0]["lens"] != layers[2]["lens"]


def test_what_can_be_ablated(shown: ShownModel) -> None:
    everything = {"head": 3, "attn": 1, "mlp": 1, "block": 1}
    assert [layer["places"] for layer in views.view(shown, Condition("0"))["layers"]] == [everything] * 3


@pytest.mark.parametrize(
    "model",
    [
        "timm/resnet10t(num_classes=25)",
        "timm/swin_tiny_patch4_window7_224(img_size=32, patch_size=4, window_size=4, depths=(1, 1), embed_dim=16, "
        "num_heads=(2, 4), num_classes=25)",
        "timm/cait_xxs24_224(img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=25)",
        "vitlab/mixer_tiny_cifar(patch_size=8, num_blocks=2)",
        f"{PLAIN} | TokenAwarePooling()",
    ],
)
def test_all_listed_units_work_in_other_families(model: str) -> None:
    shown = one_model(model)
    assert any(shown.places)
    for layer, own in enumerate(shown.places):
        for at, count in own.items():
            predicted = views.predictions(shown, Condition("0", ablations=(Ablation(layer, at, count - 1),)))
            assert predicted["reference"] == "the model without ablations"


@torch.no_grad()
def test_heads_of_multihead_attention_compose() -> None:
    """Without all of its heads an `nn.MultiheadAttention` returns the bias of its projection."""
    case = next(case for case in FAMILIES if case.family == "torchvision_vit")
    model = case.model().eval()
    anatomy = describe(model)
    heads = places(model, anatomy)[0]["head"]
    attention = model.get_submodule(anatomy.blocks[0].mixer.path)
    outputs: list[Tensor] = []
    with ablated(model, anatomy, [Ablation(0, "head", head) for head in range(heads)]):
        handle = attention.register_forward_hook(lambda module, arguments, output: outputs.append(output[0]))
        model(torch.rand(1, 3, *case.size))
        handle.remove()
    assert heads > 1 and torch.equal(outputs[0], attention.out_proj.bias.expand_as(outputs[0]))


@pytest.mark.parametrize(
    ("ablation", "message"),
    [
        (Ablation(3, "mlp"), "invalid layer=3 of an ablation; expected 0 to 2"),
        (Ablation(0, "head", 3), "invalid head=3 of layer 1; expected 0 to 2"),
    ],
)
def test_mistakes(shown: ShownModel, ablation: Ablation, message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        views.view(shown, Condition("0", ablations=(ablation,)))
    with pytest.raises(VitlabError, match="layer 1 has no block that can be ablated; it has: nothing"):
        check([Ablation(0, "block")], [{}])
