"""vitlab: a laboratory for vision transformers.

Public names are imported on first use, so that `import vitlab` and `vitlab --help` do not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vitlab.adapters import describe as describe
    from vitlab.core.errors import VitlabError as VitlabError
    from vitlab.fitted import parts as parts
    from vitlab.instruments import measure as measure
    from vitlab.recording import record as record
    from vitlab.reporting import report as report
    from vitlab.stress_tests import stress as stress
    from vitlab.surgery import restore as restore
    from vitlab.surgery import retrofit as retrofit
    from vitlab.zoo import load as load

_MODULES = {
    "VitlabError": "vitlab.core.errors",
    "describe": "vitlab.adapters",
    "load": "vitlab.zoo",
    "measure": "vitlab.instruments",
    "parts": "vitlab.fitted",
    "record": "vitlab.recording",
    "report": "vitlab.reporting",
    "restore": "vitlab.surgery",
    "retrofit": "vitlab.surgery",
    "stress": "vitlab.stress_tests",
}

__all__ = [
    "VitlabError",
    "describe",
    "load",
    "measure",
    "parts",
    "record",
    "report",
    "restore",
    "retrofit",
    "stress",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vitlab' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
