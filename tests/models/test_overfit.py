"""Every architecture of vitlab, in a small size, can overfit 64 scenes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from cases import Case, alternet, rvt_fan, small
from vitlab.data.scenes import MEAN, STD, draw_scenes

CASES = [*alternet.CASES, *rvt_fan.CASES, *small.CASES]
STEPS, ENOUGH = 150, 0.95
#: T2T-ViT needs larger steps than the others: with theirs it knows 94 % after 150.
RATES = {"t2t_vit": 1e-2}


def sixty_four_scenes(size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Normalised images, and their classes folded to the seven that the tiny models tell apart."""
    scenes = draw_scenes(64, size=size)
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return (scenes.images / 255 - mean) / std, scenes.labels % 7


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case.family}" for i, case in enumerate(CASES)])
def test_overfits_64_scenes(case: Case) -> None:
    torch.manual_seed(0)
    model = case.build().train()  # as it starts, and judged with the statistics of the batch that it learns from
    images, labels = sixty_four_scenes(case.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATES.get(case.family, 3e-3), weight_decay=0.0)
    best = 0.0
    for _ in range(STEPS):
        logits = model(images)
        best = max(best, (logits.argmax(1) == labels).float().mean().item())
        if best >= ENOUGH:
            break
        optimizer.zero_grad()
        F.cross_entropy(logits, labels).backward()
        optimizer.step()
    assert best >= ENOUGH
