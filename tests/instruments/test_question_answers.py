"""Answers to questions: accuracy and examples against a loop, from Python and from the command line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import vitlab
from vitlab import runner, zoo
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.pooling import pool
from vitlab.data.scene_questions import ANSWERS
from vitlab.inputs.questions import question_parts
from vitlab.reporting.key_numbers import key_numbers

SMALL = "hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=8"
EXPRESSION = f"vitlab/vilt({SMALL}, image_size=16, patch_size=8, vocab_size=40, num_labels=29, initializer_range=0.5)"
DATA = "scene_questions(train=2, test=9, questions=4)"


def asked(model, **settings):
    return question_parts(model, DATA, **settings)


def test_accuracy_by_kind_and_examples_against_a_loop():
    model = zoo.load(EXPRESSION, seed=0).eval()
    (batches,) = asked(model, images=36, same_length=False)
    found = vitlab.measure("question_answers", model, batches, examples=6)
    right, counts = {}, {}
    for batch in batches:
        with torch.no_grad():
            predicted = model(**batch.inputs).logits.argmax(1)
        for i, kind in enumerate(batch.kinds):
            counts[kind] = counts.get(kind, 0) + 1
            right[kind] = right.get(kind, 0) + int(predicted[i] == batch.targets[i])
    assert counts.keys() <= set(found.axes["kind"])
    for place, kind in enumerate(found.axes["kind"]):
        assert found.values["questions"][place] == counts.get(kind, 0)
        expected = right[kind] / counts[kind] if kind in counts else np.nan
        assert found.values["accuracy"][place] == pytest.approx(expected, nan_ok=True)
    assert found.values["image"].shape == (6, 16, 16, 3) and found.values["image"].dtype == np.uint8
    assert set(found.values["prediction"]) <= set(ANSWERS)
    same = found.values["prediction"] == found.values["answer"]
    assert np.array_equal(same, found.values["correct"] == 1.0)


def test_the_prior_is_the_most_frequent_answer_of_each_kind():
    model = zoo.load(EXPRESSION, seed=0)
    (batches,) = asked(model, images=36, same_length=False)
    found = vitlab.measure("question_answers", model, batches).values
    given = [
        (kind, answer) for batch in batches for kind, answer in zip(batch.kinds, batch.targets.tolist(), strict=True)
    ]
    most = {}
    for kind in {kind for kind, _ in given}:
        answers = [answer for other, answer in given if other == kind]
        most[kind] = max(answers.count(answer) for answer in answers)
        place = batches.items.kinds.index(kind)
        assert found["prior"][place] == pytest.approx(most[kind] / len(answers))
    assert found["overall_prior"] == pytest.approx(sum(most.values()) / 36)
    assert found["overall_accuracy"] == pytest.approx(found["score"].mean())
    assert found["overall_accuracy_error"] == pytest.approx(found["score"].std(ddof=1) / 6)


def test_parts_are_pooled_into_the_numbers_of_all_questions():
    """An error of a kind is that of its scores, by hand."""
    model = zoo.load(EXPRESSION, seed=0)
    (whole,) = asked(model, images=36, same_length=False)
    whole = vitlab.measure("question_answers", model, whole)
    parts = [
        replace(vitlab.measure("question_answers", model, part), provenance={"images": 12, "part": number})
        for number, part in enumerate(asked(model, images=36, repeats=3, same_length=False))
    ]
    pooled = pool(parts)
    for name in ("overall_accuracy", "overall_prior", "accuracy", "prior", "questions", "accuracy_error"):
        np.testing.assert_allclose(pooled.values[name], whole.values[name], atol=1e-12)
    kind = int(whole.values["questions"].argmax())
    scores = whole.values["score"][whole.values["kind_index"] == kind]
    assert whole.values["accuracy_error"][kind] == pytest.approx(scores.std(ddof=1) / len(scores) ** 0.5)


def test_accuracies_are_key_numbers_and_the_report_has_the_prior(tmp_path: Path):
    data = DATA.replace("questions=4", "questions=4, kinds=['colour', 'count', 'shape']")
    (path,) = runner.measure([EXPRESSION], ["question_answers"], tmp_path, data=data, images=14, show=False)
    found = Measurement.load(path)
    rows = {row.name: next(iter(row.values.values())) for row in key_numbers([found])}
    expected = 100 * found.values["overall_accuracy"]
    assert float(rows["accuracy of answers, all questions, %"].split(" ")[0]) == pytest.approx(expected, abs=0.5)
    prior = rows["accuracy of the most frequent answer of each kind (prior), %"]
    assert float(prior) == pytest.approx(100 * found.values["overall_prior"], abs=0.1)
    for place, kind in enumerate(found.axes["kind"]):
        if found.values["questions"][place]:
            value = float(rows[f"accuracy of answers, {kind}, %"].split(" ")[0])
            assert value == pytest.approx(100 * found.values["accuracy"][place], abs=0.6)
    page = vitlab.report([found], tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"(prior {100 * found.values['overall_prior']:.1f} %)" in page and "not asked" not in page


def test_pixels_are_those_of_the_scene():
    model = zoo.load(EXPRESSION, seed=0)
    (batches,) = asked(model, images=36, same_length=False)
    found = vitlab.measure("question_answers", model, batches, examples=36)
    pictures = batches.items.feed.questions.pictures.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(found.values["image"], pictures[batches.items.feed.questions.image_of])


def test_questions_of_one_length_have_no_padding_and_parts_are_disjoint():
    model = zoo.load(EXPRESSION, seed=0)
    parts = asked(model, images=8, repeats=2, batch_size=3)
    texts = [[text for batch in part for text in batch.texts] for part in parts]
    assert [len(each) for each in texts] == [4, 4]
    masks = [batch.inputs["attention_mask"] for part in parts for batch in part]
    assert all((mask == 1).all() for mask in masks) and len({mask.shape[1] for mask in masks}) == 1


def test_attention_entropy_is_that_of_hugging_faces_maps():
    model = zoo.load(EXPRESSION, seed=0).eval()
    (batches,) = asked(model, images=6, batch_size=6)
    found = vitlab.measure("attention_entropy", model, batches)
    (batch,) = batches
    with torch.no_grad():
        maps = model(**batch.inputs, output_attentions=True).attentions
    entropy = [-(layer * layer.clamp(min=1e-30).log()).sum(-1).mean((0, 2)) for layer in maps]
    np.testing.assert_allclose(found.values["mean"], torch.stack(entropy).numpy(), rtol=1e-4)
    assert found.values["bound"][0] == pytest.approx(np.log(maps[0].shape[-1]))


def test_the_runner_measures_with_questions(tmp_path: Path):
    names = ["attention_entropy", "token_overfocus", "question_answers"]
    paths = list(runner.measure([EXPRESSION], names, tmp_path, data=DATA, images=8, show=False))
    kinds = [Measurement.load(path).kind for path in paths]
    assert kinds == names and all(Measurement.load(path).provenance["images"] == 8 for path in paths)


@pytest.mark.parametrize(
    ("model", "name", "data", "message"),
    [
        (EXPRESSION, "calibration", DATA, "calibration takes images only"),
        (EXPRESSION, "attention_entropy", "vqav2(path='/nowhere')", "no folder /nowhere"),
        (EXPRESSION, "attention_entropy", "cifar100", "no question set 'cifar100'"),
        (EXPRESSION.replace("29", "30"), "question_answers", DATA, "30 answers"),
        ("timm/vit_tiny_patch16_224(img_size=32, depth=1)", "question_answers", "scenes", "takes images only"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, model: str, name: str, data: str, message: str):
    with pytest.raises(VitlabError, match=message) as error:
        list(runner.measure([model], [name], tmp_path, data=data, show=False))
    assert "\n" not in str(error.value)


def test_the_report_escapes_questions_and_answers():
    from vitlab.reporting.figures.question_answers import draw

    text = "<script>alert(1)</script>"
    values = {
        "accuracy": np.array([0.25]),
        "questions": np.array([4]),
        "image": np.zeros((1, 2, 2, 3), np.uint8),
        "correct": np.array([0.3]),
        **{name: np.array([text]) for name in ("question", "answer")},
        "prediction": np.array(["a & b"]),
    }
    dims = {name: ("example", "row", "column", "channel")[: value.ndim] for name, value in values.items()}
    dims |= {"accuracy": ("kind",), "questions": ("kind",)}
    (fragment,) = draw([Measurement("question_answers", text, values, dims, {"kind": (text,)})])
    assert "<script>" not in fragment.html and "&lt;script&gt;" in fragment.html
    assert "a &amp; b" in fragment.html and "30 % right" in fragment.html and "25.0 % of 4" in fragment.html
