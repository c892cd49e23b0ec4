"""Claims: short, and true whichever way the numbers go."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.measurement import Measurement
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.headline import LONGEST, Headline, Phrase, Samples, describe_number, state
from vitlab.reporting.readings import reading
from vitlab.reporting.rows import Row

PHRASE = Phrase("Attention is", ("more focused", "more even"))


def gap(label: str, value: float, error: float = 0.1) -> Difference:
    return Difference("", "", label, Number(0.0, error), Number(value, error))


def row(*gaps: Difference) -> Row:
    return Row("Entropy", {}, {each.label: each for each in gaps})


def test_clear_unclear_and_unknown_models_are_distinguished() -> None:
    assert state(row(gap("TAP", 1.0), gap("CB", 0.01)), PHRASE) == (
        "Attention is more even with TAP; CB does not differ measurably"
    )
    both = state(row(gap("A", 1.0), gap("B", -1.0)), PHRASE)
    assert both == "Attention is more even with A, more focused with B"
    assert state(row(gap("A", 0.01), gap("B", 0.02)), PHRASE) == "No measurable difference in entropy"
    assert state(row(gap("A", 1.0, math.nan), gap("B", -1.0, math.nan)), PHRASE) == "Entropy: noise not known"
    mixed = state(row(gap("A", 1.0), gap("B", 1.0, math.nan)), PHRASE)
    assert mixed == "Attention is more even with A; noise of B not known"
    assert state(row(gap("A", 0.01), gap("B", 1.0, math.nan)), PHRASE) == "No measurable difference in entropy"


def test_names_have_priority_over_remarks() -> None:
    third = gap("a model with a name of 30 chars", 1.0, math.nan)
    alike = Phrase("Shallow and deep layers are", ("less alike", "more alike"))
    claim = state(row(gap("ViT + CB", 1.0), gap("ViT + TAP + ADL", 1.0), third), alike)
    assert claim == "Shallow and deep layers are more alike with ViT + CB and ViT + TAP + ADL"


def test_a_long_name_of_unknown_noise_is_shortened() -> None:
    title = state(Row("word " * 30, {}, {"A": gap("A", 1.0, math.nan)}), PHRASE)
    assert len(title) <= LONGEST and title.endswith("word…: noise not known")


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(st.text("ab ", min_size=1, max_size=40), st.floats(-3, 3)), min_size=1, max_size=12))
def test_claims_are_short_and_only_name_clear_directions(models: list[tuple[str, float]]) -> None:
    gaps = [gap(f"{name}{i}", value) for i, (name, value) in enumerate(models)]
    claim = state(row(*gaps), PHRASE)
    assert len(claim) <= LONGEST
    half = 1.96 * math.hypot(0.1, 0.1)
    assert ("more even" in claim) <= any(value > half for _, value in models)
    assert ("more focused" in claim) <= any(value < -half for _, value in models)
    if not any(abs(value) > half for _, value in models):
        assert claim.startswith("No measurable difference")


def measured(subject: str, share: float, images: int) -> Measurement:
    values = {"accuracy": np.array(share)}
    return Measurement("occlusion", subject, values, {"accuracy": ()}, provenance={"images": images})


@pytest.mark.parametrize(("images", "counts"), [(40, {"a": "10 of 40 images", "b": "20 of 40 images"}), (4000, {})])
def test_few_samples_are_counted(images: int, counts: dict[str, str]) -> None:
    both = [measured("a", 0.25, images), measured("b", 0.5, images)]
    found = describe_number("Accuracy", both, reading("accuracy", 100), "%", samples=Samples())
    assert found.row is not None and found.row.counts == counts
    assert found.sentence.startswith("Accuracy: 25.0 % for a, 50.0 % for b (25.0 points higher)")


def test_a_share_averaged_over_conditions_is_not_a_count() -> None:
    found = describe_number("Accuracy", [measured("a", 0.26, 40)], reading("accuracy", 100), "%", samples=Samples())
    assert found.row is not None and not found.row.counts  # 10.4 of 40


def test_a_single_model_is_reported_with_its_value() -> None:
    found = describe_number("Accuracy", [measured("a", 0.25, 9)], reading("accuracy", 100), "%")
    assert found.title == "Accuracy: 25 %"


def test_a_sentence_without_a_claim_is_cut_at_its_colon() -> None:
    assert Headline("The worst class: cat (3 %)").title == "The worst class"
    assert len(Headline("word " * 60).title) <= LONGEST
