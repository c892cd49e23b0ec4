"""VQAv2 in the official layout with small files, and one-line errors for bad ones."""

import json
import os

import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.question_batches import QuestionBatches
from vitlab.data.question_catalogue import open_questions
from vitlab.data.question_set import PAD

VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "what",
    "colour",
    "is",
    "it",
    "?",
    "how",
    "many",
    "##s",
    "cat",
]
SIZES = {9: (64, 48), 42: (100, 40)}


def write(folder):
    """Two images in each split; three questions in training, two in test."""
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "tokenizer" / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    given = {
        "train2014": [
            (1, 9, "What colour is it?", "other", ["red"] * 7 + ["Red."] * 2 + ["blue"]),
            (2, 9, "How many cats?", "number", ["two"] * 10),
            (3, 42, "Is it?", "yes/no", ["purple"] * 10),
        ],
        "val2014": [
            (4, 42, "How many cats?", "number", ["2"] * 3 + ["3"] * 7),
            (5, 9, "What?", "other", ["red", "blue"] + ["x"] * 8),
        ],
    }
    for split, rows in given.items():
        (folder / split).mkdir()
        for image, size in SIZES.items():
            Image.new("RGB", size, (image, 0, 0)).save(folder / split / f"COCO_{split}_{image:012d}.jpg")
        asked = [{"question_id": q, "image_id": i, "question": text} for q, i, text, _, _ in rows]
        noted = [
            {
                "question_id": q,
                "image_id": i,
                "answer_type": kind,
                "multiple_choice_answer": max(set(answers), key=answers.count),
                "answers": [{"answer": answer, "answer_id": n} for n, answer in enumerate(answers)],
            }
            for q, i, _, kind, answers in rows
        ]
        (folder / f"v2_OpenEnded_mscoco_{split}_questions.json").write_text(json.dumps({"questions": asked}))
        (folder / f"v2_mscoco_{split}_annotations.json").write_text(json.dumps({"annotations": noted}))
    return folder


def opened(folder, **settings):
    more = "".join(f", {key}={value}" for key, value in settings.items())
    return open_questions(f"vqav2(path={str(folder)!r}, tokenizer={str(folder / 'tokenizer')!r}{more})")


def test_questions_answers_scores_and_kinds(tmp_path):
    data = opened(write(tmp_path / "vqa"))
    assert data.answers == ("2", "purple", "red") and data.kinds == ("yes/no", "number", "other")
    assert data.train.kinds.tolist() == [2, 1, 0] and data.vocabulary == len(VOCABULARY)
    red = data.answers.index("red")
    assert data.train.answers[0].tolist() == [red] + [-1] * 9
    assert data.test.answers[0, 0] == 0
    assert data.test.accuracy[0, 0] == pytest.approx(0.9)  # 3 of 10: (3 · 2/3 + 7 · 1) / 10
    assert data.test.accuracy[1, 0] == pytest.approx(0.3)
    predicted = torch.tensor([0, data.answers.index("purple")])
    assert data.test.accuracy_of(predicted).tolist() == pytest.approx([0.9, 0.0])


def test_targets_are_those_of_vilt(tmp_path):
    """Kim et al.'s code gives an answer of 1, 2, 3 and more annotators the targets 0.3, 0.6, 0.9 and 1."""
    folder = write(tmp_path / "vqa")
    given = ["red"] * 4 + ["2"] * 3 + ["purple"] * 2 + ["Blue"]
    edit(folder, lambda note: note.update(answers=[{"answer": answer} for answer in given]))
    data = opened(folder)
    assert data.answers == ("2", "purple", "red")
    batches = QuestionBatches(data.train, 3, data.mean, data.std, (32, 64), 16, processes=0)
    (batch,) = batches.batches([torch.tensor([0])])
    assert batch.targets[0].tolist() == pytest.approx([0.9, 0.6, 1.0])


def test_word_pieces_start_with_the_class_token(tmp_path):
    data = opened(write(tmp_path / "vqa"))
    words = [VOCABULARY[token] for token in data.train.tokens[1].tolist() if token != PAD]
    assert words == ["[CLS]", "how", "many", "cat", "##s", "?", "[SEP]"]


def test_tokens_are_those_of_hugging_faces_bert(tmp_path):
    from transformers import BertTokenizer

    data = opened(write(tmp_path / "vqa"))
    theirs = BertTokenizer(vocab=str(tmp_path / "vqa" / "tokenizer" / "vocab.txt"), do_lower_case=True)
    expected = theirs(list(data.train.texts), padding=True, truncation=True, max_length=40)["input_ids"]
    assert data.train.tokens.tolist() == expected


def test_training_questions_without_a_known_answer_are_dropped_and_test_questions_kept(tmp_path):
    data = opened(write(tmp_path / "vqa"), answers=1)
    assert data.answers == ("2",) and len(data.train) == 1 and len(data.test) == 2
    assert data.test.accuracy_of(torch.zeros(2, dtype=torch.long)).tolist() == pytest.approx([0.9, 0.0])


def test_images_keep_their_aspect_ratio_and_are_padded(tmp_path):
    data = opened(write(tmp_path / "vqa"))
    feed = QuestionBatches(data.train, 3, data.mean, data.std, (32, 64), 16, batch_size=3, processes=0)
    (batch,) = feed.epoch(0)
    sizes = {int(mask[:, 0].sum()): int(mask[0].sum()) for mask in batch.mask}
    assert sizes == {32: 32, 16: 64} or sizes == {32: 32} or sizes == {16: 64, 32: 32}
    assert batch.images.shape[-2:] == (32, 64)
    assert (batch.images[batch.mask[:, None].expand_as(batch.images) == 0] == 0).all()
    assert batch.targets.shape == (3, 3) and batch.targets.sum() == 3


