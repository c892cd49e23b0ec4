"""`record_diversification`: the same loss and gradients as from recorded maps, with less memory in the backward."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import vitlab
from cases import VIT, redraw
from cases.everything import CASES
from vitlab.core.anatomy import Mixer, TokenLayout
from vitlab.kernels import attention, attention_diversity, availability
from vitlab.losses.attention_diversification import attention_diversification
from vitlab.recording.attention_capture import capture_attention
from vitlab.recording.diversification import _LayerValues, record_diversification
from vitlab.recording.tape import record

CAIT, SWIN, MIXER = (next(case for case in CASES if case.family == name) for name in ("cait", "swin", "mixer"))


def sharp_vit(depth: int = 3) -> nn.Module:
    model = redraw(timm.create_model("vit_tiny_patch16_224", num_classes=7, **{**VIT, "depth": depth}), seed=1)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(12)
    return model.train()


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(3))


# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["paper", "released"])
@pytest.mark.parametrize("heads", ["mean", "each"])
def test_loss_and_gradients_are_those_of_recorded_maps(form: Any, heads: Any) -> None:
    model, x = sharp_vit(), images()
    named = list(model.parameters())
    with record(model, "attention", gradients=True) as tape:
        plain = model(x)
        maps = [tape[name] for name in tape]
        expected = attention_diversification(maps, tau=1.5, form=form, heads=heads)
    truths = torch.autograd.grad(plain.sum() + expected, named)
    with record_diversification(model, tau=1.5, form=form, heads=heads) as diversification:
        model(images(1))
        diversification.clear()  # an earlier batch is not included
        logits = model(x)
        value = diversification.loss()
    assert torch.equal(logits, plain) and float(expected.detach()) > 0.05
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(torch.autograd.grad(logits.sum() + value, named), truths)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("case", [CAIT, SWIN], ids=lambda case: case.family)
def test_class_attention_is_left_out_and_windows_are_maps(case: Any) -> None:
    model = case.model()
    anatomy = vitlab.describe(model, case.size)
    with record(model, "attention", gradients=True, anatomy=anatomy) as tape:
        case.logits(model)
        expected = attention_diversification([call.map() for call in tape.self_attention()], tau=1.0)
    with record_diversification(model, tau=1.0, anatomy=anatomy) as diversification, torch.enable_grad():
        case.logits(model)
        assert float(diversification.loss().detach()) == pytest.approx(float(expected.detach()), abs=1e-6)


@pytest.mark.parametrize("form", ["paper", "released"])
@pytest.mark.parametrize("heads", ["mean", "each"])
def test_in_16_bits_one_operator_computes_attention_and_loss(
    heads: Any, form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, used = sharp_vit(), images(), list[str]()
    original, parameters = attention.attend_diversified, [block.attn.qkv.weight for block in model.blocks]
    truths = []  # with the model's attention and maps, in float32 and in bfloat16
    with record_diversification(model, tau=1.5, form=form, heads=heads) as diversification:
        for enabled in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                truths.append(model(x).float().sum() + 10 * diversification.loss())
            diversification.clear()

    def attend(*operands: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
        used.append(str(operands[0].dtype))
        return original(*operands, **settings)

    monkeypatch.setattr(attention, "unavailable", lambda *_: "")  # the operator then computes from maps, on a CPU
    monkeypatch.setattr(availability, "_FAILURES", {"attention": "a test"})
    monkeypatch.setattr(attention, "attend_diversified", attend)
    with record_diversification(model, tau=1.5, form=form, heads=heads) as diversification:
        model(x)
        assert used == []  # float32
        diversification.clear()
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                model(x)
            assert used == []
            logits = model(x)
            value = logits.float().sum() + 10 * diversification.loss()
            assert used == ["torch.bfloat16"] * len(model.blocks)
            model(x)
            assert len(used) == len(model.blocks)  # after the loss nothing is recorded
            diversification.clear()
            for block in model.blocks:
                block.attn.attn_drop.p = 0.1
            model(x)
            assert len(used) == len(model.blocks) and float(diversification.loss().detach()) > 0.05
    torch.testing.assert_close(value, truths[1], rtol=0.01, atol=0.01)
    exact, of_maps, found = (torch.autograd.grad(each, parameters) for each in (*truths, value))
    for truth, other, gradient in zip(exact, of_maps, found, strict=True):
        assert (gradient - truth).norm() < 1.2 * (other - truth).norm() < 0.2 * truth.norm()


class Masked(nn.Module):
    """A block whose attention has a mask and a scale of its own."""

    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.twice = twice

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.linspace(-3, 3, x.shape[-2] ** 2).reshape(1, 1, x.shape[-2], x.shape[-2])
        for _ in range(1 + self.twice):
            x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask.to(x.dtype), scale=0.7)
        return x


@pytest.mark.parametrize("fused", [False, True])
def test_masks_and_scales_of_an_attention_call(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "unavailable", lambda *_: "" if fused else "off")
    monkeypatch.setattr(availability, "_FAILURES", {"attention": "a test"})
    model = nn.Sequential(Masked())
    layout = TokenLayout((3, 3))
    mixer = Mixer("self-attention", "0", layout, layout)
    block = SimpleNamespace(name="block", mixer=mixer)
    x = torch.randn(2, 2, 9, 8, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    bias = torch.linspace(-3, 3, 81).reshape(1, 1, 9, 9)
    maps = (x.float() @ x.float().mT * 0.7 + bias).softmax(-1)
    entries: dict[Any, list[Any]] = {}
    values = _LayerValues(1.5, "paper", "mean")
    with ExitStack() as stack:
        capture_attention(model, [block], entries, lambda x: x, values, stack)  # type: ignore[list-item]
        output = model(x)
    torch.testing.assert_close(output.float(), maps @ x.float(), rtol=0.02, atol=0.02)
    (value,) = entries["block"]
    torch.testing.assert_close(value, attention_diversification([maps], tau=1.5), rtol=0.02, atol=0.01)
    model[0].twice = True
    with ExitStack() as stack, pytest.raises(vitlab.VitlabError, match="more than once"):
        capture_attention(model, [block], {}, lambda x: x, values, stack)  # type: ignore[list-item]
        model(x)


def test_what_is_not_recorded() -> None:
    model, x = sharp_vit(), images()
    with record_diversification(model, tau=1.5) as diversification:
        with pytest.raises(vitlab.VitlabError, match="nothing was recorded"):
            diversification.loss()
        with torch.no_grad():
            model(x)
        with pytest.raises(vitlab.VitlabError, match="with gradients enabled"):
            diversification.loss()
        diversification.clear()
        model(x)
        first = diversification.loss()
        model(images(1))  # after the loss, as the patched images of RVT
        assert torch.equal(diversification.loss(), first)
    with (
        pytest.raises(vitlab.VitlabError, match="family 'mixer' has none"),
        record_diversification(MIXER.model(), input_size=MIXER.size),
    ):
        pass
    with pytest.raises(vitlab.VitlabError, match="tau=-1"), record_diversification(model, tau=-1.0):
        pass
    model.set_grad_checkpointing(True)
    with pytest.raises(vitlab.VitlabError, match="gradient checkpointing"), record_diversification(model):
        pass


# -- order of the backward ------------------------------------------------------------------------------------------


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the storages that operators return while any tensor uses them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for storage in [x.untyped_storage() for x in tree_leaves(output) if isinstance(x, Tensor)]:
            if storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        return output

    def _free(self, identity: int, size: int) -> None:
        self._known.discard(identity)
        self.now -= size


@pytest.fixture
def with_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators take the form that stores no maps; their results are not computed here."""
    monkeypatch.setattr(availability, "_FAILURES", {})
    monkeypatch.setattr(attention_diversity, "unavailable", torch.compiler.assume_constant_result(lambda *_: ""))


