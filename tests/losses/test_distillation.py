"""Distillation against DeiT's formulas, written out in numpy.

Shape legend: B batch, C classes.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from vitlab.core.errors import VitlabError
from vitlab.losses.distillation import distillation

arguments = (st.integers(1, 4), st.integers(2, 5), st.floats(0.5, 8.0), st.integers(0, 99))


@settings(deadline=None, max_examples=25)
@given(*arguments)
def test_soft_is_t_squared_kl(b: int, c: int, temperature: float, seed: int) -> None:
    student, teacher = np.random.default_rng(seed).normal(size=(2, b, c)) * 3
    p = softmax(teacher / temperature, 1)
    logs = [log_softmax(logits / temperature, 1) for logits in (teacher, student)]
    expected = temperature**2 * (p * (logs[0] - logs[1])).sum() / b
    found = distillation(torch.tensor(student), torch.tensor(teacher), kind="soft", temperature=temperature)
    assert found.item() == pytest.approx(expected, abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(*arguments)
def test_hard_is_the_cross_entropy_of_the_teachers_choice(b: int, c: int, temperature: float, seed: int) -> None:
    student, teacher = np.random.default_rng(seed).normal(size=(2, b, c)) * 3
    expected = -np.mean([log_softmax(row)[choice.argmax()] for row, choice in zip(student, teacher, strict=True)])
    found = distillation(torch.tensor(student), torch.tensor(teacher), temperature=temperature)
    assert found.item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_teacher_receives_no_gradient(kind: str) -> None:
    student, teacher = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    distillation(student, teacher, kind=kind).backward()
    assert teacher.grad is None and student.grad.abs().sum() > 0


def test_large_logits_stay_finite() -> None:
    student, teacher = torch.tensor([[1e4, -1e4]]), torch.tensor([[-1e4, 1e4]])
    assert distillation(student, teacher, kind="soft", temperature=1.0).item() == pytest.approx(2e4)


def test_mistakes_are_named() -> None:
    with pytest.raises(VitlabError, match=r"teacher.* \(2, 5\), the student.* \(2, 4\)"):
        distillation(torch.zeros(2, 4), torch.zeros(2, 5))
    with pytest.raises(VitlabError, match=r"no distillation 'sof'.*hard, soft"):
        distillation(torch.zeros(2, 4), torch.zeros(2, 4), kind="sof")
    with pytest.raises(VitlabError, match="temperature=0; expected a number above 0"):
        distillation(torch.zeros(2, 4), torch.zeros(2, 4), kind="soft", temperature=0)
