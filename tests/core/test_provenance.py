"""Provenance of a result, as JSON."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import datetime, timezone

import numpy as np
import pytest
import torch

import vitlab
from vitlab.core.provenance import provenance


def test_versions_are_those_that_run() -> None:
    found = provenance()
    assert found["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert found["versions"]["numpy"] == np.__version__
    assert found["vitlab"] == vitlab.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["vitlab", "train", "quick(diversification=1.0)", "--out", "my run"]
    monkeypatch.setattr(sys, "argv", command)
    assert shlex.split(provenance()["command"]) == command


def test_the_time_is_now_in_utc() -> None:
    age = datetime.now(timezone.utc) - datetime.fromisoformat(provenance()["time"])
    assert 0 <= age.total_seconds() < 60


def test_what_else_is_known_is_added_and_all_of_it_is_json() -> None:
    found = provenance(seed=3, device="cpu", data="scenes")
    assert {"seed": 3, "device": "cpu", "data": "scenes"}.items() <= found.items()
    assert json.loads(json.dumps(found)) == found
