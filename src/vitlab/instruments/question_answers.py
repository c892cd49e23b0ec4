"""Answers to questions about images: accuracy by kind of question, and examples with their images (CB Table 10).

Shape legend: B batch, A answers, n examples, h w pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.core.batches import Batches
from vitlab.core.bounds import Range
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.core.pooling import derive
from vitlab.core.provenance import provenance
from vitlab.eval_mode import eval_mode

CARD = Card(
    title="Answers to questions: accuracy by kind, and examples",
    paper="CB Table 10",
    cost="one forward",
    inputs="questions",
    passes="one",
    needs=("questions",),
    higher_is_better=True,
)


_TEXTS = ("question", "answer", "prediction")


#: Values for which parts of the questions are combined (`core/pooling.py`).
_POOLING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("score", "kind_index"), ("concatenate", "image")),
    **dict.fromkeys(("questions", "answer_counts"), ("sum",)),
    **dict.fromkeys(("image", "correct", *_TEXTS), ("concatenate", "example")),
    "overall_accuracy": ("mean_of", "each", "score"),
    "overall_accuracy_error": ("error_of", "each", "score"),
    "overall_prior": ("prior_of_all", "answer_counts", "questions"),
    "accuracy": ("group_mean", "score", "kind_index", "questions"),
    "accuracy_error": ("group_error", "score", "kind_index", "questions"),
    "prior": ("prior_by_group", "answer_counts", "questions"),
}


def examples_of(accuracy: Sequence[float], count: int) -> list[int]:
    """Returns the places of up to `count` examples, half of them wrong (accuracy below 1/2) where there are as many.

    >>> examples_of([1, 1, 1, 0, 1, 0], 4)
    [0, 1, 3, 5]
    """
    right = [place for place, value in enumerate(accuracy) if value >= 0.5]
    wrong = [place for place, value in enumerate(accuracy) if value < 0.5]
    from_wrong = min(len(wrong), max(count // 2, count - len(right)))
    return sorted(right[: count - from_wrong] + wrong[:from_wrong])


def measure(model: nn.Module, batches: Iterable[Any], *, examples: Annotated[int, Range(1, 1000)] = 8) -> Measurement:
    """Answer questions about images.

    Args:
        model: Hugging Face's ViLT for question answering; it runs in evaluation mode.
        batches: yields `AskedBatch`: keyword arguments of the model, targets, texts, kinds and accuracies of answers.
        examples: the number of questions that are stored with their image and answers.

    Returns:
        `overall_accuracy`, and `accuracy` and number of `questions` (kind), NaN for kinds that are not asked;
        `overall_prior` and `prior` (kind), the accuracy if every question has the most frequent answer of its kind
        among these questions; `score`, the accuracy of each question (image); for the examples `image`
        (example, row, column, channel) uint8, and as text `question`, `answer` (the one with the largest accuracy) and
        `prediction`, and `correct`, the accuracy of the prediction (example).
    """
    if not isinstance(batches, Batches):
        raise VitlabError("question_answers needs Batches with the names of the answers; use question_parts")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    known = getattr(batches.items, "kinds", ())  # all kinds of the data, the same for each part of the questions
    counts: dict[str, np.ndarray] = {kind: np.zeros(len(batches.classes)) for kind in known}
    names = [*batches.classes, "(none)"]  # the last one is the name of answer −1, which is not in the vocabulary
    found: dict[str, list[Any]] = {key: [] for key in ("question", "kind", "answer", "prediction", "correct", "image")}
    with eval_mode(model):
        for batch in batches:
            inputs = {name: tensor.to(device) for name, tensor in batch.inputs.items()}
            predicted = model(**inputs).logits.argmax(1).cpu()
            found["question"] += batch.texts
            found["kind"] += batch.kinds
            found["answer"] += [names[answer] for answer in batch.targets.tolist()]
            found["prediction"] += [names[answer] for answer in predicted.tolist()]
            found["correct"] += batch.accuracy.gather(1, predicted[:, None])[:, 0].tolist()
            for kind, scores in zip(batch.kinds, batch.accuracy.double().numpy(), strict=True):
                counts[kind] = counts[kind] + scores if kind in counts else scores
            found["image"] += list(_pixels(batch.inputs["pixel_values"], batches))
    shown = examples_of(found["correct"], examples)
    kinds = list(counts)
    index = np.array([kinds.index(kind) for kind in found["kind"]])
    stored = {
        "score": np.array(found["correct"]),
        "kind_index": index,
        "questions": np.bincount(index, minlength=len(kinds)),
        "answer_counts": np.stack(list(counts.values())),
        "image": np.stack([found["image"][place] for place in shown]),
        "correct": np.array([found["correct"][place] for place in shown]),
        **{key: np.array([found[key][place] for place in shown]) for key in _TEXTS},
    }
    values = derive(stored, _POOLING)
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(("correct", *_TEXTS), ("example",))
    dims |= dict.fromkeys(("overall_accuracy", "overall_accuracy_error", "overall_prior"), ())
    dims |= dict.fromkeys(("accuracy", "accuracy_error", "prior", "questions"), ("kind",))
    dims |= {"score": ("image",), "kind_index": ("image",), "answer_counts": ("kind", "answer")}
    dims["image"] = ("example", "row", "column", "channel")
    about = provenance(device=str(device), images=len(found["question"]), data=batches.fingerprint)
    return Measurement(
        "question_answers",
        type(model).__name__,
        values,
        dims,
        {"kind": tuple(kinds)},
        {},
        about,
        {name: f"{name}_error" for name in ("overall_accuracy", "accuracy")},
        _POOLING,
    )


def _pixels(images: Tensor, batches: Batches) -> np.ndarray:
    """Normalised images (B, 3, h, w) -> pixels (B, h, w, 3) uint8."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (batches.mean, batches.std))
    pixels = (images.cpu() * std + mean).clamp(0, 1) * 255
    return pixels.round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
