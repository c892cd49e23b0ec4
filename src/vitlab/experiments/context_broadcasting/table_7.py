"""CB Table 7: Mask R-CNN with ViT-Ti on COCO, with and without CB. There is no `small`.

CB is not in the blocks whose outputs feed the feature pyramid.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, gain, points, table, verdicts_of
from vitlab.experiments.context_broadcasting._dense import mask_rcnn
from vitlab.experiments.context_broadcasting._shared import REPEATED

TITLE = "CB Table 7: Mask R-CNN on COCO with CB"

DIFFERENCES = REPEATED

#: Column -> value of the instrument, ViT-Ti, + CB.
_COLUMNS = {
    "AP^b": ("box_ap", 34.8, 35.1),
    "AP50^b": ("box_ap50", 57.4, 57.9),
    "AP75^b": ("box_ap75", 36.5, 36.8),
    "AP^m": ("mask_ap", 32.5, 32.8),
    "AP50^m": ("mask_ap50", 54.3, 54.4),
    "AP75^m": ("mask_ap75", 33.7, 34.2),
}

PAPER = table(
    list(_COLUMNS),
    {
        "ViT-Ti": [plain for _, plain, _ in _COLUMNS.values()],
        "+ CB": [cb for _, _, cb in _COLUMNS.values()],
    },
)

_CHECKS = [
    gain(
        Claim(column, f"CB raises {column} of Mask R-CNN with ViT-Ti", round(cb - plain, 1), source="Table 7"),
        "plain",
        "cb",
        points(metric),
        "average_precision",
    )
    for column, (metric, plain, cb) in _COLUMNS.items()
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Fine-tuning of backbones that were trained on ImageNet-1K."""
    return [*mask_rcnn(scale, "plain", ""), *mask_rcnn(scale, "cb", "cb")]


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
