"""Interventions against hooks by hand, and their contract on every family."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import VIT, Case, redraw, run, timm_model
from cases.everything import CASES
from vitlab.adapters import describe
from vitlab.core.errors import VitlabError
from vitlab.interventions import activations

pytestmark = pytest.mark.filterwarnings("ignore")

#: The convolution after a stage also takes the stage's input, so the last block does not determine the logits.
SKIPPED_STAGES = {"hf_mobilevit", "mobilevit"}


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def other() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(2))


def plain_model() -> nn.Module:
    return redraw(timm_model("vit_tiny_patch16_224", **VIT)()).eval()


@pytest.mark.parametrize("fused", [True, False])
def test_ablating_a_head_equals_zeroing_its_slice_of_the_projection_input(images: Tensor, fused: bool) -> None:
    model = plain_model()
    model.blocks[1].attn.fused_attn = fused

    def zero_slice(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = arguments[0].clone()
        x[..., 8:16] = 0  # head 1 of three with 8 channels each
        return (x,)

    with torch.no_grad(), vitlab.intervene(model, "ablate", block="blocks.1", head=1):
        ours = model(images)
    handle = model.blocks[1].attn.proj.register_forward_pre_hook(zero_slice)
    with torch.no_grad():
        expected = model(images)
    handle.remove()
    with torch.no_grad():
        assert torch.equal(ours, expected) and not torch.equal(ours, model(images))


def test_heads_of_multihead_attention(images: Tensor) -> None:
    """torchvision's ViT: a head without contribution is one whose values are 0."""
    case = next(case for case in CASES if case.family == "torchvision_vit")
    model, inputs = case.model(), case.inputs()
    name = describe(model, case.size).blocks[0].name
    with torch.no_grad(), vitlab.intervene(model, "ablate", block=name, head=0, input_size=case.size):
        ours = run(model, inputs)
    attention = next(module for module in model.modules() if isinstance(module, nn.MultiheadAttention))
    width = attention.embed_dim // attention.num_heads
    rows = slice(2 * attention.embed_dim, 2 * attention.embed_dim + width)
    with torch.no_grad():
        attention.in_proj_weight[rows] = 0
        attention.in_proj_bias[rows] = 0
        assert torch.allclose(ours, run(model, inputs), atol=1e-6)


def test_ablated_branches_and_blocks(images: Tensor) -> None:
    model = plain_model()
    blocks = model.blocks
    with torch.no_grad():
        tokens = model._pos_embed(model.patch_embed(images))
        for index, block in enumerate(blocks):
            tokens = tokens + block.attn(block.norm1(tokens))
            if index != 1:
                tokens = tokens + block.mlp(block.norm2(tokens))
        without_mlp = model.forward_head(model.norm(tokens))
        tokens = model._pos_embed(model.patch_embed(images))
        without_block = model.forward_head(model.norm(blocks[2](blocks[1](tokens))))
        with vitlab.intervene(model, "ablate", block="blocks.1", at="mlp"):
            assert torch.allclose(model(images), without_mlp, atol=1e-6)
        with vitlab.intervene(model, "ablate", block="blocks.0", at="block"):
            assert torch.allclose(model(images), without_block, atol=1e-6)


def test_only_the_named_tokens_are_changed(images: Tensor) -> None:
    model = plain_model()
    with torch.no_grad(), vitlab.intervene(model, "replace", block="blocks.0", tokens=[0, 3], value=2.5):
        after = activations(model, images, block="blocks.0").at("blocks.0", "block.out")
    with torch.no_grad():
        before = activations(model, images, block="blocks.0").at("blocks.0", "block.out")
    assert (after[:, [0, 3]] == 2.5).all()
    rest = [1, 2, *range(4, after.shape[1])]
    assert torch.equal(after[:, rest], before[:, rest])


def test_a_function_of_the_activations(images: Tensor) -> None:
    model = plain_model()
    with torch.no_grad():
        with vitlab.intervene(model, "replace", block="blocks.2", at="attn", value=lambda x: 3 * x):
            ours = model(images)
        handle = model.blocks[2].attn.register_forward_hook(lambda module, inputs, output: 3 * output)
        assert torch.equal(ours, model(images))
        handle.remove()


