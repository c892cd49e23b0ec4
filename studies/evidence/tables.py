"""Tables, verdicts and a picture from the runs of `studies/cifar100_evidence.py`.

    PYTHONPATH=studies python -m evidence.tables runs/evidence

Writes `data/cifar100_evidence.json`, `cifar100_evidence.md` and `cifar100_evidence.svg` in `docs/results`. Without a
folder of runs, the page and the picture are written again from the data file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.claims import Term, with_part
from evidence.collecting import collect
from evidence.comparing import LEAST_PAIRS, Judged, Runs, by_arm, effects, judge_all
from evidence.conditions import CONDITIONS, Condition
from evidence.costs import expected_minutes, minutes, missing_jobs
from evidence.metrics import METRICS, Metric
from evidence.picture import draw
from vitlab.core.statistics import mean_interval
from vitlab.core.verdicts import OUTCOMES

__all__ = ["page", "write"]

NAME = "cifar100_evidence"
HEAD = """\
# CB, TAP and ADL on CIFAR-100: when do they help?

ViT-Ti with patches of 4 × 4, recipe `vit_tiny_cifar100` with the changes of each condition, trained with and without
the part. Runs with the same seed share initial weights, data order and augmentation; differences are paired by seed.
Intervals are Student's 95 % intervals over seeds. Each network is measured once, after its last epoch.

"""
RULE = """\
The smallest relevant effect of a claim is half of the published effect, or 0 where the paper gives a curve or a picture
only; it was written down before these results were seen. [Five earlier pairs](cifar100_context_broadcasting.md) with
other seeds were known. Effects are positive in the direction of the claim. *Holds*: the 95 % interval lies above 0.
*Does not hold*: it lies below the smallest relevant effect. *Holds, smaller than published*: both. *Inconclusive*:
neither, or fewer than 5 pairs. p is adjusted over all planned cases of a claim (Holm; 1 for those without two pairs); †
marks a verdict *holds* whose adjusted p is above 0.05. ‡ marks an interim verdict: pairs are missing. The papers'
numbers are from ImageNet, most from larger models: nothing here repeats their runs.

