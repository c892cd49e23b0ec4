"""Distillation from a teacher's predictions (DeiT, Sec. 4).

Shape legend: B batch, C classes.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from vitlab.core.bounds import Positive
from vitlab.core.errors import VitlabError, unknown

__all__ = ["distillation"]


def distillation(
    student: Tensor, teacher: Tensor, *, kind: Literal["hard", "soft"] = "hard", temperature: Positive = 3.0
) -> Tensor:
    """Distillation loss between a student's and a teacher's logits.

    hard: CE(student, argmax teacher); soft: T² KL(softmax(teacher / T) ‖ softmax(student / T)); batch mean.

    Args:
        student: (B, C) logits.
        teacher: (B, C) logits; detached.
        kind: `"hard"` or `"soft"`.
        temperature: T of the soft form.

    Returns:
        A scalar.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0]])
    >>> distillation(logits, logits, kind="soft").abs().item() < 1e-6
    True
    """
    if student.shape != teacher.shape:
        shapes = f"the teacher's are {tuple(teacher.shape)}, the student's {tuple(student.shape)}"
        raise VitlabError(f"the shapes of the logits differ: {shapes}; expected the same classes")
    teacher = teacher.detach()
    if kind == "hard":
        return F.cross_entropy(student, teacher.argmax(1))
    if kind == "soft":
        if temperature <= 0:
            raise VitlabError(f"invalid temperature={temperature!r}; expected a number above 0")
        target = F.log_softmax(teacher / temperature, 1)
        predicted = F.log_softmax(student / temperature, 1)
        return F.kl_div(predicted, target, reduction="batchmean", log_target=True) * temperature**2
    raise unknown("distillation", kind, ["hard", "soft"])
