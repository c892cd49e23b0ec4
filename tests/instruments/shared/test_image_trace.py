"""Rows of an image trace equal those of the whole map for every token layout; entropies equal those of the map."""

from __future__ import annotations

import math

import pytest
import torch

import vitlab
from cases import Case
from cases.attention import dense, sharp, state
from cases.everything import CASES
from vitlab.core.anatomy import TokenLayout
from vitlab.instruments.shared.image_trace import image_tracer, token_at

CLASSIFIERS = [case for case in CASES if case.takes_images and case.classifier]


@torch.no_grad()
@pytest.mark.parametrize("case", CLASSIFIERS, ids=lambda case: case.family)
def test_rows_are_those_of_the_whole_map(case: Case) -> None:
    model, image = sharp(case).double(), case.inputs(batch=1)[""].double()  # the logit lens changes the batch size
    with vitlab.record(model, "attention", input_size=case.size) as tape:
        model(image)
    with image_tracer(model, case.size) as trace_image:
        found = trace_image(image)
    assert [layer.name for layer in found.layers] == [block.name for block in tape.anatomy.blocks]
    for layer, block in zip(found.layers, tape.anatomy.blocks, strict=True):
        assert (layer.call is None) == bool(layer.why_no_map)
        assert (layer.logits is None) == bool(layer.why_no_logits)
        if layer.call is None:
            continue
        weights = tape[block.name].double()
        whole = dense(weights, block.mixer.queries, block.mixer.keys)[0]
        assert layer.heads == len(whole)
        for token in range(0, whole.shape[1], 5):
            torch.testing.assert_close(layer.row(token).double(), whole[:, token], atol=1e-5, rtol=1e-4)
        entropy = -torch.xlogy(weights, weights).sum(-1).mean((0, 2))
        torch.testing.assert_close(layer.entropy().double(), entropy, atol=1e-4, rtol=1e-4)
        assert layer.bound == pytest.approx(math.log(weights.shape[-1]))


def test_the_token_under_a_place() -> None:
    layout = TokenLayout((2, 3), prefix=2)
    places = [((i + 0.5) / 2, (j + 0.5) / 3) for i in range(2) for j in range(3)]
    assert [token_at(layout, y, x) for y, x in places] == [2, 3, 4, 5, 6, 7]
    assert token_at(layout, 1.0, 1.0) == 7  # the far edge belongs to the last cell
    assert token_at(TokenLayout((0, 0), prefix=1), 0.5, 0.5) is None


@torch.no_grad()
def test_a_trace_does_not_change_when_others_follow() -> None:
    case = CLASSIFIERS[0]
    model = sharp(case)
    first, second = case.inputs(1, 1)[""], case.inputs(2, 1)[""]
    with image_tracer(model, case.size) as trace_image:
        one = trace_image(first)
        before = one.layers[0].row(3).clone()
        other = trace_image(second).layers[0].row(3)
    assert torch.equal(one.layers[0].row(3), before) and (other - before).abs().max() > 1e-3


def test_the_model_is_restored_and_missing_tokens_are_errors() -> None:
    case = CLASSIFIERS[0]
    model = sharp(case).train()
    before = state(model)
    with image_tracer(model, case.size) as trace_image:
        found = trace_image(case.inputs(1, 1)[""])
        with pytest.raises(vitlab.VitlabError, match="no query token 17; there are 17"):
            found.layers[0].row(17)
    assert state(model) == before
