"""The build-up rule of Fig. 12a."""

from __future__ import annotations

from itertools import pairwise

from vitlab.experiments.how_vits_work._block_plans import build_up
from vitlab.experiments.how_vits_work.fig_12 import _PLANS


def test_each_step_adds_one_msa_from_the_last_stage_to_the_first() -> None:
    plans = [build_up((3, 4, 6, 4), step) for step in range(9)]
    changes = [[b - a for a, b in zip(before, after, strict=True)] for before, after in pairwise(plans)]
    assert all(sorted(change) == [0, 0, 0, 1] for change in changes)
    assert [1 + change.index(1) for change in changes] == [4, 4, 3, 3, 3, 2, 2, 1]
    assert plans[-1] == (1, 2, 3, 2)


def test_plans_of_figure_12a() -> None:
    assert (
        *((0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 1, 2), (0, 0, 2, 2), (0, 0, 3, 2)),
        (0, 1, 1, 2),  # an MSA in stage 2 in place of the second one in stage 3
    ) == _PLANS