def peak_of_a_step(kind: str) -> int:
    """Peak of live bytes of forward and backward of ViT-S/16, batch 64, bf16, on tensors without data.

    Any operation that needs the data of a tensor, such as a synchronisation with a GPU, raises an error here.
    """
    model = timm.create_model("vit_small_patch16_224").train()
    anatomy = vitlab.describe(model)
    recorders: dict[str, Any] = {
        "forward": lambda: record_diversification(model, anatomy=anatomy),
        "after the forward": lambda: record(model, "attention", gradients=True, anatomy=anatomy),
    }
    tape = recorders[kind]() if kind in recorders else None
    recorded = tape.__enter__() if tape is not None else None
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, labels, live = torch.empty(64, 3, 224, 224), torch.empty(64, dtype=torch.long), LiveBytes()
        with live, torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), labels)
            if recorded is not None:
                loss = loss + (
                    recorded.loss() if kind == "forward" else attention_diversification(recorded.self_attention())
                )
                recorded.clear()
        with live:
            loss.backward()
    if tape is not None:
        tape.__exit__(None, None, None)
    return live.peak


def test_gradients_of_queries_and_keys_do_not_wait_for_all_layers(with_kernel: None) -> None:
    plain = peak_of_a_step("plain")
    assert peak_of_a_step("forward") < 1.01 * plain
    assert peak_of_a_step("after the forward") > 1.05 * plain  # the count sees what it must


def test_compiled_backward_alternates_between_the_loss_and_attention(with_kernel: None) -> None:
    model, x, graphs = sharp_vit(4), images(), []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph)

    with record_diversification(model, tau=1.5) as diversification:

        def loss(x: Tensor) -> Tensor:
            diversification.clear()
            value = model(x).square().sum()
            value = value + diversification.loss()
            diversification.clear()
            return value

        compiled = torch.compile(loss, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), fullgraph=True)
        with pytest.warns(UserWarning, match="attention_diversity runs without its kernel"):
            compiled(x).backward()
    forward, backward = (
        [
            "loss" if "row_sums" in name else "attention"
            for name in names
            if "row_sums" in name or "scaled_dot_product" in name
        ]
        for names in graphs
    )
    assert forward == ["attention", "loss"] * 4 and backward == ["loss", "attention"] * 4