def repeat(path, name):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({name: content[name] + content[name][:1]}))


BAD = {
    "no questions": (lambda f: (f / "v2_OpenEnded_mscoco_val2014_questions.json").unlink(), "cannot be read"),
    "not JSON": (lambda f: (f / "v2_mscoco_train2014_annotations.json").write_text("{"), "not valid JSON"),
    "no list": (lambda f: (f / "v2_mscoco_train2014_annotations.json").write_text("[]"), "no list 'annotations'"),
    "no images": (lambda f: (f / "val2014").rename(f / "elsewhere"), "no folder"),
    "missing image": (
        lambda f: (f / "train2014" / "COCO_train2014_000000000042.jpg").unlink(),
        "question 3 is missing",
    ),
    "no vocabulary": (lambda f: (f / "tokenizer" / "vocab.txt").unlink(), "no vocab.txt"),
    "vocabulary without [UNK]": (
        lambda f: (f / "tokenizer" / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\nwhat\n"),
        r"vocab.txt has no \[PAD\] in its first line, or no \[UNK\]",
    ),
    "vocabulary of another encoding": (
        lambda f: (f / "tokenizer" / "vocab.txt").write_bytes(b"[PAD]\n\xe9\n"),
        "vocab.txt cannot be read .*utf-8",
    ),
    "two annotations of a question": (
        lambda f: repeat(f / "v2_mscoco_train2014_annotations.json", "annotations"),
        "annotations.json has more than one entry with question_id 1",
    ),
    "a question twice": (
        lambda f: repeat(f / "v2_OpenEnded_mscoco_val2014_questions.json", "questions"),
        "questions.json has more than one entry with question_id 4",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_named_in_one_line(tmp_path, case):
    damage, message = BAD[case]
    folder = write(tmp_path / "vqa")
    damage(folder)
    with pytest.raises(VitlabError, match=message) as error:
        opened(folder)
    assert "\n" not in str(error.value)


def edit(folder, change):
    path = folder / "v2_mscoco_train2014_annotations.json"
    content = json.loads(path.read_text())
    change(content["annotations"][0])
    path.write_text(json.dumps(content))


ENTRIES = {
    "answers": (lambda note: note.update(answers=note["answers"][:9]), "9 answers; expected 10"),
    "an answer": (lambda note: note["answers"][0].update(answer=3), "answer = '3'; expected str"),
    "type": (lambda note: note.update(answer_type="maybe"), "answer_type 'maybe'"),
    "image": (lambda note: note.update(image_id=10), "about image 9"),
    "identifier": (lambda note: note.update(question_id=99), "no annotation of question 1"),
    "nothing": (lambda note: note.clear(), "question_id"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_bad_entries_are_named_in_one_line(tmp_path, case):
    change, message = ENTRIES[case]
    folder = write(tmp_path / "vqa")
    edit(folder, change)
    with pytest.raises(VitlabError, match=message) as error:
        opened(folder)
    assert "\n" not in str(error.value)


def test_a_broken_image_is_named(tmp_path):
    folder = write(tmp_path / "vqa")
    (folder / "train2014" / "COCO_train2014_000000000009.jpg").write_bytes(b"no image")
    data = opened(folder)
    feed = QuestionBatches(data.train, 3, data.mean, data.std, (32, 64), 16, batch_size=3, processes=0)
    with pytest.raises(
        VitlabError, match=r"cannot read the image .*COCO_train2014_000000000009\.jpg \(cannot identify image file\)"
    ):
        list(feed.epoch(0))


def test_the_recipe_of_table_10_trains_on_files(tmp_path):
    from vitlab.core import plugins
    from vitlab.core.recipe import change
    from vitlab.tasks import train_task

    folder = write(tmp_path / "vqa")
    (folder / "tokenizer").rename(folder / "bert-base-uncased")
    recipe = plugins.recipe(f"vqa_vilt(part='cb_s', tokens='image', path={str(folder)!r})")
    small = "hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, patch_size=16"
    model = recipe.model.replace("vitlab/vilt", f"vitlab/vilt({small})")
    changes = {"model": model, "epochs": 2, "batch_size": 2, "image_size": (32, 64), "precision": "float32"}
    row = train_task(change(recipe, changes), tmp_path / "run")
    assert row["questions"] == 2 and {"accuracy_number", "accuracy_other", "prior_other"} <= row.keys()
    assert row["prior_number"] == pytest.approx(90.0)  # the prior is "2", given by 3 of 10


def test_the_fingerprint_changes_with_an_answer_and_the_stamp_with_an_image(tmp_path):
    folder = write(tmp_path / "vqa")
    first = opened(folder).test
    stamp = first.stamp
    assert opened(folder).test.fingerprint == first.fingerprint != first.subset(torch.tensor([1])).fingerprint
    image = folder / "val2014" / "COCO_val2014_000000000042.jpg"
    os.utime(image, ns=(0, 1))
    assert opened(folder).test.fingerprint == first.fingerprint and opened(folder).test.stamp != stamp
    file = folder / "v2_mscoco_val2014_annotations.json"
    file.write_text(file.read_text().replace('"3"', '"red"'))
    assert opened(folder).test.fingerprint != first.fingerprint
