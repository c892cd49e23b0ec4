"""`record`: exact values, unchanged outputs, no hooks left, also with compiled and wrapped models."""

from __future__ import annotations

import pytest
import timm
import torch
import torch.distributed as dist
import torchvision
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import vitlab
from cases import VIT, redraw
from vitlab.recording.attention_call import AttentionCall


def plain_model(name: str = "vit_tiny_patch16_224", **settings: object) -> nn.Module:
    return redraw(timm.create_model(name, num_classes=7, **{**VIT, **settings})).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))


def unfused_map(model: nn.Module, images: Tensor, block: int) -> Tensor:
    """The oracle: timm's explicit softmax, read at `attn_drop` with fused attention disabled."""
    maps: list[Tensor] = []
    attention = model.blocks[block].attn
    handle = attention.attn_drop.register_forward_hook(lambda module, args, output: maps.append(output.detach()))
    fused, attention.fused_attn = attention.fused_attn, False
    model(images)
    handle.remove()
    attention.fused_attn = fused
    return maps[0]


def test_maps_equal_timm_with_fused_attention(images: Tensor) -> None:
    model = plain_model()
    assert model.blocks[0].attn.fused_attn
    logits = model(images)
    with vitlab.record(model, "attention") as tape:
        assert torch.equal(model(images), logits)
    for i in range(3):
        assert (tape[f"blocks.{i}"] - unfused_map(model, images, i)).abs().max() < 1e-6
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_repeated_forwards_are_appended(images: Tensor) -> None:
    model = plain_model()
    with vitlab.record(model) as tape:
        model(images)
        model(images[:1])
        assert tape["blocks.0"].shape == (3, 3, 17, 17)
        tape.clear()
        with pytest.raises(vitlab.VitlabError, match="nothing was recorded"):
            tape["blocks.0"]


def test_a_reducer_receives_each_call_and_no_map_is_stored(images: Tensor) -> None:
    model = plain_model()
    with vitlab.record(model, reduce=lambda call: call.map().amax(-1).mean()) as tape, torch.no_grad():
        model(images)
        model(images)
    with vitlab.record(model) as whole, torch.no_grad():
        model(images)
    assert len(tape["blocks.1"]) == 2
    assert torch.allclose(tape["blocks.1"][0], whole["blocks.1"].amax(-1).mean())


def test_streamed_statistics_equal_those_of_the_whole_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitlab.kernels.attention_rows.CHUNK", 60)  # a few rows at a time
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 3, 9, 4, generator=generator), torch.randn(2, 3, 5, 4, generator=generator)
    bias = torch.randn(1, 3, 9, 5, generator=generator)
    layout = vitlab.core.anatomy.TokenLayout((3, 3))
    call = AttentionCall("b", layout, layout, q=q, k=k, scale=0.5, bias=bias)
    weights = torch.softmax(0.5 * torch.einsum("bhnd,bhmd->bhnm", q, k) + bias, -1)
    statistics = call.statistics(["entropy", "received"])
    assert torch.allclose(statistics["entropy"], torch.distributions.Categorical(probs=weights).entropy(), atol=1e-5)
    assert torch.allclose(statistics["received"], weights.mean(-2), atol=1e-6)
    assert torch.allclose(call.map(), weights, atol=1e-6)


def test_gradients_reach_the_model_only_on_request(images: Tensor) -> None:
    model = plain_model()
    with vitlab.record(model, gradients=True) as tape:
        model(images)
    tape["blocks.0"].square().sum().backward()
    kept = model.blocks[0].attn.qkv.weight.grad.clone()
    model.zero_grad()
    attention = model.blocks[0].attn  # oracle: the same loss through timm's explicit softmax
    attention.fused_attn = False
    maps: list[Tensor] = []
    handle = attention.attn_drop.register_forward_hook(lambda module, args, output: maps.append(output))
    model(images)
    handle.remove()
    maps[0].square().sum().backward()
    assert torch.allclose(kept, attention.qkv.weight.grad, atol=1e-6)
    with vitlab.record(model) as tape:
        model(images)
    assert not tape["blocks.0"].requires_grad


def test_rows_sum_to_one_under_autocast(images: Tensor) -> None:
    model = plain_model()
    with torch.autocast("cpu", torch.bfloat16), vitlab.record(model) as tape:
        model(images)
        inside = tape["blocks.0"]
    assert inside.dtype == torch.float32
    assert (inside.sum(-1) - 1).abs().max() < 1e-5
    assert (inside - unfused_map(model, images, 0)).abs().max() < 2e-2


def test_under_compile_in_one_graph(images: Tensor) -> None:
    model = plain_model()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    logits = compiled(images)
    with vitlab.record(compiled) as tape:
        assert torch.equal(compiled(images), logits)
    assert (tape["blocks.2"] - unfused_map(model, images, 2)).abs().max() < 1e-6
    entries = len(tape.calls("blocks.2"))
    assert torch.equal(compiled(images), logits)
    assert len(tape.calls("blocks.2")) == entries, "the recorder is still there"


def test_other_functions_can_be_compiled_while_attention_is_recorded(images: Tensor) -> None:
    """Compiled augmentation and heads run inside the recorder during training; `unflatten` is a Python method."""

    def rows(x: Tensor) -> Tensor:
        return x.unflatten(-1, (2, -1)).unflatten(0, (1, -1)).sum(-1)

    compiled = torch.compile(rows, fullgraph=True, backend="eager")
    with vitlab.record(plain_model()):
        torch.testing.assert_close(compiled(images), images.reshape(1, *images.shape[:3], 2, -1).sum(-1))


