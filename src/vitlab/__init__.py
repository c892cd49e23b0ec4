"""vitlab: a laboratory for vision transformers.

Public names are imported on first use, so that `import vitlab` and `vitlab --help` do not import torch. Names for
extensions (parts, instruments, … of other packages) are in `vitlab.extend`.
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
    from vitlab.instruments import measure_together as measure_together
    from vitlab.interventions import activations as activations
    from vitlab.interventions import intervene as intervene
    from vitlab.monitoring import Monitor as Monitor
    from vitlab.monitoring import hugging_face_callback as hugging_face_callback
    from vitlab.monitoring import lightning_callback as lightning_callback
    from vitlab.recording import record as record
    from vitlab.recording import record_diversification as record_diversification
    from vitlab.reporting import report as report
    from vitlab.runner import measure_models as measure_models
    from vitlab.runner import stress_models as stress_models
    from vitlab.stress_tests import stress as stress
    from vitlab.surgery import restore as restore
    from vitlab.surgery import retrofit as retrofit
    from vitlab.tasks import train as train
    from vitlab.tasks.segmentation_export import export_acdc as export_acdc
    from vitlab.training.events import tensorboard_log as tensorboard_log
    from vitlab.training.events import wandb_log as wandb_log
    from vitlab.zoo import load as load
    from vitlab.zoo import save as save

_MODULES = {
    "Batches": "vitlab.core.batches",
    "Measurement": "vitlab.core.measurement",
    "Monitor": "vitlab.monitoring",
    "VitlabError": "vitlab.core.errors",
    "activations": "vitlab.interventions",
    "batches_for": "vitlab.inputs",
    "describe": "vitlab.adapters",
    "export_acdc": "vitlab.tasks.segmentation_export",
    "hugging_face_callback": "vitlab.monitoring",
    "intervene": "vitlab.interventions",
    "lightning_callback": "vitlab.monitoring",
    "load": "vitlab.zoo",
    "measure": "vitlab.instruments",
    "measure_models": "vitlab.runner",
    "measure_together": "vitlab.instruments",
    "parts": "vitlab.fitted",
    "record": "vitlab.recording",
    "record_diversification": "vitlab.recording",
    "report": "vitlab.reporting",
    "restore": "vitlab.surgery",
    "retrofit": "vitlab.surgery",
    "save": "vitlab.zoo",
    "stress": "vitlab.stress_tests",
    "stress_models": "vitlab.runner",
    "tensorboard_log": "vitlab.training.events",
    "train": "vitlab.tasks",
    "wandb_log": "vitlab.training.events",
}

__all__ = [
    "Batches",
    "Measurement",
    "Monitor",
    "VitlabError",
    "activations",
    "batches_for",
    "describe",
    "export_acdc",
    "hugging_face_callback",
    "intervene",
    "lightning_callback",
    "load",
    "measure",
    "measure_models",
    "measure_together",
    "parts",
    "record",
    "record_diversification",
    "report",
    "restore",
    "retrofit",
    "save",
    "stress",
    "stress_models",
    "tensorboard_log",
    "train",
    "wandb_log",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vitlab' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
