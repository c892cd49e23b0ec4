"""Every mutation of a single setting is refused in one line, or runs: no other exception, no long run, no silent error.

`make test-full` tries all mutations, and prints their number; the sample is drawn with a fixed seed.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cases.setting_mutations import VALUES, Outcome, attempt_all
from cases.setting_targets import targets

SAMPLE = 1500


def check(mutations: list, capsys: pytest.CaptureFixture[str]) -> None:
    counts, failures = attempt_all(mutations)
    kinds = dict.fromkeys(kind for kind, _ in counts)
    with capsys.disabled():
        print(f"\n{len(mutations)} mutations of single settings:")
        for kind in kinds:
            print(
                f"  {kind}: "
                + ", ".join(f"{number} {result}" for (own, result), number in counts.items() if own == kind)
            )
        for failure in failures:
            print(f"  {failure}")
    assert not failures, "\n".join(map(Outcome.__str__, failures))
    assert {result for _, result in counts} == {"refused", "accepted"}


def test_a_sample_of_mutations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = [(target, value) for target in targets(tmp_path) for value in VALUES]
    check(random.Random(0).sample(every, SAMPLE), capsys)


@pytest.mark.full
def test_all_mutations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check([(target, value) for target in targets(tmp_path) for value in VALUES], capsys)
