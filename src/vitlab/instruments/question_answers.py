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


def by_kind(kinds: Sequence[str], accuracy: Sequence[float]) -> dict[str, tuple[float, int]]:
    """Returns the mean accuracy and the number of questions of each kind, in order of first occurrence.

    >>> by_kind(["count", "colour", "count"], [1.0, 0.5, 0.0])
    {'count': (0.5, 2), 'colour': (0.5, 1)}
    """
    groups: dict[str, list[float]] = {}
    for kind, value in zip(kinds, accuracy, strict=True):
        groups.setdefault(kind, []).append(value)
    return {kind: (sum(values) / len(values), len(values)) for kind, values in groups.items()}


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
        `accuracy` (kind) and `questions` (kind), their number; for the examples `image` (example, row, column, channel)
        uint8, and as text `question`, `answer` (the one with the largest accuracy) and `prediction`, and `correct`,
        the accuracy of the prediction (example).
    """
    if not isinstance(batches, Batches):
        raise VitlabError("question_answers needs Batches with the names of the answers; use question_parts")
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
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
            found["image"] += list(_pixels(batch.inputs["pixel_values"], batches))
    shown = examples_of(found["correct"], examples)
    kinds = by_kind(found["kind"], found["correct"])
    values = {
        "accuracy": np.array([accuracy for accuracy, _ in kinds.values()]),
        "questions": np.array([count for _, count in kinds.values()]),
        "image": np.stack([found["image"][place] for place in shown]),
        "correct": np.array([found["correct"][place] for place in shown]),
        **{key: np.array([found[key][place] for place in shown]) for key in _TEXTS},
    }
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(("correct", *_TEXTS), ("example",))
    dims |= {"accuracy": ("kind",), "questions": ("kind",), "image": ("example", "row", "column", "channel")}
    about = provenance(device=str(device), images=len(found["question"]), data=batches.fingerprint)
    return Measurement("question_answers", type(model).__name__, values, dims, {"kind": tuple(kinds)}, {}, about)


def _pixels(images: Tensor, batches: Batches) -> np.ndarray:
    """Normalised images (B, 3, h, w) -> pixels (B, h, w, 3) uint8."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (batches.mean, batches.std))
    pixels = (images.cpu() * std + mean).clamp(0, 1) * 255
    return pixels.round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
