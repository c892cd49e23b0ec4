"""CB Table 10: ViLT on VQAv2 with CB_S on image tokens, text tokens or both. There is no `small`.

ViLT's published weights are expected in the folder `vilt-b32-mlm` of the data folder.
"""

from __future__ import annotations

from vitlab.core.experiment import Claim, Job, Published, Results, Scale
from vitlab.core.verdicts import Verdict
from vitlab.experiments.context_broadcasting._checks import claims_of, gain, table, verdicts_of
from vitlab.experiments.context_broadcasting._shared import call, runs

TITLE = "CB Table 10: ViLT on VQAv2 with CB_S"

DIFFERENCES: dict[Scale, tuple[str, ...]] = {
    "full": (
        "Trained on train2014 and measured on val2014: the answers of the official test sets are not public. The paper "
        "does not name its split; ViLT's authors report their 71.26 on test-dev, trained on train2014 and most of "
        "val2014.",
    )
}

_PLAIN = 71.28
_ROWS = {"image": 71.44, "text": 71.46, "both": 71.42}

PAPER = [
    *table(("Acc [%]",), {"ViLT": (_PLAIN,), **{f"+ CB_S ({tokens})": (value,) for tokens, value in _ROWS.items()}}),
    Published("ViLT, as reported by its authors", "Acc [%]", 71.26, runs=False),
]

_CHECKS = [
    gain(
        Claim(
            tokens,
            f"CB_S on {tokens if tokens != 'both' else 'image and text'} tokens raises the accuracy of ViLT",
            paper=round(value - _PLAIN, 2),
            source="Table 10",
        ),
        "plain",
        tokens,
        "accuracy",
    )
    for tokens, value in _ROWS.items()
]

CLAIMS = claims_of(_CHECKS)

_WEIGHTS = "{root}/vilt-b32-mlm"


def plan(scale: Scale) -> list[Job]:
    """Fine-tuning of ViLT; the cost is that of 10 epochs on one H200, a rough estimate."""
    jobs: list[Job] = []
    for arm in ("plain", *_ROWS):
        inserted = {} if arm == "plain" else {"part": "cb_s", "tokens": arm}
        if scale == "smoke":
            jobs += runs(scale, arm, call("quick_vqa", {**inserted, "scenes": 32, "epochs": 1}))
        elif scale == "full":
            cost = {"needs": ("vqav2", "vilt-b32-mlm"), "gpu_minutes": 1500.0, "gigabytes": 26.0}
            jobs += runs(scale, arm, call("vqa_vilt", {**inserted, "weights": _WEIGHTS}), **cost)
    return jobs


def check(results: Results) -> list[Verdict]:
    """Paired by seed."""
    return verdicts_of(_CHECKS, results)