def test_patching_one_branch_moves_only_that_branch(images: Tensor, other: Tensor) -> None:
    model = plain_model()
    stored: list[Tensor] = []
    with torch.no_grad():
        handle = model.blocks[1].attn.register_forward_hook(lambda module, inputs, output: stored.append(output))
        model(other)
        handle.remove()
        handle = model.blocks[1].attn.register_forward_hook(lambda module, inputs, output: stored[0])
        expected = model(images)
        handle.remove()
        with vitlab.intervene(model, "patch", block="blocks.1", at="attn", source=other):
            assert torch.equal(model(images), expected)


def test_interventions_compose(images: Tensor) -> None:
    model = plain_model()
    with torch.no_grad():
        with vitlab.intervene(model, "ablate", block=["blocks.0", "blocks.1"], head=[0, 2]):
            together = model(images)
        with (
            vitlab.intervene(model, "ablate", block="blocks.0", head=[0, 2]),
            vitlab.intervene(model, "ablate", block="blocks.1", head=0),
            vitlab.intervene(model, "ablate", block="blocks.1", head=2),
        ):
            assert torch.equal(together, model(images))


def test_gradients_flow_through_what_is_not_changed(images: Tensor) -> None:
    model = plain_model()
    with vitlab.intervene(model, "ablate", block="blocks.2", at="attn"):
        model(images).sum().backward()
    assert model.blocks[2].attn.qkv.weight.grad is None or not model.blocks[2].attn.qkv.weight.grad.any()
    assert model.blocks[1].attn.qkv.weight.grad.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action": "remove"}, "ablate"),
        ({"action": "ablate", "block": "blocks.7"}, "blocks.2"),
        ({"action": "ablate", "at": "mlp.end"}, "it has: .*mlp.out"),
        ({"action": "ablate", "head": 3}, "expected 0 to 2"),
        ({"action": "ablate", "value": 1.0}, "needed for 'replace'"),
        ({"action": "patch"}, "needed for 'patch'"),
        ({"action": "replace", "value": 1.0, "tokens": [17]}, "from 0 to 16"),
        ({"action": "replace", "value": torch.zeros(3, 5)}, r"expected \(2, 17, 24\)"),
        ({"action": "replace", "value": lambda x: x[:, 1:]}, r"the function value= .*has shape \(2, 16, 24\)"),
        ({"action": "replace", "value": lambda x: 3}, "the function value= returned int for .*; expected a tensor"),
        ({"action": "replace", "value": lambda x: x[..., :1, :, :4], "head": 0}, r"expected \(2, 3, 17, 8\)"),
        ({"action": "replace", "value": "zero"}, "invalid value='zero'; expected a number, a tensor or a function"),
        ({"action": "replace", "value": {}}, "invalid value="),
        ({"action": "ablate", "head": 0, "at": "mlp"}, "invalid at='mlp' with head=0; .* omit"),
        ({"action": "ablate", "head": "1"}, "invalid head='1'; expected an index"),
        ({"action": "ablate", "head": True}, "invalid head=True; expected an index"),
        ({"action": "ablate", "head": 1.0}, "invalid head=1.0; expected an index"),
        ({"action": "ablate", "head": torch.zeros(2, 2, dtype=torch.int64)}, r"a Tensor of shape \(2, 2\)"),
        ({"action": "ablate", "at": ["attn"]}, r"invalid at=\['attn'\]"),
        ({"action": "ablate", "block": 3}, "invalid block=3; expected .* an index from 0 to 2"),
        ({"action": "ablate", "block": True}, "invalid block=True"),
        ({"action": "ablate", "block": 0.5}, "invalid block=0.5"),
        ({"action": "ablate", "tokens": "3"}, "invalid tokens='3'"),
        ({"action": "ablate", "tokens": [0, 1.5]}, r"invalid tokens=\[0, 1.5\]"),
        ({"action": "ablate", "tokens": [True, 3]}, r"invalid tokens=\[True, 3\]"),
        ({"action": "ablate", "tokens": True}, "invalid tokens=True"),
        ({"action": "ablate", "tokens": [True] * 16}, "a mask of 16 tokens; expected 17"),
        ({"action": "patch", "source": [1.0]}, "invalid source= of type list; expected images"),
        ({"action": "patch", "source": "x"}, "invalid source= of type str"),
    ],
)
def test_mistakes_are_one_line(images: Tensor, arguments: dict[str, object], message: str) -> None:
    model = plain_model()
    before = model(images)
    with pytest.raises(VitlabError, match=message) as caught, vitlab.intervene(model, **arguments):  # type: ignore[arg-type]
        model(images)
    assert "\n" not in str(caught.value)
    assert torch.equal(model(images), before)


