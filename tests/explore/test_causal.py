"""The causal trace of the shown image against activations patched by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cases.exploring import model_input, one_model
from vitlab.core.errors import VitlabError
from vitlab.explore.causal import causal_layer
from vitlab.explore.conditions import Ablation, Condition
from vitlab.explore.shown_model import ShownModel

HIDDEN = Condition("0", hidden=tuple(range(8)))


@pytest.fixture(scope="module")
def shown() -> ShownModel:
    return one_model()


def corrupted(shown: ShownModel) -> Tensor:
    """The image whose upper half is the mean colour, as cells 0 to 7 of 4 × 4 are hidden."""
    x = model_input(shown)
    x[..., :16, :] = 0
    return x


@torch.no_grad()
def probability_with(shown: ShownModel, module: nn.Module, where: object) -> float:
    """Probability of the clean prediction on the corrupted image, with the clean output of a module at an index."""
    stored: list[Tensor] = []
    handle = module.register_forward_hook(lambda module, arguments, output: stored.append(output))
    chosen = int(shown.model(model_input(shown)).argmax())
    handle.remove()

    def patch(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        result = output.clone()
        result[where] = stored[0][where]
        return result

    handle = module.register_forward_hook(patch)
    result = shown.model(corrupted(shown))[0].softmax(-1)[chosen]
    handle.remove()
    return float(result)


@torch.no_grad()
def test_effects_equal_those_of_hooks_by_hand(shown: ShownModel) -> None:
    found = causal_layer(shown, HIDDEN, 1)
    clean = shown.model(model_input(shown))[0].softmax(-1)
    chosen = int(clean.argmax())
    base = float(shown.model(corrupted(shown))[0].softmax(-1)[chosen])
    assert found["class"] == shown.classes[chosen]
    assert abs(found["clean"] - clean.max()) < 1e-5 and abs(found["corrupted"] - base) < 1e-5
    block = shown.model.blocks[1]
    every = slice(None)
    expected = {
        "attention": probability_with(shown, block.attn, every),
        "mlp": probability_with(shown, block.mlp, every),
        "prefix": probability_with(shown, block, (every, 0)),
        "token": probability_with(shown, block, (every, 1 + 4 * 2 + 3)),
    }
    # 7 cells per side of a 4 × 4 grid: one cell per token
    assert len(found["tokens"]) == 4 and len(found["heads"]) == 3
    effects = {**found, "prefix": found["prefix"][0], "token": found["tokens"][2][3]}
    for name, value in expected.items():
        assert abs(effects[name] - (value - base)) < 1e-5, name
    assert abs(clean.max() - base) > 1e-3  # otherwise nothing was tested


def test_an_ablated_branch_restores_nothing(shown: ShownModel) -> None:
    condition = Condition("0", hidden=HIDDEN.hidden, ablations=(Ablation(1, "mlp"), Ablation(1, "head", 0)))
    found = causal_layer(shown, condition, 1)
    assert found["ablations"] == 2 and causal_layer(shown, HIDDEN, 1)["ablations"] == 0
    assert found["mlp"] == 0 and found["heads"][0] == 0 and found["heads"][1] != 0


def test_mistakes(shown: ShownModel) -> None:
    with pytest.raises(VitlabError, match="choose a severity or hide patches first"):
        causal_layer(shown, Condition("0"), 0)
    with pytest.raises(VitlabError, match="invalid layer=3; expected 0 to 2"):
        causal_layer(shown, HIDDEN, 3)
