"""Synthetic results for the contract of HDVW's experiments: the effects on a claim are those given.

A claim is decided by an `Effect` of readings. Here each reading has an inverse: a measurement that has a given value.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.synthetic import entry, layered, measured
from vitlab.core.experiment import Claim, Results
from vitlab.core.measurement import Measurement
from vitlab.experiments.how_vits_work import _feature_maps as feature_maps
from vitlab.experiments.how_vits_work import _readings as readings
from vitlab.experiments.how_vits_work._effects import Check, Reading, Sum

Values = Mapping[Reading, float]


def example(experiment: str, claim: Claim, effects: Sequence[float]) -> Results:
    """Results of an experiment, named by its file, with these effects on one claim."""
    check = check_of(experiment, claim.name)
    if claim.deterministic:
        return FACTS[experiment, claim.name](effects[0])
    return Results([found for seed, effect in enumerate(effects) for found in entries(experiment, check, effect, seed)])


def check_of(experiment: str, claim: str) -> Check:
    module = importlib.import_module(f"vitlab.experiments.how_vits_work.{experiment}")
    return next(check for check in module._CHECKS if check.claim.name == claim)


def entries(experiment: str, check: Check, effect: float, seed: int) -> list[tuple]:
    """The jobs of one seed, with one measurement per arm."""
    terms = check.effect.terms
    by_arm: dict[str, dict[Reading, float]] = {}
    for (reading, arm), value in zip(terms, term_values(experiment, check, effect), strict=True):
        by_arm.setdefault(arm, {})[reading] = value
    return [entry(arm, MAKERS[next(iter(values)).kinds[0]](values), seed) for arm, values in by_arm.items()]


def term_values(experiment: str, check: Check, effect: float) -> list[float]:
    """Values of the terms for which the combined effect is the given one; none is negative where that is possible."""
    combine = check.effect.combine
    if not isinstance(combine, Sum):
        return SOLVERS[experiment, check.claim.name](effect, len(check.effect.terms))
    same = [i for i, weight in enumerate(combine.weights) if weight * effect > 0] or [0]
    return [effect / weight if i == same[0] else 0.0 for i, weight in enumerate(combine.weights)]


# -- effects that are not sums ----------------------------------------------------------------------------------------


def _line(effect: float, terms: int) -> list[float]:
    """Points on a line with this slope: all x, then all y."""
    x = [float(i) for i in range(terms // 2)]
    return x + [effect * each for each in x]


def _first_half(effect: float, terms: int) -> list[float]:
    return [effect] * (terms // 2) + [0.0] * (terms // 2)


def _first_against_all(effect: float, terms: int) -> list[float]:
    return [max(effect, 0.0)] + [max(-effect, 0.0)] * (terms - 1)


SOLVERS: dict[tuple[str, str], Callable[[float, int], list[float]]] = {
    ("fig_5", "order"): _line,
    ("fig_7", "comparable"): lambda effect, terms: [0.0, 0.0, effect],
    ("fig_c1", "cifar10_order"): _line,
    ("fig_c1", "imagenet_order"): _line,
    ("fig_c2", "error_above_resnet"): _first_half,
    ("fig_c2", "nll_above_resnet"): _first_half,
    ("fig_c4", "smooth_trajectories"): _first_against_all,
    ("fig_e1", "on_par_with_swin"): lambda effect, terms: [-effect, 0.0, 0.0],
    **{
        ("throughput", name): lambda effect, terms: [1 + effect, 1.0]
        for name in ("alternet50", "vit_tiny", "pit_tiny", "swin_tiny")
    },
}


# -- measurements by kind ---------------------------------------------------------------------------------------------


def _train_fit(values: Values) -> Measurement:
    error = values.get(readings.ERROR, 100 - values.get(readings.ACCURACY, 100.0))
    return measured("train_fit", test_error=error / 100, train_nll=values.get(readings.NLL_TRAIN, 0.0))


def _hessian(values: Values) -> Measurement:
    return measured(
        "hessian_spectrum",
        negative_proportion=values.get(readings.NEP, 0.0),
        positive_average=np.exp(values.get(readings.LOG_APE, 0.0)),
        eigenvalues=[[np.exp(values.get(readings.LOG_SIZE, 0.0))]],
    )


def _landscape(values: Values) -> Measurement:
    (reading, value), *_ = values.items()
    offset = np.abs(np.arange(5) - 2)
    ring = np.maximum(offset[:, None], offset)
    if reading is readings.ROUGHNESS:
        bowl = (offset[:, None] ** 2 + offset**2).astype(float)
        # an odd cubic part that no paraboloid can fit: orthogonal polynomials of 5 points
        wave = np.outer(np.array([-1.0, 2.0, 0.0, -2.0, 1.0]), np.ones(5))
        scale = np.linalg.norm(bowl - bowl.mean()) / np.linalg.norm(wave)
        return measured("loss_landscape", total=bowl + np.exp(value) * scale * wave)
    surface = np.where(ring == (1 if reading is readings.NEAR_RISE else 2), value, 0.0)
    return measured("loss_landscape", total=surface, nll=surface)


def _fourier(values: Values) -> Measurement:
    (reading, value), *_ = values.items()
    names = [f"blocks.{i} {unit}" for i in range(8) for unit in ("MSA", "MLP")]
    change = [value if reading.name.endswith(f"{name.split()[1]}s") else 100.0 for name in names]
    return layered(
        "feature_fourier", {"step": names}, change=(("step",), change), high=(("place",), [0.0, value, 100.0])
    )


def _variance(values: Values) -> Measurement:
    (reading, value), *_ = values.items()
    blocks = [f"layers.{stage}.blocks.{i}" for stage in range(4) for i in range(2)]
    names = [f"{block} {unit}" for block in blocks for unit in ("MSA", "MLP", "Conv")]
    change = [value if _changes(reading.name, name) else 100.0 for name in names]
    logs = np.zeros(8)
    if not reading.name.startswith("relative"):
        logs = np.arange(8) * value if "slope" in reading.name else np.tile([0.0, value], 4)
    axes = {"step": names, "place": [f"{block} out" for block in blocks]}
    return layered("feature_variance", axes, change=(("step",), change), variance=(("place",), np.exp(logs)))


def _changes(reading: str, step: str) -> bool:
    """Whether a step is among those of a reading, by their names."""
    stage, block = (int(number) for number in re.findall(r"\d+", step))
    if f"in {step.split()[1]}s" not in reading:
        return False
    if "outside stage 3" in reading:
        return stage != 2
    return "of stages (3,)" not in reading or (stage == 2 and block == 1)


def _cka(values: Values) -> Measurement:
    (reading, value), *_ = values.items()
    cka = np.full((3, 3), value)
    if reading is feature_maps.STAGE_DROP:
        cka[1:, 1:] = 0.0
    names = ["stages.0.0", "stages.0.1", "stages.1.0"]
    axes = {"layer": names, "other_layer": names}
    return layered("representation_cka", axes, cka=(("layer", "other_layer"), cka))


def _lesion(values: Values) -> Measurement:
    (reading, value), *_ = values.items()
    unit, place = re.findall(r"without a (\w+), (\w+) minus", reading.name)[0]
    others = "MSA" if unit == "MLP" else "MLP"
    chosen = {"start": (0, 2), "end": (1, 3), "first": (0, 1), "last": (2, 3)}[place]
    names = [f"stages.{i // 2}.{i % 2} {kind}" for i in range(4) for kind in (unit, others)]
    change = [
        (-value / 100 if i in chosen else 0.0) if kind == unit else 9.0 for i in range(4) for kind in (unit, others)
    ]
    stage = [i // 2 for i in range(4) for _ in range(2)]
    return layered("lesion", {"unit": names}, change=(("unit",), change), stage=(("unit",), stage))


def _noise(values: Values) -> Measurement:
    drop = [values.get(readings.LOW_NOISE_DROP, 0.0) / 100, 9.0, values.get(readings.HIGH_NOISE_DROP, 0.0) / 100]
    return layered("frequency_noise", {"frequency": (0.2, 0.5, 0.9)}, drop=(("frequency",), drop))


def _trajectory(values: Values) -> Measurement:
    return measured("trajectory", angle=[0.0, 0.0, values[readings.TURNING], np.nan])


def _calibration(values: Values) -> Measurement:
    signed, absolute = (values.get(name, 0.0) / 100 for name in (readings.OVERCONFIDENCE, readings.CALIBRATION_ERROR))
    return measured("calibration", signed_ece=signed, ece=absolute)


MAKERS: dict[str, Callable[[Values], Measurement]] = {
    "train_fit": _train_fit,
    "hessian_spectrum": _hessian,
    "loss_landscape": _landscape,
    "feature_fourier": _fourier,
    "feature_variance": _variance,
    "representation_cka": _cka,
    "lesion": _lesion,
    "frequency_noise": _noise,
    "trajectory": _trajectory,
    "calibration": _calibration,
    "corruptions": lambda values: measured("corruptions", mean_accuracy=values[readings.ROBUSTNESS] / 100),
    "speed": lambda values: measured("speed", images_per_second=next(iter(values.values()))),
}


# -- deterministic claims ---------------------------------------------------------------------------------------------


def plan_of(stages: Sequence[str], parts: Sequence[str] = (), heads: Sequence[int] = (3, 6, 12, 24)) -> Measurement:
    """A block plan from one word per stage, C for Conv and M for MSA; `parts` are the parts of each block."""
    kinds = [(stage, kind) for stage, word in enumerate(stages) for kind in word]
    return measured(
        "blocks",
        mixer=np.array(["window attention" if kind == "M" else "conv" for _, kind in kinds]),
        stage=[stage for stage, _ in kinds],
        heads=[heads[stage] if kind == "M" else 0 for stage, kind in kinds],
        mlp=[kind == "M" for _, kind in kinds],
        parts=np.array(list(parts) or [""] * len(kinds)),
    )


def _plans(arm: str, true: Measurement, false: Measurement) -> Callable[[float], Results]:
    return lambda value: Results([entry(arm, true if value else false)])


def _sizes(value: float) -> Results:
    macs = {"Conv": 2.0, "MSA": 1.0 + value, "neither": 1.0}
    return Results([entry(arm, measured("sizes", macs=each)) for arm, each in macs.items()])


def _depths(value: float) -> Results:
    arms = {"alternet50": ["CCC", "CC", "CC", "CCCM"], "preact_resnet50": ["CCC", "CC", "CC", "CCC" if value else "CC"]}
    return Results([entry(arm, plan_of(stages)) for arm, stages in arms.items()])


def _count(value: float) -> Results:
    return Results([entry("alternet50", plan_of(["C" * 3 + "CM" * int(value)]))])


def _attention(value: float) -> Results:
    mixing = np.array([[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.2, 0.1, 0.7]])
    maps = np.tile(mixing, (1, 2, 1, 1)) if value else np.tile(np.eye(3), (1, 2, 1, 1))
    return Results([entry("attention", measured("attention_maps", last=maps, key_prefix=[0]))])


_BLUR = "SpatialSmoothing"
_ALL = "MSAs in all stages"
FACTS: dict[tuple[str, str], Callable[[float], Results]] = {
    ("fig_3", "smoothing_at_stage_ends"): _plans(
        "spatial smoothing",
        plan_of(["CC", "CC"], ["", _BLUR, "", _BLUR]),
        plan_of(["CC", "CC"], ["", _BLUR, _BLUR, _BLUR]),
    ),
    ("fig_3", "canonical_transformer"): _plans("transformer", plan_of(["MMM"]), plan_of(["MCM"])),
    ("fig_3", "alternating"): _plans("alternating", plan_of(["CCM", "CMCM"]), plan_of(["CCM", "CMMC"])),
    ("fig_11", "stage_ends"): _plans("alternet50", plan_of(["CC", "CM", "CCM"]), plan_of(["CM", "CM", "CCM"])),
    ("fig_11", "heads"): _plans(_ALL, plan_of(["CM"] * 4), plan_of(["CM"] * 4, heads=(3, 6, 12, 12))),
    ("fig_11", "even_last_stage"): _depths,
    ("fig_11", "equal_costs"): _sizes,
    ("fig_d5", "msas"): _count,
    ("fig_d5", "build_up"): _plans("alternet50", plan_of(["CCC", "CCCM", "CMCM"]), plan_of(["CCC", "CCCM", "CCCM"])),
    ("fig_d5", "swin_like"): _plans(_ALL, plan_of(["CCM", "CMCM"]), plan_of(["CCM", "CCCM"])),
    ("spatial_smoothing", "proposition_b1"): _attention,
}
