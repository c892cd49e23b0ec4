"""VQAv2: questions and annotations as JSON, images of COCO.

The official files, unpacked into one folder:

    ROOT/v2_OpenEnded_mscoco_train2014_questions.json    ROOT/v2_mscoco_train2014_annotations.json
    ROOT/v2_OpenEnded_mscoco_val2014_questions.json      ROOT/v2_mscoco_val2014_annotations.json
    ROOT/train2014/COCO_train2014_000000000009.jpg …     ROOT/val2014/COCO_val2014_000000000042.jpg …

val2014 is the test set: the answers of the official test sets are not public.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.question_set import PAD, QuestionData, QuestionSet
from vitlab.data.vqa_answers import accuracies, normalise, vocabulary

__all__ = ["KINDS", "open_vqav2"]

#: The kinds of questions, by the type of their answers.
KINDS = ("yes/no", "number", "other")

_ANSWERS = 10  # human answers to each question
_LONGEST = 40  # tokens of a question in ViLT
_SPECIAL = {"[UNK]", "[CLS]", "[SEP]"}  # word pieces that the tokenizer needs
_HALF = (0.5, 0.5, 0.5)  # ViLT's normalisation


@dataclass(frozen=True)
class _Entry:
    """One question with its annotation."""

    image: str
    question: str
    kind: int
    answers: tuple[str, ...]
    common: str


def open_vqav2(folder: Path, tokenizer: Path, answers: int = 3129, at_least: int = 1) -> QuestionData:
    """Open VQAv2.

    Args:
        folder: with the official files.
        tokenizer: folder with the `vocab.txt` of BERT's uncased word pieces.
        answers: size of the answer vocabulary, the most frequent answers of the training questions; 0 for all.
        at_least: smallest number of training questions that an answer of the vocabulary occurs in.
    """
    tokens = _BertTokens(tokenizer)
    entries = {split: _read_split(folder, split) for split in ("train2014", "val2014")}
    known = vocabulary((entry.common for entry in entries["train2014"]), answers, at_least)
    index = {answer: number for number, answer in enumerate(known)}
    train, test = (_questions(folder, split, found, index, tokens) for split, found in entries.items())
    useful = (train.answers >= 0).any(1)
    train = train.subset(useful.nonzero()[:, 0])
    return QuestionData(train, test, known, KINDS, tokens.size, _HALF, _HALF)


# -- files ------------------------------------------------------------------------------------------------------------


def _read_split(folder: Path, split: str) -> list[_Entry]:
    asked_file = folder / f"v2_OpenEnded_mscoco_{split}_questions.json"
    noted_file = folder / f"v2_mscoco_{split}_annotations.json"
    asked = _by_question(_read_list(asked_file, "questions"), asked_file)
    notes = _by_question(_read_list(noted_file, "annotations"), noted_file)
    pictures = folder / split
    if not pictures.is_dir():
        raise VitlabError(f"no folder {pictures}; expected the images of COCO's {split}, COCO_{split}_….jpg")
    files = set(os.listdir(pictures))
    return [_entry(question, notes, files, split, asked_file, noted_file) for question in asked.values()]


def _by_question(entries: list[Any], path: Path) -> dict[int, Any]:
    """The entries by `question_id`; raises if two have the same: either could be the right one."""
    found: dict[int, Any] = {}
    for entry in entries:
        number = _field(entry, "question_id", int, path)
        if number in found:
            raise VitlabError(f"{path} has more than one entry with question_id {number}; remove all but one")
        found[number] = entry
    return found


def _entry(
    question: Mapping[str, Any], notes: Mapping[int, Any], files: set[str], split: str, asked: Path, noted: Path
) -> _Entry:
    number = question["question_id"]
    text = _field(question, "question", str, asked)
    image = _field(question, "image_id", int, asked)
    if number not in notes:
        raise VitlabError(f"{noted} has no annotation of question {number}; expected one for each question of {asked}")
    note = notes[number]
    if _field(note, "image_id", int, noted) != image:
        raise VitlabError(
            f"question {number} is about image {image} in {asked}, but about {note['image_id']} in {noted}"
        )
    file = f"COCO_{split}_{image:012d}.jpg"
    if file not in files:
        raise VitlabError(f"the image of question {number} is missing: {asked.parent / split / file}")
    kind = _field(note, "answer_type", str, noted)
    if kind not in KINDS:
        raise VitlabError(f"question {number} of {noted} has answer_type {kind!r}; expected one of {', '.join(KINDS)}")
    given = [_field(each, "answer", str, noted) for each in _field(note, "answers", list, noted)]
    if len(given) != _ANSWERS:
        raise VitlabError(f"question {number} of {noted} has {len(given)} answers; expected {_ANSWERS}")
    common = normalise(_field(note, "multiple_choice_answer", str, noted))
    return _Entry(file, text, KINDS.index(kind), tuple(given), common)


def _read_list(path: Path, key: str) -> list[Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise VitlabError(f"{path} cannot be read ({error.strerror}); expected VQAv2's {key} as JSON") from error
    except (ValueError, RecursionError) as error:
        raise VitlabError(f"{path} is not valid JSON ({str(error).splitlines()[0]}); download it again") from error
    found = content.get(key) if isinstance(content, dict) else None
    if not isinstance(found, list) or not found:
        raise VitlabError(f"{path} has no list {key!r}; expected VQAv2's {key}")
    return found


def _field(entry: Any, key: str, kind: type, path: Path) -> Any:
    if not isinstance(entry, dict) or type(entry.get(key)) is not kind:
        found = entry.get(key, "nothing") if isinstance(entry, dict) else entry
        raise VitlabError(f"{path} has an entry with {key} = {str(found)[:40]!r}; expected {kind.__name__}")
    return entry[key]


# -- tensors ----------------------------------------------------------------------------------------------------------


def _questions(
    folder: Path, split: str, entries: Sequence[_Entry], index: Mapping[str, int], tokens: _BertTokens
) -> QuestionSet:
    names = list(dict.fromkeys(entry.image for entry in entries))
    place = {name: number for number, name in enumerate(names)}
    answers = torch.full((len(entries), _ANSWERS), -1)
    accuracy = torch.zeros(len(entries), _ANSWERS)
    for row, entry in enumerate(entries):
        official = accuracies(entry.answers)
        known = [answer for answer in official if answer in index]
        for column, answer in enumerate(known):
            answers[row, column], accuracy[row, column] = index[answer], official[answer]
    return QuestionSet(
        tuple(folder / split / name for name in names),
        torch.tensor([place[entry.image] for entry in entries]),
        tokens([entry.question for entry in entries]),
        answers,
        accuracy,
        torch.tensor([entry.kind for entry in entries]),
        [entry.question for entry in entries],
    )


class _BertTokens:
    """BERT's word pieces from a local folder."""

    def __init__(self, folder: Path) -> None:
        file = folder / "vocab.txt"
        if not file.is_file():
            raise VitlabError(f"no vocab.txt in {folder}; expected the folder of BERT's uncased tokenizer, or ViLT's")
        try:
            from tokenizers import BertWordPieceTokenizer
        except ImportError:
            raise VitlabError("VQAv2 needs the extra 'hf': pip install 'vitlab[hf]'") from None
        try:
            words = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise VitlabError(f"{file} cannot be read ({error}); expected BERT's vocabulary") from error
        if words[PAD : PAD + 1] != ["[PAD]"] or not _SPECIAL.issubset(words):
            raise VitlabError(
                f"{file} has no [PAD] in its first line, or no [UNK], [CLS] or [SEP]; expected BERT's vocabulary"
            )
        self._tokenizer: Any = BertWordPieceTokenizer(vocab=str(file), lowercase=True)
        self._tokenizer.enable_truncation(_LONGEST)
        self._tokenizer.enable_padding(pad_id=PAD)

    @property
    def size(self) -> int:
        """The number of word pieces."""
        return int(self._tokenizer.get_vocab_size())

    def __call__(self, texts: list[str]) -> Tensor:
        """Returns (Q, L) token ids with the class token first; longer questions are cut after 40 tokens."""
        return torch.tensor([each.ids for each in self._tokenizer.encode_batch(texts)])
