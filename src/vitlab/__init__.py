"""vitlab: a laboratory for vision transformers.

Public names are imported on first use, so that `import vitlab` and `vitlab --help` do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vitlab.adapters import describe as describe
    from vitlab.core.batches import Batches as Batches
    from vitlab.core.errors import VitlabError as VitlabError
    from vitlab.core.measurement import Measurement as Measurement
    from vitlab.fitted import parts as parts
    from vitlab.inputs import batches_for as batches_for
    from vitlab.instruments import measure as measure
    from vitlab.interventions import intervene as intervene
    from vitlab.recording import record as record
    from vitlab.reporting import report as report
    from vitlab.stress_tests import stress as stress
    from vitlab.surgery import restore as restore
    from vitlab.surgery import retrofit as retrofit
    from vitlab.tasks import train as train
    from vitlab.zoo import load as load

_MODULES = {
    "Batches": "vitlab.core.batches",
    "Measurement": "vitlab.core.measurement",
    "VitlabError": "vitlab.core.errors",
    "batches_for": "vitlab.inputs",
    "describe": "vitlab.adapters",
    "intervene": "vitlab.interventions",
    "load": "vitlab.zoo",
    "measure": "vitlab.instruments",
    "parts": "vitlab.fitted",
    "record": "vitlab.recording",
    "report": "vitlab.reporting",
    "restore": "vitlab.surgery",
    "retrofit": "vitlab.surgery",
    "stress": "vitlab.stress_tests",
    "train": "vitlab.tasks",
}

__all__ = [
    "Batches",
    "Measurement",
    "VitlabError",
    "batches_for",
    "describe",
    "intervene",
    "load",
    "measure",
    "parts",
    "record",
    "report",
    "restore",
    "retrofit",
    "stress",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vitlab' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
