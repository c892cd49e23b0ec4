"""The lens reads every family: its last row is the model's own answer, the others those of its norm and head."""

from __future__ import annotations

import pytest
import torch

import vitlab
from cases import CASES as VITS
from cases import Case, run
from cases.attention import state
from cases.everything import CASES
from vitlab.instruments.shared.logit_lens import lens

CLASSIFIERS = [case for case in CASES if not case.text and case.family != "hf_clip"]
NOT_READABLE = {"tnt", "crossvit", "coat"}  # two streams, or a last block that is not the last thing to mix tokens


@torch.no_grad()
@pytest.mark.parametrize("case", CLASSIFIERS, ids=lambda case: case.family)
def test_the_last_row_is_the_models_own_answer(case: Case) -> None:
    model, images = case.model(), case.inputs(batch=2)
    plain, anatomy = run(model, images), vitlab.describe(model, case.size)
    with lens(model, anatomy) as read:
        for _ in range(2):  # the second time the way is known
            reading = read(images[""])
            torch.testing.assert_close(reading.logits, plain, atol=1e-5, rtol=1e-4)
    names = {block.name for block in anatomy.blocks}
    assert set(reading.blocks) | set(reading.why_not) == names and not set(reading.blocks) & set(reading.why_not)
    assert bool(reading.blocks) == (case.family not in NOT_READABLE)
    if reading.blocks:
        torch.testing.assert_close(list(reading.blocks.values())[-1], plain, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("case", VITS, ids=lambda case: case.family)
def test_every_row_is_norm_and_head_of_that_block(case: Case) -> None:
    model, images = case.model(), case.inputs(batch=2)[""]
    with lens(model, vitlab.describe(model)) as read:
        found = read(images).blocks
    outputs = model.forward_intermediates(images, intermediates_only=True, return_prefix_tokens=True, output_fmt="NLC")
    for index, (patches, prefix) in enumerate(outputs):
        expected = model.forward_head(model.norm(torch.cat([prefix, patches], 1)))
        torch.testing.assert_close(found[f"blocks.{index}"], expected, atol=1e-5, rtol=1e-4)
    assert (found["blocks.0"] - found["blocks.2"]).abs().max() > 1e-3


@torch.no_grad()
def test_a_stream_that_remembers_the_batch_is_read_block_by_block() -> None:
    case = next(case for case in CLASSIFIERS if case.family == "fan_vit")
    model, images = case.model(), case.inputs(batch=2)[""]
    with lens(model, vitlab.describe(model, case.size)) as read:
        found = read(images).blocks["blocks.0"]
    model.blocks = model.blocks[:1]
    torch.testing.assert_close(found, model(images), atol=1e-5, rtol=1e-4)


def test_leaves_no_trace() -> None:
    case = VITS[0]
    model = case.model()
    before = state(model)
    with torch.no_grad(), lens(model, vitlab.describe(model)) as read:
        read(case.inputs()[""])
    assert state(model) == before


def test_what_is_no_classifier_is_refused() -> None:
    case = next(case for case in CASES if case.family == "hf_clip")
    model = case.model()
    with (
        torch.no_grad(),
        lens(model, vitlab.describe(model)) as read,
        pytest.raises(vitlab.VitlabError, match="classifier"),
    ):
        read(case.inputs()["" if "" in case.inputs() else "pixel_values"])
