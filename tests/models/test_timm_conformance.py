"""Our models follow the conventions of timm's models; `EXCEPTIONS` names each difference and its reason.

Configurations are checked on the meta device. What needs numbers is checked on the tiny models of `cases`, one or more
of each class, and on all models at their own size in `make test-full`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from timm.layers import create_feature_extractor, get_graph_node_names
from timm.models import FeatureInfo
from timm.models._manipulate import group_with_matcher
from timm.optim import param_groups_layer_decay
from torch import Tensor, nn

from cases import Case, alternet, rvt_fan, small
from vitlab import zoo
from vitlab.core import plugins

NAMES = zoo.model_names("vitlab")
#: One model of each file and every fourth of the others in the quick tests, all in `make test-full`.
QUICK = {timm.list_models(module=module.rpartition(".")[2])[0] for module in plugins.models()} | set(NAMES[::4])
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in NAMES]

#: Class and check: the reason why a model of ours does not meet a convention.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("TokensToTokenVisionTransformer", "first_conv"): "its first layer is attention over unfolded pixels, so that the "
    "weights of other channels cannot be computed from those of three",
    ("PoolingVisionTransformer", "set_grad_checkpointing"): "timm's PiT refuses it",
    ("PoolingVisionTransformer", "group_matcher"): "timm's PiT has none",
    ("Twins", "set_grad_checkpointing"): "timm's Twins refuses it",
    (
        "ConvolutionalVisionTransformer",
        "torchscript",
    ): "its attention is a part, which is plain Python",
}


def excepted(model: nn.Module, check: str) -> bool:
    return (type(model).__name__, check) in EXCEPTIONS


def images(model: Any, size: tuple[int, int], batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))


def maps_of(features: Tensor, output_fmt: str) -> tuple[int, ...] | None:
    """Rows and columns of a map; None for tokens."""
    if features.ndim != 4:
        return None
    return tuple(features.shape[1:3] if output_fmt == "NHWC" else features.shape[2:])


# -- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_default_cfg(name: str) -> None:
    with torch.device("meta"):
        model: Any = timm.create_model(name)
    cfg, state = model.default_cfg, model.state_dict()
    x = torch.empty(1, *cfg["input_size"], device="meta")
    features = model.forward_features(x)
    fmt = getattr(model, "output_fmt", "NCHW")
    assert maps_of(features, fmt) == cfg["pool_size"], "pool_size is the size of the unpooled map; None for tokens"
    assert model.num_features in features.shape
    assert model.forward_head(features, pre_logits=True).shape == (1, model.head_hidden_size)
    assert model(x).shape == (1, cfg["num_classes"]) and model.num_classes == cfg["num_classes"]
    assert model.get_submodule(cfg["classifier"]) is model.get_classifier()
    assert state[f"{cfg['classifier']}.weight"].shape == (cfg["num_classes"], model.head_hidden_size)
    first = state[f"{cfg['first_conv']}.weight"]
    assert (first.ndim == 4 and first.shape[1] == 3) or excepted(model, "first_conv")


@pytest.mark.parametrize("name", EVERY)
def test_models_without_classifier_and_without_pooling(name: str) -> None:
    with torch.device("meta"):
        model: Any = timm.create_model(name)
        bare: Any = timm.create_model(name, num_classes=0, global_pool="")
    x = torch.empty(2, *model.default_cfg["input_size"], device="meta")
    features = model.forward_features(x).shape
    model.reset_classifier(0)
    assert model.num_classes == 0 and model(x).shape == (2, model.num_features)
    model.reset_classifier(0, "")
    assert model(x).shape == bare(x).shape == features
    model.reset_classifier(5)
    assert model.num_classes == 5 and model.get_classifier().weight.shape[0] == 5


@pytest.mark.parametrize("name", EVERY)
def test_groups_of_parameters_are_ordered_by_depth(name: str) -> None:
    with torch.device("meta"):
        model: Any = timm.create_model(name)
    if excepted(model, "group_matcher"):
        assert not hasattr(model, "group_matcher")
        return
    for coarse in (False, True):
        layer = group_with_matcher(model.named_parameters(), model.group_matcher(coarse=coarse), reverse=True)
        assert set(layer) == set(dict(model.named_parameters()))
        first, last = f"{model.default_cfg['first_conv']}.weight", f"{model.default_cfg['classifier']}.weight"
        assert layer[first] == 0, "the stem is the first group"
        assert layer[last] == max(layer.values()) and len(set(layer.values())) >= 3
        blocks = [layer[key] for key in layer if ".blocks." in key or key.startswith(("blocks.", "stages."))]
        assert blocks == sorted(blocks), "groups of later blocks have higher numbers"
    scales = {id(p): group["lr_scale"] for group in param_groups_layer_decay(model) for p in group["params"]}
    weights = dict(model.named_parameters())
    assert scales[id(weights[first])] == min(scales.values()) < scales[id(weights[last])] == 1.0


# -- numbers ---------------------------------------------------------------------------------------------------------


def intermediates(model: Any, size: tuple[int, int]) -> None:
    """`forward_intermediates` returns what `feature_info` declares, and the last features."""
    model.eval()
    x, info = images(model, size), FeatureInfo(model.feature_info, tuple(range(len(model.feature_info))))
    with torch.no_grad():
        last, maps = model.forward_intermediates(x)
        torch.testing.assert_close(last, model.forward_features(x))
        assert [m.shape[1] for m in maps] == info.channels()
        for reduction, kept in zip(info.reduction(), maps, strict=True):
            assert all(abs(have - side / reduction) <= 1 for have, side in zip(kept.shape[2:], size, strict=True))
        some = model.forward_intermediates(x, indices=[0, len(maps) - 1], intermediates_only=True)
        assert torch.equal(some[0], maps[0]) and torch.equal(some[1], maps[-1])
        early = model.forward_intermediates(x, indices=[0], stop_early=True, intermediates_only=True)
        assert len(early) == 1 and torch.equal(early[0], maps[0])
        assert torch.equal(model.forward_intermediates(x, indices=1, intermediates_only=True)[0], maps[-1])
        normed = model.forward_intermediates(x, indices=1, norm=True, intermediates_only=True)[0]
        assert normed.shape == maps[-1].shape
        kept = model.prune_intermediate_layers([0])
        assert list(kept) == [0]
        torch.testing.assert_close(model.forward_intermediates(x, indices=[0], intermediates_only=True)[0], maps[0])


def torchscript(model: Any, size: tuple[int, int]) -> None:
    """The scripted model has the same outputs, also for another batch size."""
    model.eval()
    if excepted(model, "torchscript"):
        return
    scripted = torch.jit.script(model)
    for batch in (2, 3):
        x = images(model, size, batch)
        with torch.no_grad():
            torch.testing.assert_close(scripted(x), model(x))


def fx(model: Any, size: tuple[int, int]) -> None:
    """The traced graph of a feature extractor has the same outputs and gradients as the model."""
    model.eval()
    _, nodes = get_graph_node_names(model)
    graph = create_feature_extractor(model, nodes[-1:])
    x = images(model, size)
    with torch.no_grad():
        (output,) = graph(x).values()
        torch.testing.assert_close(output, model(x))
    (output,) = graph(x).values()
    output.square().mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model(x).square().mean().backward()
    assert gradients and set(gradients) == {name for name, p in model.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad)


def checkpointing(model: Any, size: tuple[int, int]) -> None:
    """Gradient checkpointing changes no output, no gradient and no running statistic."""
    if excepted(model, "set_grad_checkpointing"):
        with pytest.raises(AssertionError, match="not supported"):
            model.set_grad_checkpointing()
        return
    x, results, start = images(model, size), [], {k: v.clone() for k, v in model.state_dict().items()}
    for enable in (False, True):
        model.load_state_dict(start)
        model.set_grad_checkpointing(enable)
        model.train().zero_grad()
        calls = _calls(model)
        torch.manual_seed(0)
        loss = model(x).square().mean()
        forward = dict(calls)
        loss.backward()
        recomputed = {name for name in calls if calls[name] > forward[name]}
        assert bool(recomputed) == enable, "modules run again in the backward pass exactly if checkpointing is enabled"
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((loss.detach(), gradients, {name: b.clone() for name, b in model.named_buffers()}))
    for plain, checkpointed in zip(*results, strict=True):
        torch.testing.assert_close(checkpointed, plain)
    assert any(k.endswith("num_batches_tracked") for k in results[0][2]) == any(
        isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.modules()
    )


def _calls(model: nn.Module) -> dict[str, int]:
    """The number of calls of every module, counted from now on."""
    counts = {name: 0 for name, _ in model.named_modules()}

    def counter(name: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            counts[name] += 1

        return hook

    for name, module in model.named_modules():
        module.register_forward_pre_hook(counter(name))
    return counts


CHECKS = [intermediates, torchscript, fx, checkpointing]
CASES = [*alternet.CASES, *rvt_fan.CASES, *small.CASES]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.family)
def test_tiny_models(case: Case, check: Callable[[Any, tuple[int, int]], None]) -> None:
    check(case.model(), case.size)


@pytest.mark.full
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_all_models_at_their_own_size(name: str, check: Callable[[Any, tuple[int, int]], None]) -> None:
    torch.manual_seed(0)
    model: Any = timm.create_model(name)
    check(model, model.default_cfg["input_size"][1:])


@pytest.mark.slow
def test_checkpointing_of_a_compiled_model() -> None:
    case = next(case for case in CASES if case.family == "local_vit")
    results = []
    for compiled in (False, True):
        model: Any = case.model().train()
        model.set_grad_checkpointing()
        torch._dynamo.reset()
        run = torch.compile(model, backend="aot_eager") if compiled else model
        loss = run(images(model, case.size)).square().mean()
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        results.append((loss.detach(), gradients, dict(model.named_buffers())))
    for plain, checkpointed in zip(*results, strict=True):
        torch.testing.assert_close(checkpointed, plain)


def test_every_exception_is_one_of_our_models() -> None:
    with torch.device("meta"):
        classes = {type(timm.create_model(name)).__name__ for name in NAMES}
    assert {kind for kind, _ in EXCEPTIONS} <= classes