@pytest.mark.parametrize("as_type", [list, np.array, torch.tensor])
def test_a_boolean_mask_selects_tokens(images: Tensor, as_type: Callable[[list[bool]], object]) -> None:
    model, mask = plain_model(), as_type([False] * 3 + [True] + [False] * 12 + [True])
    with torch.no_grad(), vitlab.intervene(model, "replace", block="blocks.0", tokens=mask, value=2.5):  # type: ignore[arg-type]
        after = activations(model, images, block="blocks.0").at("blocks.0", "block.out")
    with torch.no_grad():
        before = activations(model, images, block="blocks.0").at("blocks.0", "block.out")
    assert ((after != before).any(2).sum(1) == 2).all() and (after[:, [3, 16]] == 2.5).all()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"block": 1}, {"block": "blocks.1"}),
        ({"block": -1}, {"block": "blocks.2"}),
        ({"block": [0, "blocks.2"]}, {"block": ["blocks.0", "blocks.2"]}),
        ({"tokens": 3}, {"tokens": [3]}),
        ({"tokens": range(2, 5)}, {"tokens": [2, 3, 4]}),
        ({"tokens": torch.tensor([2, 4])}, {"tokens": [2, 4]}),
        ({"head": torch.tensor(2)}, {"head": 2}),
        ({"head": np.int64(2), "at": "attn"}, {"head": [2]}),
        ({"value": np.float32(4.0)}, {"value": 4.0}),
        ({"value": lambda x: x.mean(1, keepdim=True)}, {"value": lambda x: x.mean(1, keepdim=True).expand_as(x)}),
    ],
)
def test_other_forms_of_arguments_mean_the_same(
    images: Tensor, given: dict[str, object], named: dict[str, object]
) -> None:
    model, ours = plain_model(), {"block": "blocks.1", "value": 4.0}
    with torch.no_grad():
        with vitlab.intervene(model, "replace", **{**ours, **given}):  # type: ignore[arg-type]
            found = model(images)
        with vitlab.intervene(model, "replace", **{**ours, **named}):  # type: ignore[arg-type]
            assert torch.equal(found, model(images))
        assert not torch.equal(found, model(images))


