"""Questions about images with scored answers: the data of visual question answering.

Shape legend: I images, Q questions, L tokens of the longest question, K answers of a question, h w pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from vitlab.core.errors import VitlabError
from vitlab.data.file_fingerprints import files_stamp
from vitlab.data.images import Channels
from vitlab.data.labelled import digest

__all__ = ["PAD", "QuestionData", "QuestionSet"]

#: The token after the end of a question.
PAD = 0


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """Questions about images.

    Args:
        pictures: (I, 3, h, w) uint8, or the files of the images.
        image_of: (Q,) the image of each question.
        tokens: (Q, L) token ids, `PAD` after the end; the first token is the class token, from which ViLT answers.
        answers: (Q, K) indices into the answer vocabulary; −1 for none.
        accuracy: (Q, K) the accuracy of a model that gives this answer, in [0, 1], and its target in training; that of
            all others is 0.
        kinds: (Q,) the kind of each question.
        texts: the questions as text.
    """

    pictures: Tensor | tuple[Path, ...]
    image_of: Tensor
    tokens: Tensor
    answers: Tensor
    accuracy: Tensor
    kinds: Tensor
    texts: Sequence[str]

    def __post_init__(self) -> None:
        """Raise an error if there is no question."""
        if not len(self.image_of):
            raise VitlabError("a set of questions is empty; expected at least one question with an answer")

    def __len__(self) -> int:
        """Returns the number of questions, Q."""
        return len(self.image_of)

    @property
    def lengths(self) -> Tensor:
        """(Q,) the number of tokens of each question."""
        return (self.tokens != PAD).sum(1)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the questions, their answers and their images; of image files, of the names."""
        used = self.image_of.unique()
        pictures = self.pictures
        if isinstance(pictures, Tensor):
            images: Tensor | bytes = pictures[used]
        else:
            images = "\n".join(pictures[place].name for place in used.tolist()).encode()
        fields = (self.image_of, self.tokens, self.answers, self.accuracy, self.kinds)
        return digest(*fields, "\n".join(self.texts).encode(), images)

    @property
    def stamp(self) -> str:
        """A digest of the sizes and times of the image files, which changes when one is replaced."""
        pictures = self.pictures
        if isinstance(pictures, Tensor):
            return ""
        return files_stamp(pictures[place] for place in self.image_of.unique().tolist())

    def subset(self, rows: Tensor) -> QuestionSet:
        """Returns some of the questions; the images stay."""
        fields = ("image_of", "tokens", "answers", "accuracy", "kinds")
        chosen = {name: getattr(self, name)[rows] for name in fields}
        return replace(self, **chosen, texts=[self.texts[row] for row in rows.tolist()])

    def best_answers(self) -> Tensor:
        """(Q,) the answer with the largest accuracy, the first if there are several; −1 for none."""
        return self.answers.gather(1, self.accuracy.masked_fill(self.answers < 0, -1).argmax(1, keepdim=True))[:, 0]

    def accuracy_of(self, predicted: Tensor) -> Tensor:
        """Returns the accuracy (Q,) of one predicted answer to each question."""
        return ((self.answers == predicted[:, None]) * self.accuracy).sum(1)


@dataclass(frozen=True, eq=False)
class QuestionData:
    """Questions for training and for test.

    Args:
        train, test: the questions.
        answers: the answer vocabulary.
        kinds: names of the kinds of questions.
        vocabulary: the number of token ids.
        mean, std: of the normalisation of the images.
    """

    train: QuestionSet
    test: QuestionSet
    answers: tuple[str, ...]
    kinds: tuple[str, ...]
    vocabulary: int
    mean: Channels
    std: Channels

    def priors(self) -> Tensor:
        """Returns the most frequent best answer of each kind in training, (kinds,); −1 for a kind without answers."""
        best = self.train.best_answers()
        result = torch.full((len(self.kinds),), -1)
        for kind in range(len(self.kinds)):
            given = best[(self.train.kinds == kind) & (best >= 0)]
            if len(given):
                result[kind] = torch.bincount(given).argmax()
        return result
