"""The names that extensions import: parts, instruments, recipes, … of other packages and files.

`docs/adding.md` has one example of each kind. The names are imported on first use: a file of recipes imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitlab.adapters.blocks import transformer_block as transformer_block
    from vitlab.adapters.blocks import with_stage_ends as with_stage_ends
    from vitlab.adapters.flow import Flow as Flow
    from vitlab.core.anatomy import Anatomy as Anatomy
    from vitlab.core.anatomy import Block as Block
    from vitlab.core.anatomy import Mixer as Mixer
    from vitlab.core.anatomy import TokenLayout as TokenLayout
    from vitlab.core.bounds import Choices as Choices
    from vitlab.core.bounds import Length as Length
    from vitlab.core.bounds import Range as Range
    from vitlab.core.experiment import Claim as Claim
    from vitlab.core.experiment import Job as Job
    from vitlab.core.experiment import Published as Published
    from vitlab.core.experiment import Results as Results
    from vitlab.core.experiment import Scale as Scale
    from vitlab.core.experiment import exact as exact
    from vitlab.core.experiment import judged as judged
    from vitlab.core.experiment import paired as paired
    from vitlab.core.measurement import Card as Card
    from vitlab.core.measurement import Measurement as Measurement
    from vitlab.core.recipe import Augment as Augment
    from vitlab.core.recipe import Objective as Objective
    from vitlab.core.recipe import Optimizer as Optimizer
    from vitlab.core.recipe import Recipe as Recipe
    from vitlab.core.registration import register as register
    from vitlab.core.verdicts import Verdict as Verdict
    from vitlab.data.catalogue import Location as Location
    from vitlab.data.images import DataSet as DataSet
    from vitlab.data.images import ImageArray as ImageArray
    from vitlab.data.images import ImageFiles as ImageFiles
    from vitlab.data.images import from_splits as from_splits
    from vitlab.instruments.shared.device_buffer import fetch as fetch
    from vitlab.instruments.shared.one_pass import Observer as Observer
    from vitlab.instruments.shared.one_pass import Result as Result
    from vitlab.instruments.shared.one_pass import attention_blocks as attention_blocks
    from vitlab.instruments.shared.one_pass import observe as observe
    from vitlab.instruments.shared.one_pass import table as table
    from vitlab.recording.attention_call import AttentionCall as AttentionCall
    from vitlab.recording.attention_call import Rows as Rows
    from vitlab.reporting.drawing import Figure as Figure
    from vitlab.reporting.drawing import bars as bars
    from vitlab.reporting.drawing import empty_plot as empty_plot
    from vitlab.reporting.headline import Phrase as Phrase
    from vitlab.reporting.layer_plots import curves as curves
    from vitlab.reporting.layer_plots import deep_half_finding as deep_half_finding
    from vitlab.stress_tests.shared.pixel_evaluation import PixelBatch as PixelBatch
    from vitlab.stress_tests.shared.pixel_evaluation import accuracies as accuracies
    from vitlab.stress_tests.shared.pixel_evaluation import evaluate_perturbations as evaluate_perturbations
    from vitlab.stress_tests.shared.pixel_evaluation import result as result

#: The public names of each module.
_NAMES = {
    "vitlab.adapters.blocks": ("transformer_block", "with_stage_ends"),
    "vitlab.adapters.flow": ("Flow",),
    "vitlab.core.anatomy": ("Anatomy", "Block", "Mixer", "TokenLayout"),
    "vitlab.core.bounds": ("Choices", "Length", "Range"),
    "vitlab.core.experiment": ("Claim", "Job", "Published", "Results", "Scale", "exact", "judged", "paired"),
    "vitlab.core.measurement": ("Card", "Measurement"),
    "vitlab.core.recipe": ("Augment", "Objective", "Optimizer", "Recipe"),
    "vitlab.core.registration": ("register",),
    "vitlab.core.verdicts": ("Verdict",),
    "vitlab.data.catalogue": ("Location",),
    "vitlab.data.images": ("DataSet", "ImageArray", "ImageFiles", "from_splits"),
    "vitlab.instruments.shared.device_buffer": ("fetch",),
    "vitlab.instruments.shared.one_pass": ("Observer", "Result", "attention_blocks", "observe", "table"),
    "vitlab.recording.attention_call": ("AttentionCall", "Rows"),
    "vitlab.reporting.drawing": ("Figure", "bars", "empty_plot"),
    "vitlab.reporting.headline": ("Phrase",),
    "vitlab.reporting.layer_plots": ("curves", "deep_half_finding"),
    "vitlab.stress_tests.shared.pixel_evaluation": ("PixelBatch", "accuracies", "evaluate_perturbations", "result"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Anatomy",
    "AttentionCall",
    "Augment",
    "Block",
    "Card",
    "Choices",
    "Claim",
    "DataSet",
    "Figure",
    "Flow",
    "ImageArray",
    "ImageFiles",
    "Job",
    "Length",
    "Location",
    "Measurement",
    "Mixer",
    "Objective",
    "Observer",
    "Optimizer",
    "Phrase",
    "PixelBatch",
    "Published",
    "Range",
    "Recipe",
    "Result",
    "Results",
    "Rows",
    "Scale",
    "TokenLayout",
    "Verdict",
    "accuracies",
    "attention_blocks",
    "bars",
    "curves",
    "deep_half_finding",
    "empty_plot",
    "evaluate_perturbations",
    "exact",
    "fetch",
    "from_splits",
    "judged",
    "observe",
    "paired",
    "register",
    "result",
    "table",
    "transformer_block",
    "with_stage_ends",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vitlab.extend' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