@pytest.mark.parametrize(
    "arguments", [{"action": "ablate", "at": "mlp"}, {"action": "patch"}], ids=lambda each: each["action"]
)
def test_a_model_in_training_mode_keeps_its_statistics_and_the_random_state(arguments: dict[str, str]) -> None:
    """Forwards in training mode would change the batch statistics, or draw random numbers for dropout."""
    case = next(case for case in CASES if case.family == "levit")
    model = case.model().train()
    stored, random = {key: value.clone() for key, value in model.state_dict().items()}, torch.get_rng_state()
    source = {"source": case.inputs()[""]} if arguments["action"] == "patch" else {}
    with vitlab.intervene(model, block=0, input_size=case.size, **arguments, **source):  # type: ignore[arg-type]
        assert all(module.training for module in model.modules())
    assert all(torch.equal(value, stored[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_patches_of_images_have_no_image_size() -> None:
    case = next(case for case in CASES if case.family == "hf_siglip2")
    with pytest.raises(VitlabError, match=r"shape \(2, 24, 192\); expected \(B, C, h, w\); give anatomy="):
        activations(case.model(), case.inputs())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_contract(case: Case) -> None:
    """Patching the last residual stream gives the clean logits exactly; ablations change them; exit restores them."""
    model, anatomy = case.model(), describe(case.model(), case.size)
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    mine, others = case.inputs(1), case.inputs(2)
    with torch.no_grad():
        torch.manual_seed(0)
        before = run(model, mine)
        for at, kind in (("attn", "attn.out"), ("mlp", "mlp.out")):
            blocks = [block for block in anatomy.blocks if block.seam(kind) and block.mixer.kind != "class attention"]
            if not blocks:
                continue
            try:
                with vitlab.intervene(model, "ablate", block=blocks[0].name, at=at, anatomy=anatomy):
                    assert not torch.equal(run(model, mine), before), f"ablating {at} changed nothing"
            except VitlabError as error:
                assert "no skip path" in str(error)
        everywhere = [block.name for block in anatomy.blocks if block.seam("block.out")]
        if everywhere:
            torch.manual_seed(0)
            stored = activations(model, others[""] if case.takes_images else others, block=everywhere, anatomy=anatomy)
            torch.manual_seed(0)  # ViLT shuffles its patches
            clean = run(model, others)
            with vitlab.intervene(model, "patch", block=everywhere, source=stored, anatomy=anatomy):
                torch.manual_seed(0)
                patched = run(model, mine)
                torch.manual_seed(0)
                inside = activations(model, mine[""] if case.takes_images else mine, block=everywhere, anatomy=anatomy)
            for name in everywhere:
                assert torch.equal(inside.at(name, "block.out"), stored.at(name, "block.out"))
            if everywhere[-1] == anatomy.blocks[-1].name and case.family not in SKIPPED_STAGES:
                assert torch.equal(patched, clean)
            assert not torch.equal(patched, before)
        torch.manual_seed(0)
        assert torch.equal(run(model, mine), before)
    assert hooks == sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
@torch.no_grad()
def test_each_head_of_each_family_is_a_slice_of_the_projection_input(case: Case) -> None:
    """An ablated head equals a forward in which the projection has no weights for the head's channels."""
    model, anatomy = case.model(), describe(case.model(), case.size)
    blocks = [block for block in anatomy.blocks if block.mixer.queries is not None]
    if not blocks:
        pytest.skip("no attention between tokens")
    inputs = case.inputs()

    def logits() -> Tensor:
        torch.manual_seed(0)  # ViLT shuffles its patches
        return run(model, inputs)

    plain = logits()
    for block in {each.mixer.kind: each for each in blocks}.values():
        try:
            images = inputs[""] if case.takes_images else inputs
            stored = activations(model, images, block=block.name, heads=True, anatomy=anatomy)
        except VitlabError as error:
            assert "mixed after the softmax" in str(error)
            continue
        heads, width = stored.at(block.name, "heads").shape[1::2]
        layers = [
            layer
            for layer in model.get_submodule(block.mixer.path).modules()
            if isinstance(layer, nn.Linear | nn.Conv2d) and layer.weight.shape[1] == heads * width
        ]
        # NesT's channels are ordered (width, heads)
        channels = torch.arange(heads * width)
        channels = channels.view(width, heads).T if case.family == "nest" else channels.view(heads, width)
        for head in {0, heads - 1}:
            with vitlab.intervene(model, "ablate", block=block.name, head=head, anatomy=anatomy):
                ours = logits()
            equal = []
            for layer in layers:
                weight = layer.weight.clone()
                layer.weight[:, channels[head]] = 0
                equal.append(torch.allclose(ours, logits(), atol=1e-6))
                layer.weight.copy_(weight)
            assert any(equal) or case.family == "mvitv2", (block.name, head)  # it adds the pooled queries to the heads
            if block.mixer.kind != "class attention":  # these cases average the patches
                assert (ours - plain).abs().max() > 1e-5, (block.name, head)
    assert torch.equal(logits(), plain)


@pytest.mark.parametrize("case", [case for case in CASES if not case.text], ids=lambda case: case.family)
def test_every_head_can_be_patched_or_raises_with_the_reason(case: Case) -> None:
    """Patching all heads of a block with those of other images equals patching its attention branch."""
    model, anatomy = case.model(), describe(case.model(), case.size)
    blocks = [block for block in anatomy.blocks if block.mixer.queries is not None and block.seam("attn.out")]
    blocks = [block for block in blocks if block.mixer.kind != "class attention"]
    if not blocks:
        pytest.skip("no attention between tokens")
    name = blocks[0].name
    mine, others = case.inputs(1), case.inputs(2)
    images = others[""] if case.takes_images else others
    with torch.no_grad():
        try:
            stored = activations(model, images, block=name, heads=True, anatomy=anatomy)
        except VitlabError as error:
            assert "mixed after the softmax" in str(error)
            return
        count = stored.at(name, "heads").shape[1]
        with vitlab.intervene(model, "patch", block=name, head=list(range(count)), source=stored, anatomy=anatomy):
            heads = run(model, mine)
        source = images if case.takes_images else activations(model, images, block=name, at="attn", anatomy=anatomy)
        with vitlab.intervene(model, "patch", block=name, at="attn", source=source, anatomy=anatomy):
            branch = run(model, mine)
        assert not torch.equal(heads, run(model, mine))
        if case.family != "mvitv2":  # adds the pooled queries to the outputs of the heads
            assert torch.allclose(heads, branch, atol=1e-5)