def test_inside_data_parallel_wrappers(images: Tensor) -> None:
    model = plain_model()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        for wrapped in (nn.DataParallel(model), DistributedDataParallel(model)):
            with vitlab.record(wrapped) as tape:
                wrapped(images)
            assert (tape["blocks.1"] - unfused_map(model, images, 1)).abs().max() < 1e-6
    finally:
        dist.destroy_process_group()


def test_gradient_checkpointing(images: Tensor) -> None:
    model = plain_model().train()
    model.set_grad_checkpointing(True)
    with vitlab.record(model) as tape:
        model(images).sum().backward()
    assert len(tape.calls("blocks.0")) == 1, "the recomputation was recorded too"
    with pytest.raises(vitlab.VitlabError, match="set_grad_checkpointing"), vitlab.record(model, gradients=True):
        pass


def test_multihead_attention_keeps_its_fast_path() -> None:
    """torchvision's ViT takes a fused path in inference whose last bits differ; recording must not disable it."""
    model = torchvision.models.VisionTransformer(32, 8, 2, 3, 24, 48, num_classes=7)
    redraw(model).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        logits = model(images)
        with vitlab.record(model) as tape:
            assert torch.equal(model(images), logits)
    layer = model.encoder.layers[0]
    hidden: list[Tensor] = []
    handle = layer.self_attention.register_forward_pre_hook(lambda module, args: hidden.append(args[0]))
    with torch.no_grad():
        model(images)
        handle.remove()
        _, weights = layer.self_attention(hidden[0], hidden[0], hidden[0], average_attn_weights=False)
    name = next(iter(tape))
    assert (tape[name] - weights).abs().max() < 1e-6


def test_features_are_the_residual_stream(images: Tensor) -> None:
    model = plain_model()
    with vitlab.record(model, "features", at=["block.in", "block.mid", "block.out"]) as tape, torch.no_grad():
        model(images)
    with vitlab.record(model, "branches") as branches, torch.no_grad():
        model(images)
    for i in range(3):
        start, middle, end = (tape[f"blocks.{i}", place] for place in ("block.in", "block.mid", "block.out"))
        assert torch.allclose(start + branches[f"blocks.{i}", "attn.out"], middle, atol=1e-5)
        assert torch.allclose(middle + branches[f"blocks.{i}", "mlp.out"], end, atol=1e-5)
    outputs = model.forward_intermediates(images, output_fmt="NLC", intermediates_only=True, return_prefix_tokens=True)
    assert torch.allclose(tape["blocks.0", "block.out"][:, 1:], outputs[0][0], atol=1e-5)


def test_the_stream_is_read_before_a_part_at_the_same_place(images: Tensor) -> None:
    model = plain_model()
    with vitlab.record(model, "features", at="block.in") as tape, torch.no_grad():
        model(images)
    plain = tape["blocks.0"]
    vitlab.retrofit(model, "TokenAwarePooling", blocks=[0])
    with vitlab.record(model, "features", at="block.in") as tape, torch.no_grad():
        model(images)
    assert torch.equal(tape["blocks.0"], plain)
    with vitlab.record(model, "features", at="attn.in") as tape, torch.no_grad():
        model(images)
    assert not torch.equal(tape["blocks.0"], plain)


def test_the_softmax_of_a_part_is_not_recorded(images: Tensor) -> None:
    model = plain_model()
    vitlab.retrofit(model, "TokenAwarePooling", at="attn.out")
    with vitlab.record(model) as tape:
        model(images)
    assert tape["blocks.0"].shape == (2, 3, 17, 17)


def test_an_error_in_a_forward_does_not_affect_the_next(images: Tensor) -> None:
    model = plain_model()
    with vitlab.record(model) as tape:
        handle = model.blocks[1].attn.proj.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(images)
        handle.remove()
        tape.clear()
        model(images)
    assert (tape["blocks.2"] - unfused_map(model, images, 2)).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"what": "attentions"}, "did you mean 'attention'"),
        ({"what": "features", "at": "mlp.outt"}, "did you mean 'mlp.out'"),
        ({"what": "attention", "at": "mlp.out"}, "omit it"),
        ({"blocks": ["blocks.9"]}, "blocks.2"),
    ],
)
def test_mistakes(settings: dict[str, object], message: str) -> None:
    with pytest.raises(vitlab.VitlabError, match=message), vitlab.record(plain_model(), **settings):
        pass


def test_a_given_anatomy_is_reused(images: Tensor) -> None:
    model = plain_model()
    anatomy = vitlab.describe(model)
    forwards = []
    model.register_forward_hook(lambda *_: forwards.append(1))
    with vitlab.record(model, "attention", anatomy=anatomy) as tape:
        model(images)
    assert len(forwards) == 1 and tape.anatomy is anatomy
    with (
        pytest.raises(vitlab.VitlabError, match="both anatomy and input_size"),
        vitlab.record(model, anatomy=anatomy, input_size=224),
    ):
        pass


class TwoMaps(nn.Module):
    """An attention module that calls attention twice and averages."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.first, self.second = attention, attention

    def forward(self, x: Tensor, **_: object) -> Tensor:
        return (self.first(x) + self.second(x)) / 2


def test_two_attentions_in_one_module_are_refused(images: Tensor) -> None:
    model = plain_model()
    model.blocks[1].attn = TwoMaps(model.blocks[1].attn)
    with vitlab.record(model), pytest.raises(vitlab.VitlabError, match=r"blocks\.1 calls attention more than once"):
        model(images)
