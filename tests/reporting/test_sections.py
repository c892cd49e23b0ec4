"""Sections: repeats are combined, different settings are separate, names are short and unique."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitlab.core.measurement import Measurement
from vitlab.reporting.sections import LONGEST, data_set, label_models, shorten, sort


def found(kind: str, subject: str, value: float, data: str = "", **settings: Any) -> Measurement:
    return Measurement(kind, subject, {"x": np.array(value)}, {"x": ()}, {}, settings, {"data": data})


def test_repeats_are_averaged_and_the_baseline_comes_first() -> None:
    given = [found("k", "a", 1.0, seed=0), found("j", "b", 5.0), found("k", "b", 2.0), found("k", "a", 3.0, seed=1)]
    first, second = sort(given, label_models(given))
    assert (first.kind, list(first.repeats), second.has_baseline) == ("k", ["a", "b"], False)
    assert [float(each.values["x"]) for each in first.averaged()] == [2.0, 2.0]
    assert first.title == "k"


def test_error_bars_of_few_repeats_are_students() -> None:
    given = [found("k", "a", value) for value in (1.0, 2.0, 6.0)]
    (section,) = sort(given, label_models(given))
    (mean,) = section.averaged()
    low, high = stats.t.interval(0.95, 2, 3.0, stats.sem([1.0, 2.0, 6.0]))
    assert 2 * 1.96 * float(mean.values["x_error"]) == pytest.approx(high - low)


def test_different_settings_or_data_are_different_sections() -> None:
    given = [found("attack", who, 1.0, norm=norm, steps=5) for who in "ab" for norm in ("l2", "linf")]
    assert [each.title for each in sort(given, label_models(given))] == ["attack (norm=l2)", "attack (norm=linf)"]
    given = [found("k", "a", 1.0, f"{name} test[:8] 12ab") for name in ("scenes", "imagenet(full=False)")]
    titles = [each.title for each in sort(given, label_models(given))]
    assert titles == ["k (data=scenes)", "k (data=imagenet(full=False))"]


def test_more_images_of_a_set_are_another_section() -> None:
    data = ("scenes test[8 of 32, evenly spaced] ab", "scenes test[all 32] cd")
    given = [found("k", who, 1.0, each) for who in "ab" for each in data]
    titles = [each.title for each in sort(given, label_models(given))]
    assert titles == ["k (images chosen=8 of 32)", "k (images chosen=all 32)"]
    apart = [found("k", "a", 1.0, data[0]), found("k", "b", 1.0, data[1])]
    assert [each.title for each in sort(apart, label_models(apart))] == ["k"]


def test_sections_differ_in_what_differs_within_a_model() -> None:
    given = [found("k", who, 1.0, norm=norm, decay=decay) for who, decay in (("a", 1), ("b", 2)) for norm in ("l", "m")]
    found_sections = sort(given, label_models(given))
    assert [(each.title, list(each.repeats)) for each in found_sections] == [
        ("k (norm=l)", ["a", "b"]),
        ("k (norm=m)", ["a", "b"]),
    ]


def test_models_with_different_own_settings_share_a_section() -> None:
    given = [found("hessian", "a", 1.0, weight_decay=0.1), found("hessian", "b", 2.0, weight_decay=0.2)]
    (section,) = sort(given, label_models(given))
    assert list(section.repeats) == ["a", "b"] and section.title == "hessian"


def test_parts_of_one_data_set_are_repeats() -> None:
    given = [found("k", "a", float(i), f"scenes test[{i}:{i + 8}] hash{i}") for i in range(3)]
    (section,) = sort(given, label_models(given))
    assert len(section.repeats["a"]) == 3 and data_set(given[0]) == "scenes"


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(alphabet="ab()|/ ", max_size=60), unique=True, min_size=1))
def test_labels_are_unique_and_short(subjects: list[str]) -> None:
    labels = label_models([found("k", subject, 0.0) for subject in subjects])
    assert list(labels) == subjects and len(set(labels.values())) == len(subjects)
    assert all(len(label) <= LONGEST + len(" (99)") for label in labels.values())


@pytest.mark.parametrize("text", ["plain ViT", "timm/vit(depth=2)", "x" * LONGEST])
def test_short_names_are_unchanged(text: str) -> None:
    assert shorten(text) == text


def test_a_long_name_keeps_its_parts() -> None:
    given = "timm/deit_tiny_patch16_224(weights='deit.safetensors') | {}"
    parts = ("TokenAwarePooling(branches=4)", "ContextBroadcast", "ContextBroadcast | TokenAwarePooling", "A" * 60)
    short = [shorten(given.format(part)) for part in parts]
    assert short[0].startswith("deit_tiny_p") and short[0].endswith("… | TokenAwarePooling")
    assert short[1].endswith("… | ContextBroadcast") and short[2] == "deit_ti… | ContextBro… | TokenAware…"
    assert all(len(each) <= LONGEST for each in short)


def test_names_in_titles_are_quoted_as_given() -> None:
    kinds = {"representation_cka": "representation CKA", "hessian_spectrum": "Hessian spectrum", "my_own": "my own"}
    for kind, title in kinds.items():
        given = [found(kind, "a", 1.0)]
        assert [section.title for section in sort(given, label_models(given))] == [title]
    assert "Fourier" in sort([found("feature_fourier", "a", 1.0)], {"a": "a"})[0].title
