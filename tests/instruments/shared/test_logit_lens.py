"""Logit lens in every family: the last row equals the model's logits, the others apply norm and head to a block."""

from __future__ import annotations

import pytest
import torch

import vitlab
from cases import CASES as VITS
from cases import Case, run
from cases.attention import state
from cases.everything import CASES
from vitlab.instruments.shared.logit_lens import logit_lens

CLASSIFIERS = [case for case in CASES if case.takes_images and case.classifier]
OTHERS = [case for case in CASES if case not in CLASSIFIERS]
NOT_READABLE = {"tnt", "crossvit", "coat"}  # two streams, or a last block that is not the last module that mixes tokens


@torch.no_grad()
@pytest.mark.parametrize("case", CLASSIFIERS, ids=lambda case: case.family)
def test_the_last_row_is_the_models_logits(case: Case) -> None:
    model, images = case.model(), case.inputs(batch=2)
    plain, anatomy = run(model, images), vitlab.describe(model, case.size)
    with logit_lens(model, anatomy) as lens:
        for _ in range(2):  # the second call starts with the strategy that worked
            output = lens(images[""])
            torch.testing.assert_close(output.logits, plain, atol=1e-5, rtol=1e-4)
    names = {block.name for block in anatomy.blocks}
    assert set(output.blocks) | set(output.why_not) == names and not set(output.blocks) & set(output.why_not)
    assert bool(output.blocks) == (case.family not in NOT_READABLE)
    if output.blocks:
        torch.testing.assert_close(list(output.blocks.values())[-1], plain, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("case", VITS, ids=lambda case: case.family)
def test_every_row_is_norm_and_head_of_that_block(case: Case) -> None:
    model, images = case.model(), case.inputs(batch=2)[""]
    with logit_lens(model, vitlab.describe(model)) as lens:
        found = lens(images).blocks
    outputs = model.forward_intermediates(images, intermediates_only=True, return_prefix_tokens=True, output_fmt="NLC")
    for index, (patches, prefix) in enumerate(outputs):
        expected = model.forward_head(model.norm(torch.cat([prefix, patches], 1)))
        torch.testing.assert_close(found[f"blocks.{index}"], expected, atol=1e-5, rtol=1e-4)
    assert (found["blocks.0"] - found["blocks.2"]).abs().max() > 1e-3


@torch.no_grad()
def test_a_model_that_stores_the_batch_size() -> None:
    case = next(case for case in CLASSIFIERS if case.family == "fan_vit")
    model, images = case.model(), case.inputs(batch=2)[""]
    with logit_lens(model, vitlab.describe(model, case.size)) as lens:
        found = lens(images).blocks["blocks.0"]
    model.blocks = model.blocks[:1]
    torch.testing.assert_close(found, model(images), atol=1e-5, rtol=1e-4)


def test_the_model_is_restored() -> None:
    case = VITS[0]
    model = case.model()
    before = state(model)
    with torch.no_grad(), logit_lens(model, vitlab.describe(model)) as lens:
        lens(case.inputs()[""])
    assert state(model) == before


@torch.no_grad()
@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.family)
def test_a_model_without_logits_or_with_other_inputs_is_an_error(case: Case) -> None:
    model = case.model()
    before = state(model)
    message = "logit lens needs a classifier" if case.takes_images else "logit lens needs a model that takes images"
    with (
        pytest.raises(vitlab.VitlabError, match=message) as caught,
        logit_lens(model, vitlab.describe(model, case.size)) as lens,
    ):
        lens(case.inputs()["" if case.takes_images else "pixel_values"])
    assert "\n" not in str(caught.value) and state(model) == before
