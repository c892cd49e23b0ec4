"""Retrofit and restore on timm models: copy, save, compile and train also work with parts."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from timm.utils import ModelEmaV3
from torch import Tensor, nn

import vitlab
from cases import VIT, redraw
from vitlab import zoo
from vitlab.modules.context_broadcast import ContextBroadcast, ScaledContextBroadcast

PARTS = ["ContextBroadcast", "ScaledContextBroadcast(init=0.3)", "TokenAwarePooling(branches=3)"]


def plain_model(name: str = "deit_tiny_patch16_224", **settings: object) -> nn.Module:
    return redraw(timm.create_model(name, num_classes=7, **{**VIT, **settings})).eval()


def fitted_model(part: str = "ScaledContextBroadcast(init=0.3)", **where: object) -> nn.Module:
    return vitlab.retrofit(plain_model(), part, **where)


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("part", PARTS)
def test_a_plain_checkpoint_still_loads_and_only_the_parts_keys_are_new(part: str, images: Tensor) -> None:
    plain, fitted = plain_model(), fitted_model(part)
    redraw(fitted, seed=9)
    missing, unexpected = fitted.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected
    assert all(".vitlab_" in key for key in missing)
    assert torch.equal(vitlab.restore(fitted)(images), plain(images))


@pytest.mark.parametrize("part", PARTS)
def test_state_dict_round_trip(part: str, images: Tensor) -> None:
    first, second = redraw(fitted_model(part)), redraw(fitted_model(part), seed=5)
    assert not torch.equal(first(images), second(images))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(images), second(images))


def test_copies_are_independent(images: Tensor) -> None:
    fitted = vitlab.retrofit(fitted_model(), "ContextBroadcast", at="attn.out")
    before = fitted(images)
    copied, averaged = copy.deepcopy(fitted), ModelEmaV3(fitted, decay=0.5)
    unpickled = pickle.loads(pickle.dumps(fitted))
    with torch.no_grad():
        for name, parameter in fitted.named_parameters():
            if "vitlab_" in name:
                parameter.fill_(3.0)
    assert not torch.equal(fitted(images), before)
    for other in (copied, averaged.module, unpickled):
        assert torch.equal(other(images), before)
        assert torch.equal(vitlab.restore(other)(images), plain_model()(images))
    averaged = ModelEmaV3(fitted, decay=0.5)
    with torch.no_grad():
        fitted.blocks[0].mlp.vitlab_scaled_context_broadcast.scale.fill_(5.0)
    averaged.update(fitted)
    assert averaged.module.blocks[0].mlp.vitlab_scaled_context_broadcast.scale.mean() == 4.0


@pytest.mark.parametrize("part", PARTS)
def test_compiles_with_the_part_as_one_graph(part: str, images: Tensor) -> None:
    fitted = fitted_model(part)
    compiled = torch.compile(fitted, fullgraph=True, backend="eager")
    assert (compiled(images) - fitted(images)).abs().max() < 1e-6


def test_a_retrofit_after_compilation_takes_effect(images: Tensor) -> None:
    model = plain_model()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    plain = compiled(images)
    vitlab.retrofit(compiled, "ContextBroadcast")
    assert (compiled(images) - plain).abs().max() > 1e-4
    vitlab.restore(compiled)
    assert torch.equal(compiled(images), plain)


def test_compiled_code_of_a_plain_model_is_not_reused_with_a_part(images: Tensor) -> None:
    """Both models have the same class and shapes; only their hooks differ."""
    plain, fitted = plain_model(), fitted_model("TokenAwarePooling")

    def compiled(model: nn.Module) -> object:
        def forward(images: Tensor) -> Tensor:
            return model(images)

        return torch.compile(forward, fullgraph=True, backend="eager")

    first, second = compiled(plain), compiled(fitted)
    assert (first(images) - plain(images)).abs().max() < 1e-6
    assert (second(images) - fitted(images)).abs().max() < 1e-6
    assert (first(images) - second(images)).abs().max() > 1e-4


@pytest.mark.parametrize("part", PARTS)
def test_export(part: str, images: Tensor) -> None:
    fitted = fitted_model(part)
    exported = torch.export.export(fitted, (images,))
    assert (exported.module()(images) - fitted(images)).abs().max() < 1e-5


@pytest.mark.parametrize("part", ["ContextBroadcast", "TokenAwarePooling(branches=3)"])
def test_onnx(part: str, images: Tensor, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    fitted = fitted_model(part)
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(fitted, (images,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    (ours,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    assert abs(ours - fitted(images).detach().numpy()).max() < 1e-4


DDP = """
import os, sys, torch, torch.distributed as dist, vitlab
sys.path[:0] = ["tests", "tests/surgery"]
from test_surgery import fitted_model
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(0)
model = vitlab.retrofit(fitted_model(), "ContextBroadcast", at="attn.out")
images = torch.randn(4, 3, 32, 32)
model(images).square().mean().backward()
whole = {name: p.grad.clone() for name, p in model.named_parameters()}
model.zero_grad()
wrapped = DistributedDataParallel(model)
wrapped(images[2 * rank : 2 * rank + 2]).square().mean().backward()
worst = max(float((p.grad - whole[name]).abs().max()) for name, p in model.named_parameters())
assert any("vitlab_" in name and p.grad.abs().sum() > 0 for name, p in model.named_parameters())
assert worst < 1e-6, worst
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # on a loaded machine gloo's threads sometimes abort the interpreter's own exit
"""


def test_two_processes_average_the_parts_gradients(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    processes = []
    for rank in (0, 1):
        environment = {
            **os.environ,
            **{"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"},
            **{"PYTHONPATH": f"{root / 'src'}", "OMP_NUM_THREADS": "1"},
        }
        command = [sys.executable, "-c", DDP]
        processes.append(subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True))
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_restore_gives_back_the_model_bit_for_bit(images: Tensor) -> None:
    model = plain_model()
    tree, keys, logits = [n for n, _ in model.named_modules()], list(model.state_dict()), model(images)
    for part in [*PARTS, "UniformHead", "SqueezeExcite", "SpatialSmoothing(at='block.out')"]:
        vitlab.retrofit(model, part)
    assert not torch.equal(model(images), logits)
    vitlab.restore(model)
    assert [n for n, _ in model.named_modules()] == tree
    assert list(model.state_dict()) == keys
    assert torch.equal(model(images), logits)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_foreign_hooks_are_kept(images: Tensor) -> None:
    model, seen = plain_model(), []
    model.blocks[0].mlp.register_forward_hook(lambda *_: seen.append(1))
    vitlab.restore(vitlab.retrofit(model, "ContextBroadcast"))
    seen.clear()  # `describe` runs the model once, with its hooks
    model(images)
    assert seen == [1]


class Add(nn.Module):
    def __init__(self, amount: float) -> None:
        super().__init__()
        self.amount = amount

    def forward(self, x: Tensor) -> Tensor:
        return x + self.amount


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_parts_stack_in_order_of_insertion(images: Tensor) -> None:
    model = plain_model()
    inputs: list[Tensor] = []
    model.blocks[1].mlp.fc2.register_forward_hook(lambda module, args, output: inputs.append(output))
    for part in (Add(1.0), Double(), Add(10.0)):
        vitlab.retrofit(model, part, at="mlp.out", blocks=[1])
    assert [name for name, _ in model.blocks[1].mlp.named_children()][-3:] == [
        "vitlab_add",
        "vitlab_double",
        "vitlab_add_2",
    ]
    outputs: list[Tensor] = []
    model.blocks[1].mlp.register_forward_hook(lambda module, args, output: outputs.append(output))
    inputs.clear()  # `describe` ran the model too
    model(images)
    assert torch.allclose(outputs[0], 2 * (inputs[0] + 1) + 10, atol=1e-6)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ("all", range(10)),
        ("upper", range(5, 10)),
        ("lower", range(5)),
        ("2:4", (2, 3)),
        (":30%", (0, 1, 2)),
        ("30%:", range(3, 10)),
        ([0, -1], (0, 9)),
        (["blocks.4"], (4,)),
        (np.array([1, 3]), (1, 3)),
        (torch.tensor([1, 3]), (1, 3)),
        ("7:", (7, 8, 9)),
    ],
)
def test_blocks(blocks: object, expected: object) -> None:
    model = vitlab.retrofit(plain_model(depth=10, embed_dim=6), "ContextBroadcast", blocks=blocks)
    assert [i for i in range(10) if hasattr(model.blocks[i].mlp, "vitlab_context_broadcast")] == list(expected)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_mid_equals_end(dtype: torch.dtype, tolerance: float, images: Tensor) -> None:
    """Averaging commutes with the affine fc2 (CB, Sec. 4.1)."""
    mid, end, front = (plain_model().to(dtype) for _ in range(3))
    vitlab.retrofit(mid, "ContextBroadcast", at="mlp.mid")
    vitlab.retrofit(end, "ContextBroadcast", at="mlp.out")
    vitlab.retrofit(front, "ContextBroadcast", at="mlp.in")
    assert (mid(images.to(dtype)) - end(images.to(dtype))).abs().max() <= tolerance
    assert (front(images.to(dtype)) - end(images.to(dtype))).abs().max() > 1e-4


def test_context_broadcast_at_mlp_out_is_the_one_liner(images: Tensor) -> None:
    fitted, by_hand = fitted_model("ContextBroadcast"), plain_model()
    for block in by_hand.blocks:
        mlp = block.mlp
        block.mlp = nn.Sequential(mlp, _OneLine())
    assert torch.equal(fitted(images), by_hand(images))


class _OneLine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x + 0.5 * x.mean(dim=1, keepdim=True)


def test_parts_follow_the_models_device_precision_and_mode() -> None:
    model = plain_model().to(torch.float64).train()
    vitlab.retrofit(model, "TokenAwarePooling")
    part = model.blocks[0].norm1.vitlab_token_aware_pooling
    assert part.training and next(part.parameters()).dtype == torch.float64


def test_a_class_and_a_module_are_parts_too(images: Tensor) -> None:
    by_name, by_class, by_module = (plain_model() for _ in range(3))
    vitlab.retrofit(by_name, "ScaledContextBroadcast")
    vitlab.retrofit(by_class, ScaledContextBroadcast)
    vitlab.retrofit(by_module, ContextBroadcast(), blocks="upper")
    assert list(by_name.state_dict()) == list(by_class.state_dict())
    assert not hasattr(by_module.blocks[0].mlp, "vitlab_context_broadcast")
    assert by_module.blocks[1].mlp.vitlab_context_broadcast is not by_module.blocks[2].mlp.vitlab_context_broadcast


def test_a_model_expression_does_the_same() -> None:
    settings = ", ".join(f"{key}={value}" for key, value in VIT.items())
    text = f"timm/deit_tiny_patch16_224({settings}, num_classes=7) | ScaledContextBroadcast(init=0.3, blocks='upper')"
    model = vitlab.load(text, seed=1)
    torch.manual_seed(1)
    by_hand = timm.create_model("deit_tiny_patch16_224", num_classes=7, **VIT)
    vitlab.retrofit(by_hand, "ScaledContextBroadcast(init=0.3)", blocks="upper")
    for (name, ours), (other, theirs) in zip(model.state_dict().items(), by_hand.state_dict().items(), strict=True):
        assert name == other and torch.equal(ours, theirs)


@pytest.mark.parametrize("form", ["A", "B", "C"])
def test_uniform_heads_replace_attention_and_are_removed(form: str, images: Tensor) -> None:
    model = plain_model()
    logits, keys = model(images), list(model.state_dict())
    plain_state = copy.deepcopy(model.state_dict())
    vitlab.retrofit(model, f"UniformHead(form={form!r})", blocks="upper")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in keys:
                parameter.normal_(std=0.1)  # B and C initially equal A and the plain model
    assert (model(images) - logits).abs().max() > 1e-4
    if form != "B":  # B has other widths: a plain checkpoint does not fit
        missing, unexpected = model.load_state_dict(plain_state, strict=False)
        assert not unexpected
        assert not set(missing) & set(keys)
    copied = copy.deepcopy(model)
    for fitted in (model, copied):
        vitlab.restore(fitted)
        assert torch.equal(fitted(images), logits) and list(fitted.state_dict()) == keys


def test_local_attention_that_covers_the_map_is_global_attention(images: Tensor) -> None:
    model = plain_model("vit_tiny_patch16_224", class_token=False, global_pool="avg")
    logits = model(images)
    vitlab.retrofit(model, "LocalAttention(kernel=7)")  # 4x4 grid: 7 covers it
    assert (model(images) - logits).abs().max() < 1e-5
    vitlab.restore(model)
    vitlab.retrofit(model, "LocalAttention(kernel=3)")
    assert (model(images) - logits).abs().max() > 1e-4


MISTAKES = [
    ({"part": "ContextBroadcats"}, "did you mean 'ContextBroadcast'"),
    ({"part": "ContextBroadcast", "at": "mlp.outt"}, "there are: attn.in, attn"),
    ({"part": "ContextBroadcast", "blocks": [99]}, "3 token-mixing blocks"),
    ({"part": "ContextBroadcast", "blocks": "9:12"}, "is empty"),
    ({"part": "ContextBroadcast", "blocks": "middle"}, "'upper'"),
    ({"part": "ContextBroadcast", "blocks": ["blocks.77"]}, "blocks.0"),
    ({"part": "ContextBroadcast", "at": "attn"}, "cannot replace"),
    ({"part": "UniformHead", "at": "mlp.out"}, "use at='attn'"),
    ({"part": "TokenAwarePooling(branchs=3)"}, "did you mean 'branches'"),
    ({"part": "TokenAwarePooling(dim=3)"}, "no setting"),
    ({"part": "TokenAwarePooling(branches=0)"}, "branches"),
    ({"part": "TokenAwarePooling(branches=1000000000000)"}, "branches"),
    ({"part": "ScaledContextBroadcast(init='a')"}, "expected a number"),
    ({"part": "AveragePooling(kernel=3.0)"}, "an integer from 1 to 31"),
    ({"part": "ContextBroadcast(tokens=(0, 5.5))"}, "or (an integer from 0"),
    ({"part": "ContextBroadcast(at='mlp.out')", "at": "mlp.in"}, "given twice"),
    ({"part": "__import__('os').system('true')"}, "cannot read"),
    ({"part": "ContextBroadcast(tokens=__import__('os'))"}, "not a literal"),
    ({"part": 3}, "invalid part of type int"),
    ({"part": nn.Linear(3, 3)}, "no default seam"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[str(call) for call, _ in MISTAKES])
def test_mistakes_are_one_line_and_leave_the_model_unchanged(call: dict[str, object], message: str) -> None:
    model = plain_model()
    keys, tree = list(model.state_dict()), [name for name, _ in model.named_modules()]
    with pytest.raises(vitlab.VitlabError, match=".") as error:
        vitlab.retrofit(model, **call)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert list(model.state_dict()) == keys and [name for name, _ in model.named_modules()] == tree
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_missing_seam_names_the_existing_ones() -> None:
    model = timm.create_model("resnet10t", num_classes=3)
    with pytest.raises(vitlab.VitlabError, match=r"no seam 'attn.in' in family 'resnet'.*it has: .*block.out"):
        vitlab.retrofit(model, "TokenAwarePooling", input_size=32)


def test_a_wrong_grid_raises_with_the_remedy() -> None:
    model = timm.create_model("vit_tiny_patch16_224", num_classes=7, dynamic_img_size=True, **VIT).eval()
    vitlab.retrofit(model, "TokenAwarePooling")
    with pytest.raises(vitlab.VitlabError, match=r"4x4 grid.*17 tokens.*got 33.*input_size="):
        model(torch.zeros(1, 3, 32, 64))
    vitlab.restore(model)
    vitlab.retrofit(model, "TokenAwarePooling", input_size=(32, 64))
    assert model(torch.zeros(1, 3, 32, 64)).shape == (1, 7)


def test_a_wrong_grid_of_equal_token_count_raises_for_2d_maps() -> None:
    model = timm.create_model("resnet10t", num_classes=3).eval()
    vitlab.retrofit(model, "SpatialSmoothing", input_size=(64, 64))
    with pytest.raises(vitlab.VitlabError, match=r"fitted for a .* grid, but got"):
        model(torch.zeros(1, 3, 32, 128))


def test_weights_loaded_into_uniform_heads_are_kept_on_restore(images: Tensor) -> None:
    model, other = plain_model(), redraw(plain_model(), seed=9).eval()
    vitlab.retrofit(model, "UniformHead(form='A')")
    model.load_state_dict(other.state_dict())
    dropped = [block.attn.vitlab_original[0].qkv.weight.detach().clone() for block in model.blocks]
    vitlab.restore(model)
    size = VIT["embed_dim"] // VIT["num_heads"]
    for block, twin, before in zip(model.blocks, other.blocks, dropped, strict=True):
        q, k, v = block.attn.qkv.weight.chunk(3)
        new_q, new_k, new_v = twin.attn.qkv.weight.chunk(3)
        assert torch.equal(q[:-size], new_q[:-size]) and torch.equal(k[:-size], new_k[:-size]) and torch.equal(v, new_v)
        assert torch.equal(q[-size:], before.chunk(3)[0][-size:])


def test_local_attention_has_no_token_token_map() -> None:
    model = vitlab.retrofit(plain_model(), "LocalAttention(kernel=3)", blocks=[0])
    with vitlab.record(model) as tape:
        model(torch.zeros(1, 3, 32, 32))
    assert set(tape) == {"blocks.1", "blocks.2"}
    with pytest.raises(vitlab.VitlabError, match="3x3 window"):
        tape["blocks.0"]


def test_a_part_in_trained_weights_warns_about_changed_outputs(tmp_path: Path) -> None:
    """A measured warning for trained weights; nothing, and no further forward, for random and unknown ones."""
    expression = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)"
    random = vitlab.load(expression, seed=0)
    file = tmp_path / "trained.safetensors"
    zoo.save(random, expression, str(file))
    with pytest.warns(
        UserWarning, match=r"ContextBroadcast changed the outputs of trained weights .* by \d+% on noise"
    ) as warned:
        vitlab.retrofit(vitlab.load(f"file/{file}"), "ContextBroadcast")
    assert [each.filename for each in warned] == [__file__], "the line that called retrofit"
    with pytest.warns(UserWarning, match="ContextBroadcast, AveragePooling changed the outputs") as warned:
        vitlab.load(f"file/{file} | ContextBroadcast | AveragePooling")
    assert len(warned) == 1
    forwards: list[int] = []
    random.register_forward_hook(lambda *_: forwards.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vitlab.retrofit(vitlab.load(f"file/{file}"), "TokenAwarePooling(identity_init=True)")
        vitlab.load(f"file/{file} | ContextBroadcast(identity_init=True)")
        vitlab.retrofit(random, "ContextBroadcast")
        vitlab.retrofit(plain_model(), "ContextBroadcast")
    assert len(forwards) == 1, "describe runs one forward"