"""


def write(data: Mapping[str, Any], results: Path) -> None:
    """Write the data file, the page and the picture."""
    (results / "data").mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(run, ensure_ascii=False) for run in data["runs"])
    head = json.dumps({key: data[key] for key in ("made_with", "images")}, ensure_ascii=False)
    stored = f'{head[:-1]},\n"runs": [\n{rows}\n]}}\n'  # one line per run
    (results / "data" / f"{NAME}.json").write_text(stored, encoding="utf-8")
    (results / f"{NAME}.md").write_text(page(data), encoding="utf-8")
    (results / f"{NAME}.svg").write_text(draw(by_arm(data)), encoding="utf-8")


def page(data: Mapping[str, Any]) -> str:
    """Returns the page of results."""
    runs = by_arm(data)
    judged = judge_all(runs)
    parts = [HEAD, _made_with(data), "## Verdicts\n\n", RULE, _verdicts(judged)]
    parts.append(f"![Gain in top-1 against drop of entropy]({NAME}.svg)\n\n## Measurements\n\n")
    parts.append("*Exploratory*: there is no published effect to compare with, or settings were searched.\n\n")
    parts += [_metric(metric, data, judged) for metric in METRICS]
    parts += [_scales(runs), _conditions(data), _not_run(data)]
    return "".join(parts).rstrip() + "\n"


#: Experiments on Convs and MSAs, and their cost in GPU minutes with the training runs that each needs.
MSA_EXPERIMENTS = (
    ("hdvw_fig_12", "the build-up of AlterNet, its accuracy, robustness and Hessian spectrum", 868.0),
    ("hdvw_fig_7", "local attention of 3×3, 5×5 and global", 212.0),
    ("hdvw_fig_6", "GAP against the class token, and SAM", 148.0),
    ("hdvw_fig_4", "negative and positive Hessian eigenvalues of ResNet and ViT", 132.0),
    ("hdvw_fig_1", "loss landscapes, trajectories and Hessian spectra", 118.0),
    ("hdvw_fig_2", "Fourier analysis of feature maps, noise of limited frequency", 88.0),
    ("hdvw_fig_10", "similarities of feature maps, lesions", 86.0),
    ("hdvw_fig_9", "variance of feature maps", 73.0),
)
#: Of all of them together.
MSA_MINUTES = 1218


def _made_with(data: Mapping[str, Any]) -> str:
    made = data["made_with"]
    about = f"{', '.join(made['device'])}, vitlab {', '.join(made['vitlab'])}, torch {', '.join(made['torch'])}"
    return (
        f"{len(data['runs'])} runs on {about}. The runs, and then this page, the picture and `data/{NAME}.json`:\n\n"
        "```\nVITLAB_DATA=... python studies/cifar100_evidence.py --out runs/evidence\n"
        "PYTHONPATH=studies python -m evidence.tables runs/evidence\n```\n\n"
        "The data file holds the commands as they were given.\n\n"
    )


def _verdicts(judged: Sequence[Judged]) -> str:
    """Returns the counts of the outcomes, and a table per claim."""
    outcomes = [each.verdict.outcome for each in judged]
    counts = "; ".join(f"*{each}* {outcomes.count(each)}" for each in OUTCOMES if each in outcomes)
    text = f"Outcomes of the {len(judged)} cases: {counts}.\n\n"
    names = ("case", "paper", "smallest relevant", "ours", "95 %", "pairs", "p (Holm)", "verdict")
    for claim in dict.fromkeys(each.claim for each in judged):
        sources = "; ".join(dict.fromkeys(case.source for case in claim.cases))
        text += f"**{claim.text}** {sources}.\n\n"
        text += table(names, [_judged_row(each) for each in judged if each.claim == claim])
    return text


def _judged_row(each: Judged) -> tuple[str, ...]:
    found, digits, pairs = each.verdict, _digits(each.claim.metric), len(each.differences)
    effect = "–" if found.our_value is None else f"{found.our_value:+.{digits}f}"
    paper = "sign only" if each.case.paper is None else f"{each.case.paper:+g}"
    bounds = _bounds(found.interval, digits, pairs)
    numbers = paper, f"{found.smallest_relevant:g}", effect, bounds, _pairs(each.case.terms, pairs)
    return each.case.label, *numbers, _p(each), _outcome(each)


def _metric(metric: Metric, data: Mapping[str, Any], judged: Sequence[Judged]) -> str:
    """Returns a table with a row per arm that was run."""
    runs = by_arm(data)
    arms = [(condition.name, arm.name) for condition in CONDITIONS for arm in condition.arms if arm.name != "plain"]
    rows = [row for condition, arm in arms if (row := _arm_row(metric, runs, condition, arm, judged))]
    unit = f" ({metric.unit})" if metric.unit else ""
    images = f"; {data['images'][metric.kind]:,} test images" if metric.kind in data["images"] else ""
    names = ("condition", "arm", "plain", "with the part", "difference", "95 %", "pairs", "p (Holm)", "verdict")
    body = table(names, rows) if rows else "Not run yet.\n\n"
    return f"### {metric.title}{unit}\n\n{metric.made_by}{images}.\n\n{body}"


def _arm_row(metric: Metric, runs: Runs, condition: str, arm: str, judged: Sequence[Judged]) -> tuple[str, ...]:
    """Means over the seeds that both arms have, and their difference; empty without such a seed."""
    terms = with_part(condition, arm)
    differences = effects(runs, metric.name, terms)
    if not differences:
        return ()
    fitted, plain = (effects(runs, metric.name, ((1, name, variant),)) for _, name, variant in terms)
    means = [
        f"{sum(values[seed] for seed in differences) / len(differences):.{metric.digits}f}"
        for values in (plain, fitted)
    ]
    mean, low, high = mean_interval(list(differences.values()))
    bounds = _bounds((low, high), metric.digits, len(differences))
    match = next((each for each in judged if each.claim.metric == metric.name and each.case.terms == terms), None)
    test = (_p(match), _outcome(match)) if match else ("exploratory", "–")
    return condition, arm, *means, f"{mean:+.{metric.digits}f}", bounds, _pairs(terms, len(differences)), *test


def _scales(runs: Runs) -> str:
    """Λ of CB_S by depth, means over seeds."""
    heading = "### Λ of scaled CB by depth\n\n"
    found = [run["layers"] for run in runs.get(("places", "cb_s"), {}).values() if "lambda_mean" in run["layers"]]
    if not found:
        return heading + "Not run yet.\n\n"
    titles = {
        "lambda_ratio": "ratio of quantiles 0.1 and 0.9 of |λ|",
        "lambda_mean": "mean λ",
        "lambda_absolute": "mean |λ|",
    }
    rows = []
    for key, title in titles.items():
        layers = [[run[key][layer] for run in found if key in run] for layer in range(len(found[0]["lambda_mean"]))]
        rows.append((title, *(f"{sum(values) / len(values):.3g}" if values else "–" for values in layers)))
    depth = len(found[0]["lambda_mean"])
    text = f'`vitlab.measure("broadcast_scale", …)`, places: cb_s, mean over seeds ({len(found)}); CB Fig. 8.\n\n'
    return heading + text + table(("layer", *(str(layer + 1) for layer in range(depth))), rows)


def _conditions(data: Mapping[str, Any]) -> str:
    rows = []
    for condition in CONDITIONS:
        done = [run for run in data["runs"] if run["condition"] == condition.name]
        planned = len(condition.arms) * len(condition.seeds)
        command = f"`python studies/cifar100_evidence.py --jobs {condition.name}`"
        notes = "; ".join(filter(None, (_compared(condition), "exploratory" if condition.exploratory else "")))
        spent = f"{sum(map(minutes, done)):.1f}"
        rows.append((condition.name, condition.title, notes or "–", f"{len(done)} of {planned}", spent, command))
    text = "GPU minutes are the runs' seconds divided by the number of processes that shared the device.\n\n"
    return "## Conditions\n\n" + text + table(("name", "what", "notes", "runs", "GPU minutes", "command"), rows)


def _compared(condition: Condition) -> str:
    return f"compared with the plain runs of {condition.baseline}" if condition.baseline else ""


def _not_run(data: Mapping[str, Any]) -> str:
    """Returns the missing runs and their estimated cost."""
    missing: dict[tuple[str, str], list[float]] = {}
    for job in missing_jobs(data["runs"]):
        key = job.condition.name, job.arm.name
        missing.setdefault(key, []).append(expected_minutes(job, data["runs"]))
    if not missing:
        return "## Not run yet\n\nEverything of this study was run.\n\n" + _other_experiments()
    rows = [
        (condition, arm, str(len(costs)), f"{sum(costs):.1f}", f"`--jobs {condition}-{arm}`")
        for (condition, arm), costs in missing.items()
    ]
    total = sum(sum(costs) for costs in missing.values())
    count = sum(map(len, missing.values()))
    text = f"{count} runs, about {total:.0f} GPU minutes by the seconds per epoch of the runs above.\n\n"
    own = table(("condition", "arm", "runs", "GPU minutes", "option"), rows)
    return "## Not run yet\n\n" + text + own + _other_experiments()


def _other_experiments() -> str:
    """Returns the experiments on Convs and MSAs that were not run, and the cost that their dry runs print."""
    rows = [(name, what, f"{minutes:g}") for name, what, minutes in MSA_EXPERIMENTS]
    return (
        "MSAs against Convs, filters and ensembles, and loss surfaces are experiments of *How Do Vision Transformers "
        f"Work?* at scale `small`. None was run on a GPU. Together they cost about {MSA_MINUTES:,} GPU minutes, "
        "since they share their training runs; `vitlab reproduce NAME --scale small --dry-run` prints the cost:\n\n"
        + table(("experiment", "about", "GPU minutes alone"), rows)
    )


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown.

    >>> print(table(("a", "b"), [("1", "|x|")]), end="")
    | a | b |
    |---|---|
    | 1 | \\|x\\| |
    <BLANKLINE>
    """
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (names, *rows)]
    lines.insert(1, "---|" * len(names))
    head, rule, *body = lines
    return "\n".join([f"| {head} |", f"|{rule}", *(f"| {line} |" for line in body)]) + "\n\n"


