"""The summary: correct sentences about constructed data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from vitlab.core.measurement import Measurement
from vitlab.core.old_files import errors_by_name
from vitlab.reporting.comparison import compare
from vitlab.reporting.differences import Difference, Number
from vitlab.reporting.sections import label_models, sort
from vitlab.reporting.summary import Summary, sentence, strongest, summarise


def found(kind: str, subject: str, value: float, error: float | None = None, **about: Any) -> Measurement:
    values = {"x": np.array(value)} | ({} if error is None else {"x_error": np.array(error)})
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(values, ())
    return Measurement(kind, subject, values, dims, {}, {}, about, errors_by_name(dims))


def summary(*measurements: Measurement) -> Summary:
    labels = label_models(measurements)
    sections = sort(measurements, labels)
    return summarise(list(labels.values()), sections, [each for section in sections for each in compare(section)])


def test_the_summary_states_models_data_images_device_and_date() -> None:
    about = {"device": "cuda", "time": "2026-11-05T10:00:00+00:00", "data": "scenes test[:64] ab12"}
    counts = {"a": 64, "b": 64, "c": 128}
    made = summary(*(found("k", who, 1.0, images=count, **about) for who, count in counts.items()))
    assert made.facts == [
        "3 models and 1 kind of measurement. Baseline: a. Other models: b and c.",
        "Measured on scenes, with 64 to 128 images each, on cuda, on 5 November 2026.",
    ]


def test_the_most_significant_difference_comes_first() -> None:
    made = summary(
        *(found("large", who, value, 50.0) for who, value in (("a", 0.0), ("b", 100.0))),
        *(found("sure", who, value, 0.001) for who, value in (("a", 1.0), ("b", 0.9))),
    )
    assert made.heading == "Largest differences relative to their noise" and made.findings[0].startswith(
        "Sure, x: 0.9000 ± 0.0020 for b, 1.0000 ± 0.0020 for the baseline"
    )
    assert "−0.1000 ± 0.0028, larger than the noise" in made.findings[0]
    assert made.findings[1].endswith("within the noise.")
    assert "Numbers compared with known noise: 2, of which 1 differ by more" in made.caution[1]


def test_unclear_and_unknown_differences_are_stated() -> None:
    within = summary(found("k", "a", 1.0, 1.0), found("k", "b", 1.5, 1.0))
    assert within.heading.startswith("No difference is larger than its noise")
    unknown = summary(found("k", "a", 1.0), found("k", "b", 1.5))
    assert unknown.heading == "Largest differences, noise not known"
    assert unknown.findings == ["K, x: 1.5 for b, 1 for the baseline, +0.5; noise not known."]
    assert unknown.caution[1] == "Numbers compared: 1. Their noise is not known."


def test_a_single_run_per_model_is_stated() -> None:
    once = summary(found("k", "a", 1.0, 0.1), found("k", "b", 2.0, 0.1))
    seeds_vary = once.caution[0]
    assert seeds_vary.startswith("One training run each: intervals do not cover the variation between training seeds.")
    parts = summary(*(found("k", who, value, data=f"scenes test[{value}] x") for who in "ab" for value in (1.0, 2.0)))
    assert any(each.startswith("Two repeats (parts of the images) give no interval") for each in parts.caution)
    three = (found("k", who, value, data=f"scenes test[{value}] x") for who in "ab" for value in (1.0, 2.0, 3.0))
    assert any("over up to 3 repeats (parts of the images" in each for each in summary(*three).caution)
    seeds = summary(*(found("k", who, value, data="scenes") for who in "ab" for value in (1.0, 2.0)))
    assert any(each.startswith("Two repeats (runs or seeds) give no interval") for each in seeds.caution)
    assert seeds_vary in parts.caution and seeds_vary not in seeds.caution
    assert (
        summary(found("k", "a", 1.0)).caution[0]
        == "One training run: the variation between training seeds is not known."
    )


def test_different_images_give_a_warning() -> None:
    made = summary(found("k", "a", 1.0, data="scenes test[:8] x"), found("k", "b", 1.0, data="cifar test[:8] y"))
    assert any("Not all models were measured on the same images" in each for each in made.caution)
    alike = summary(found("k", "a", 1.0, data="scenes test[:8] x"), found("k", "b", 1.0, data="scenes test[:8] x"))
    assert not any("Not all models" in each for each in alike.caution)


def test_key_numbers_of_one_model_with_errors_come_first() -> None:
    made = summary(found("loose", "a", 1.0), found("sure", "a", 2.0, 0.1))
    assert made.heading == "Key numbers"
    assert made.findings == ["Sure, x: 2.00 ± 0.20.", "Loose, x: 1."]


def test_models_without_common_measurements_are_reported() -> None:
    made = summary(found("k", "a", 1.0), found("j", "b", 1.0))
    assert not made.findings and made.caution[1].startswith("Nothing is compared")
    assert made.heading == "Key numbers"


def test_an_accuracy_of_one_of_several_models_names_the_model() -> None:
    made = summary(*measured("calibration", "accuracy", a=0.5), *measured("occlusion", "x", b=0.7))
    assert made.findings == ["Accuracy of a: 50.0 ± 2.0 %."] and made.heading == "Key numbers"


def test_a_digest_is_shown_only_without_a_name_of_the_data() -> None:
    digest = "f7201085e8a5b9fd, augmented"
    named = summary(found("k", "a", 1.0, data="scenes test[:8] x"), found("j", "a", 1.0, data=digest))
    assert named.facts[1] == "Measured on scenes."
    assert summary(found("j", "a", 1.0, data=digest)).facts[1] == f"Measured on {digest}."


def test_one_finding_for_each_kind_and_model() -> None:
    sizes = {"x": 5, "y": 9, "z": 7}
    made = [Difference("k", name, "b", Number(0, 1), Number(size, 1)) for name, size in sizes.items()]
    assert [each.name for each in strongest(made)] == ["y"]
    unknown = Difference("j", "w", "b", Number(1.0), Number(1000.0))
    assert [each.name for each in strongest([unknown, *made])] == ["y", "w"]
    assert math.isnan(unknown.strength) and sentence(unknown).endswith("noise not known.")


def measured(kind: str, name: str, **models: float) -> list[Measurement]:
    error = f"{name}_error"
    return [
        Measurement(kind, m, {name: np.array(x), error: np.array(0.01)}, {name: (), error: ()}, errors={name: error})
        for m, x in models.items()
    ]


def test_accuracy_comes_first_however_small_its_difference() -> None:
    tenths = "50.0 % for a, 51.0 % for b (1.0 points higher"
    for kind, name, scale, expected in (
        ("calibration", "accuracy", 1, tenths),
        ("training", "top1", 100, "50.000 % for a, 51.000 % for b (1.000 points higher"),  # its error is 0.01 points
        ("occlusion", "clean_accuracy", 1, tenths),
    ):
        far = measured("attention_diversity", "self_mass", a=0.1, b=0.9)
        made = summary(*far, *measured(kind, name, a=0.5 * scale, b=0.51 * scale))
        assert "ccuracy" in made.findings[0] and expected in made.findings[0]
        assert made.findings[1].startswith("Attention diversity, share of attention on the token itself, deep half")
        assert "layers: 90.0 ± 2.0 % for b, 10.0 ± 2.0 % for the baseline, +80.0 ± 2.8 points" in made.findings[1]
        assert len(made.findings) == 2
    alone = summary(*far[:1], *measured("calibration", "accuracy", a=0.5))
    assert alone.findings[0].startswith("Accuracy: 50.0 ± 2.0 %")


def test_calibration_outranks_training_and_the_heading_counts_accuracy() -> None:
    made = summary(*measured("training", "top1", a=1.0, b=2.0), *measured("calibration", "accuracy", a=0.5, b=0.9))
    assert made.findings == ["Accuracy: 50.0 % for a, 90.0 % for b (40.0 points higher)."]
    assert made.heading == "Largest differences relative to their noise"


def test_accuracy_is_not_called_a_largest_difference() -> None:
    other = [found("k", who, value, 0.001) for who, value in (("a", 1.0), ("b", 2.0))]
    made = summary(*measured("calibration", "accuracy", a=0.5, b=0.9), *other)
    assert made.heading == "Accuracy, and largest differences relative to their noise" and len(made.findings) == 2


def test_drops_of_accuracy_are_in_points() -> None:
    (text,) = summary(*measured("occlusion", "drop", a=0.3, b=0.1)).findings
    assert text.startswith("Occlusion, mean drop of accuracy: 10.0 ± 2.0 points for b, 30.0 ± 2.0 points for the")


def test_the_number_of_pairs_is_that_of_differences_with_known_noise() -> None:
    known = [Difference("k", "x", "b", Number(0.0, 1.0), Number(5.0, 1.0), paired=1.0, pairs=9)]
    known += [Difference("k", "y", "b", Number(0.0, 1.0), Number(5.0, 1.0))]
    unknown = [Difference("k", "z", "b", Number(0.0), Number(5.0))]
    sections = sort([found("k", "a", 1.0), found("k", "b", 1.0)], {"a": "a", "b": "b"})
    text = " ".join(summarise(["a", "b"], sections, [*known, *unknown]).caution)
    assert "1 of the 2 are paired differences on the same images" in text
    assert text.index("are paired") < text.index("with unknown noise: 1.")


def test_many_models_fit_on_one_screen() -> None:
    models = {f"model {i:02d}": 0.3 + 0.02 * i for i in range(12)}
    kinds = [f"kind_{i}" for i in range(9)]
    made = summary(
        *(each for kind in kinds for each in measured(kind, "x", **models)),
        *measured("calibration", "accuracy", **models),
    )
    assert len(made.findings) == 6 and "baseline, best and worst of 12 models" in made.findings[0]
    assert "model 11" in made.findings[0] and "model 05" not in made.findings[0]
    assert len({each.split(",")[0] for each in made.findings[1:]}) == 5  # each of another kind
    assert sum(map(len, (*made.facts, *made.findings, *made.caution))) < 2200
