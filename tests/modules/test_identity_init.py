"""Identity initialisation: a part inserted into trained weights leaves their outputs as they are, and can learn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import CASES, Case
from cases.hierarchical import CASES as HIERARCHICAL
from vitlab.core import plugins
from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.modules.context_broadcast import ContextBroadcast, GatedContextBroadcast
from vitlab.modules.local_pooling import AveragePooling, ConvolutionPooling
from vitlab.modules.squeeze_excite import SqueezeExcite
from vitlab.modules.token_aware_pooling import MultiKernelPooling, TokenAwarePooling

SWIN = next(case for case in HIERARCHICAL if case.family == "swin")

#: Part -> model, settings besides `identity_init`, and the largest relative change of the logits.
PARTS: dict[str, tuple[Case, str, float]] = {
    "ContextBroadcast": (CASES[0], "", 1e-6),
    "ScaledContextBroadcast": (CASES[0], "", 1e-6),
    "GatedContextBroadcast": (CASES[0], "", 1e-6),
    "HybridContextBroadcast": (CASES[0], "", 1e-6),
    "TokenAwarePooling": (CASES[0], "branches=4", 3e-3),
    "MultiKernelPooling": (CASES[0], "branches=3", 3e-3),
    "AveragePooling": (CASES[0], "", 1e-6),
    "ConvolutionPooling": (CASES[0], "", 1e-5),
    "SqueezeExcite": (CASES[0], "", 3e-3),
    "SpatialSmoothing": (SWIN, "", 1e-6),
    "UniformHead": (CASES[0], "form='C'", 1e-6),
    "LocalAttention": (CASES[0], "kernel=8", 1e-5),
}


def change(case: Case, part: str, mode: bool = False) -> float:
    model = case.model().train(mode)
    before = case.logits(model)
    after = case.logits(vitlab.retrofit(model, part, input_size=case.size))
    return float(((after - before).norm() / before.norm()).detach())


def test_every_part_supports_identity_init() -> None:
    assert set(PARTS) == {name for name, module in plugins.parts().items() if module.startswith("vitlab.modules.")}


@pytest.mark.parametrize("name", PARTS)
def test_outputs_are_unchanged(name: str) -> None:
    case, settings, tolerance = PARTS[name]
    torch.manual_seed(0)
    assert change(case, f"{name}({settings}{',' if settings else ''} identity_init=True)") < tolerance
    torch.manual_seed(0)
    if name not in ("ScaledContextBroadcast", "UniformHead", "LocalAttention"):  # identities by themselves
        assert change(case, f"{name}({settings})") > 10 * tolerance


@pytest.mark.parametrize("name", [name for name in PARTS if name != "LocalAttention"])
def test_parameters_receive_gradients(name: str) -> None:
    """Every tensor has a gradient after two steps; a factor that is zero at first blocks the others for one."""
    case, settings, _ = PARTS[name]
    torch.manual_seed(0)
    model = case.model().requires_grad_(False).train()
    old = {id(parameter) for parameter in model.parameters()}
    vitlab.retrofit(model, f"{name}({settings}{',' if settings else ''} identity_init=True)", input_size=case.size)
    new = {key: parameter for key, parameter in model.named_parameters() if id(parameter) not in old}
    assert new
    optimizer = torch.optim.AdamW(new.values(), lr=1e-2)
    first: dict[str, Tensor] = {}
    for _ in range(2):
        optimizer.zero_grad()
        case.logits(model).square().sum().backward()
        gradients = {key: parameter.grad.clone() for key, parameter in new.items()}
        first = first or gradients
        optimizer.step()
    assert all(gradient.abs().max() > 1e-8 for gradient in gradients.values())
    for part in vitlab.parts(model):  # at least one tensor of every part learns from the first step on
        assert any(gradient.abs().max() > 1e-8 for key, gradient in first.items() if key.startswith(part.path + "."))


@pytest.mark.parametrize("kind", [TokenAwarePooling, MultiKernelPooling])
@pytest.mark.parametrize(("branches", "temperature"), [(2, 1.0), (4, 1.0), (4, 0.5), (5, 3.0), (16, 1.0)])
@pytest.mark.parametrize("mode", [False, True])
def test_the_first_branch_has_nearly_all_of_the_weight(
    kind: type[TokenAwarePooling], branches: int, temperature: float, mode: bool
) -> None:
    torch.manual_seed(0)
    part = kind(24, TokenLayout((14, 14)), branches=branches, temperature=temperature, identity_init=True).train(mode)
    weights = part.weigh(torch.randn(8, 196, 24))
    assert weights[..., 0].min() > 1 - 1e-3 and weights[..., 0].max() < 1 - 1e-5
    plain = kind(24, TokenLayout((14, 14)), branches=branches, temperature=temperature)
    assert plain.state_dict().keys() == part.state_dict().keys()


def test_the_gap_of_pooling_can_be_closed_by_training() -> None:
    """The predictor learns to choose the second branch within 500 steps of AdamW at a fine-tuning rate."""
    torch.manual_seed(0)
    part = TokenAwarePooling(4, TokenLayout((4, 4)), branches=2, identity_init=True)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    for _ in range(500):
        x = torch.randn(4, 16, 4)
        optimizer.zero_grad()
        part.weigh(x)[..., 0].mean().backward()
        optimizer.step()
    assert part.weigh(torch.randn(4, 16, 4))[..., 1].mean() > 0.5


@pytest.mark.parametrize(
    "make",
    [
        lambda **settings: ContextBroadcast(**settings),
        lambda **settings: ContextBroadcast(tokens=(2, 7), **settings),
        lambda **settings: GatedContextBroadcast(TokenLayout((3, 4), prefix=1), **settings),
        lambda **settings: AveragePooling(TokenLayout((3, 4), prefix=1), **settings),
    ],
    ids=["cb", "cb of some tokens", "gate", "average"],
)
def test_a_learned_weight_of_one_is_the_part_of_the_paper(make: object) -> None:
    x = torch.randn(2, 13, 8)
    plain, part = make(), make(identity_init=True)  # type: ignore[operator]
    torch.testing.assert_close(part(x), x)
    nn.init.ones_(part.weight)
    torch.testing.assert_close(part(x), plain(x))
    nn.init.constant_(part.weight, 0.25)
    torch.testing.assert_close(part(x), 0.75 * x + 0.25 * plain(x))
    assert list(plain.parameters()) == []


def test_a_convolution_starts_as_the_identity_exactly() -> None:
    part = ConvolutionPooling(5, TokenLayout((3, 4), prefix=1), kernel=5, identity_init=True)
    x = torch.randn(2, 13, 5)
    assert torch.equal(part(x), x)


def test_a_gate_starts_near_one() -> None:
    gated = SqueezeExcite(8, identity_init=True)(torch.ones(2, 5, 8))
    assert (gated - 0.999).abs().max() < 5e-4


@pytest.mark.parametrize("part", ["UniformHead(form='A'", "UniformHead(form='B'", "LocalAttention(kernel=3"])
def test_parts_without_an_identity_raise(part: str) -> None:
    model = CASES[0].model()
    with pytest.raises(VitlabError, match="no identity initialisation"):
        vitlab.retrofit(model, f"{part}, identity_init=True)")
    assert vitlab.parts(model) == ()


def test_another_scale_is_not_the_identity() -> None:
    with pytest.raises(VitlabError, match=r"init=0\.1 .* is not the identity"):
        vitlab.retrofit(CASES[0].model(), "ScaledContextBroadcast(init=0.1, identity_init=True)")


def test_the_learned_weight_is_saved_and_does_not_decay() -> None:
    from vitlab.core.recipe import Optimizer
    from vitlab.training.optimizer import make_optimizer

    model = vitlab.retrofit(CASES[0].model(), "ContextBroadcast(identity_init=True)")
    names = [name for name in model.state_dict() if "vitlab_" in name]
    assert names == [f"blocks.{block}.mlp.vitlab_context_broadcast.weight" for block in range(3)]
    optimizer = make_optimizer(model, Optimizer(weight_decay=0.3), torch.device("cpu"))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert {decay[id(model.get_parameter(name))] for name in names} == {0.0}
