"""The page, tables and pictures of the fine-tuning experiments, from the runs in `docs/results/data/finetuning`.

    PYTHONPATH=studies python -m evidence.finetuning_tables
    PYTHONPATH=studies python -m evidence.finetuning_tables --scenes runs/finetune_camvid

Writes `finetuning.md` and `finetuning.svg` in `docs/results`. With `--scenes`, the results of
`studies/finetune_camvid.py`, it also writes `finetuning.png`; the committed runs hold no pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evidence.finetuning_picture import draw
from evidence.finetuning_results import (
    ARMS,
    CAMVID,
    CIFAR,
    HEADLINES,
    Comparison,
    Metric,
    Runs,
    compare,
    conditions,
    headlines,
    load,
    mean_of,
    signed,
)
from evidence.finetuning_text import HEAD, LIMITS, MEASURED, PROTOCOL, READING, RUNS, findings
from evidence.tables import table
from vitlab.core.statistics import mean_interval

__all__ = ["page", "write"]

NAME = "finetuning"
RESULTS = Path(__file__).resolve().parents[2] / "docs/results"


def write(results: Path, scenes: Path | None = None) -> None:
    """Write the page and the pictures."""
    runs = load(results / "data" / NAME)
    (results / f"{NAME}.md").write_text(page(runs), encoding="utf-8")
    (results / f"{NAME}.svg").write_text(draw(runs), encoding="utf-8")
    if scenes:
        from evidence.finetuning_scenes import scenes as picture

        picture(scenes).save(results / f"{NAME}.png", optimize=True)


def page(runs: Runs) -> str:
    """Returns the page of results."""
    found = headlines(runs)
    parts = [
        HEAD,
        table(("", "DeiT-Ti on CIFAR-100", "UperNet on CamVid"), PROTOCOL),
        RUNS,
        "## Results\n\n",
        READING,
        _headline_table(runs, found),
        f"![Paired differences with intervals]({NAME}.svg)\n\n",
        "## Findings\n\n",
        findings({(each.metric.title, each.arm): each for each in found}, _scales(runs)),
        "## Measurements\n\n",
        MEASURED,
        "### CamVid: mIoU under the perturbations of CB Table 9 (%)\n\n",
        _table(runs, "perturbation", conditions(runs, CAMVID, "context_broadcasting", "condition", "miou")),
        "### CamVid: mIoU by group of Cityscapes-C (%)\n\n",
        _table(runs, "group", conditions(runs, CAMVID, "cityscapes_c", "group", "group_miou")),
        "### CamVid: mIoU by corruption of Cityscapes-C (%)\n\n",
        _table(runs, "corruption", conditions(runs, CAMVID, "cityscapes_c", "corruption", "corruption_miou")),
        "### CamVid: IoU by class on clean images (%)\n\n",
        _table(runs, "class", conditions(runs, CAMVID, "cityscapes_c", "class", "clean_class_iou")),
        "### CIFAR-100: top-1 by corruption (%)\n\n",
        _table(runs, "corruption", conditions(runs, CIFAR, "corruptions", "corruption", "accuracy")),
        "### CIFAR-100: mean absolute Λ of CB_S after fine-tuning\n\n",
        _scale_table(runs),
        "## Scenes\n\nTest images 0, 4, 8 and 12 of CamVid, and predictions of the runs with seed 0.\n\n",
        f"![Scenes of CamVid, their label maps and the predictions of each variant]({NAME}.png)\n\n",
        LIMITS,
    ]
    return "".join(parts).rstrip() + "\n"


def _headline_table(runs: Runs, found: Sequence[Comparison]) -> str:
    names = ("data", "metric", "variant", "mean ± 95 %", "difference to plain", "95 %", "p (Holm)", "difference is")
    rows = []
    for metric in HEADLINES:
        data = {CIFAR: "CIFAR-100", CAMVID: "CamVid"}[metric.experiment]
        rows.append((data, metric.title, "plain", _mean(runs, metric, "plain"), "", "", "", ""))
        for each in (one for one in found if one.metric == metric):
            mean, low, high = (signed(value, metric.digits) for value in each.difference)
            numbers = (_mean(runs, metric, each.arm), mean, f"{low} to {high}", f"{each.p:.3f}")
            rows.append(("", "", ARMS[each.arm], *numbers, each.word))
    return table(names, rows)


def _table(runs: Runs, name: str, metrics: Sequence[Metric]) -> str:
    """The mean of plain, and the difference of each variant; in bold where the interval excludes 0."""
    found = {(each.metric.title, each.arm): each for each in compare(runs, metrics)}
    others = [arm for arm in ARMS if arm != "plain"]
    rows = [
        (
            metric.title,
            _mean(runs, metric, "plain"),
            *(_difference(found[metric.title, arm]) for arm in others),
        )
        for metric in metrics
    ]
    return table((name, "plain, mean ± 95 %", *(f"{ARMS[arm]} − plain" for arm in others)), rows)


def _difference(each: Comparison) -> str:
    mean, low, high = (signed(value, each.metric.digits) for value in each.difference)
    text = f"{mean} ({low} to {high})"
    return text if each.word == "unclear" else f"**{text}**"


def _mean(runs: Runs, metric: Metric, arm: str) -> str:
    mean, _, high = mean_of(runs, metric, arm)
    return f"{mean:.{metric.digits}f} ± {high - mean:.{metric.digits}f}"


def _scales(runs: Runs) -> np.ndarray:
    """Mean |Λ| of CB_S: (seeds, layers)."""
    found = runs[CIFAR]["cb_s"]
    return np.array([list(found[seed]["parts"].values()) for seed in sorted(found)])


def _scale_table(runs: Runs) -> str:
    scales = _scales(runs)
    cells = [mean_interval(layer.tolist())[0] for layer in scales.T]
    names = ("block", *(str(layer) for layer in range(len(cells))))
    return table(names, [(f"mean over {len(scales)} seeds", *(f"{cell:.4f}" for cell in cells))])


def main() -> None:
    """Write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--scenes", type=Path, help="results of studies/finetune_camvid.py, for finetuning.png")
    options = parser.parse_args()
    write(options.results, options.scenes)
    print(f"wrote {options.results / NAME}.md and .svg{' and .png' if options.scenes else ''}")


if __name__ == "__main__":
    main()