def _digits(name: str) -> int:
    return next(metric.digits for metric in METRICS if metric.name == name)


def _bounds(interval: tuple[float, float] | None, digits: int, pairs: int) -> str:
    if interval is None or pairs < 2:
        return "–"
    return f"{interval[0]:+.{digits}f} to {interval[1]:+.{digits}f}"


def _pairs(terms: Sequence[Term], found: int) -> str:
    """The number of pairs, and how many were planned if some are missing.

    >>> _pairs(with_part("places", "front"), 5), _pairs(with_part("centre", "cb"), 5)
    ('5', '5 of 8')
    """
    planned = _planned(terms)
    return str(found) if found == planned else f"{found} of {planned}"


def _planned(terms: Sequence[Term]) -> int:
    seeds = [set(condition.seeds) for condition in CONDITIONS for _, name, _ in terms if condition.name == name]
    return len(set.intersection(*seeds))


def _p(judged: Judged) -> str:
    if judged.p is None:
        return "–"
    return "< 0.0001" if judged.p < 1e-4 else f"{judged.p:.4f}"


def _outcome(judged: Judged) -> str:
    outcome = judged.verdict.outcome
    unsure = outcome.startswith("holds") and judged.p is not None and judged.p > 0.05
    interim = LEAST_PAIRS <= len(judged.differences) < _planned(judged.case.terms)
    return outcome + " †" * unsure + " ‡" * interim


def main() -> None:
    """Collect the runs and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="the folder of the runs; by default the data file is read")
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parents[2] / "docs/results")
    options = parser.parse_args()
    stored = options.results / "data" / f"{NAME}.json"
    data = collect(options.runs) if options.runs else json.loads(stored.read_text(encoding="utf-8"))
    write(data, options.results)
    print(f"{len(data['runs'])} runs; wrote {options.results / NAME}.md, .svg and {stored}")


if __name__ == "__main__":
    main()
