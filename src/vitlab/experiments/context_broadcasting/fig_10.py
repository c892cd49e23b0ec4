"""CB Fig. 10: attention of the last layer before the feature pyramid, in ViT-S fine-tuned on ADE20K.

At `small`: ViT-Ti on CamVid. The paper shows pictures of thresholded maps. The claims measure what they show: how many
keys a token attends to.
"""

from __future__ import annotations

import numpy as np

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, gain, verdicts_of
from vitlab.experiments.context_broadcasting._dense import ON_CAMVID, upernet

TITLE = "CB Fig. 10: attention maps of segmentation models"

DIFFERENCES = ON_CAMVID

PAPER = [Published(row, "pictures of attention", None) for row in ("ViT-S", "ViT-S + CB")]

#: Maps of the last layer; keys with less than uniform attention are set to 0. The paper does not state its threshold.
_MAPS = "attention_maps(images=(0, 1, 2, 3), threshold=1.0)"


def _entropy(found: Measurement) -> float:
    """Mean entropy of the last layer."""
    return float(np.nanmean(found.values["mean"][-1]))


def _attended(found: Measurement) -> float:
    """The fraction of keys above the threshold in the last layer."""
    return float(np.nanmean(found.values["attended"][-1]))


_CHECKS = [
    gain(
        Claim("entropy", "CB lowers the entropy of attention in the last layer of the backbone", source="Fig. 10"),
        "cb",
        "plain",
        _entropy,
        "attention_entropy",
        unit="nats",
    ),
    gain(
        Claim(
            "attended keys",
            "with CB fewer keys of the last layer have more than uniform attention",
            source="Fig. 10: CB reduces dense aggregation",
        ),
        "cb",
        "plain",
        _attended,
        "attention_maps",
        unit="of all keys",
    ),
]

CLAIMS = claims_of(_CHECKS)


def plan(scale: Scale) -> list[Job]:
    """Two instruments on the fine-tuned networks of Table 6, 160K iterations."""
    images = 4 if scale == "smoke" else 64
    return [
        job
        for arm, part in (("plain", ""), ("cb", "cb"))
        for job in upernet(scale, arm, "small", part, 160, "attention_entropy", _MAPS, images=images)
    ]


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
