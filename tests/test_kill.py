"""kill -9 at seeded points of training, measuring, stressing and reporting: the results of the resumed command are bit
for bit those of an uninterrupted one, and no unfinished files remain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cases import killed

ROOT = Path(__file__).resolve().parent.parent
SAMPLE, ALL = 2, 8  # points of each kind of work

CASES = [
    *(pytest.param(kind, SAMPLE, id=f"{kind}-sample", marks=pytest.mark.slow) for kind in killed.KINDS),
    *(pytest.param(kind, ALL, id=f"{kind}-all", marks=pytest.mark.full) for kind in killed.KINDS),
]


@pytest.mark.parametrize(("kind", "points"), CASES)
def test_results_after_kill_9_are_those_of_an_uninterrupted_run(kind: str, points: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    arguments = [killed.__file__, kind, str(tmp_path), str(points), "0"]
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    whole = killed.results(tmp_path / "whole")
    assert any(content is not None for content in whole.values())
    for number in range(points):
        found = killed.results(tmp_path / f"killed-{number}")
        assert found.keys() == whole.keys()
        assert [name for name in whole if found[name] != whole[name]] == []
    print(kind, json.loads((tmp_path / "points.json").read_text()))
