"""The direction of every statistical claim of HDVW, written from the sentences of the paper.

`examples.py` inverts the effects of the experiments, so it cannot see that an effect compares the wrong arms, or that
its sign is wrong. A line of `directions.txt` says which number must be higher in which arm; measurements are made from
it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from experiments.synthetic import entry, layered, measured
from vitlab.core.experiment import Results
from vitlab.core.measurement import Measurement
from vitlab.core.verdicts import Verdict
from vitlab.experiments.catalogue import experiment, select

#: A claim per line: figure, claim, the number that it is about, and its order. Arms joined by `|` are equal; 0 is the
#: number 0 and no arm.
CLAIMS = Path(__file__).with_name("directions.txt").read_text(encoding="utf-8")

#: Claims about every pair of arms, and those about two numbers, which have tests of their own.
LENGTHS = ["length 1", "length 2", "length 4", "length 8"]
NETWORKS = ["resnet50", "resnext50", "vit_tiny", "pit_tiny", "swin_tiny"]
MORE_NETWORKS = [*NETWORKS, "twins_small", "mixer_tiny"]
TOGETHER = {
    ("fig_5", "order"): MORE_NETWORKS,
    ("fig_c1", "cifar10_order"): [f"cifar10 {network}" for network in MORE_NETWORKS],
    ("fig_c1", "imagenet_order"): [f"imagenet {network}" for network in NETWORKS],
}
EVERY_LENGTH = {("fig_c2", "error_above_resnet"): "error", ("fig_c2", "nll_above_resnet"): "nll"}


def fit(error: float = 0.5, nll: float = 5.0) -> Measurement:
    return measured("train_fit", test_error=error, train_nll=nll)


def hessian(nep: float = 0.5, ape: float = 7.0, size: float = 9.0) -> Measurement:
    return measured("hessian_spectrum", negative_proportion=nep, positive_average=ape, eigenvalues=[[-size, size]])


def landscape(near: float = 0.0, boundary: float = 0.0, nll: float = 0.0) -> Measurement:
    """The total loss next to the centre of the plane and at its boundary, and the NLL at its boundary."""
    offset = np.abs(np.arange(5) - 2)
    ring = np.maximum(offset[:, None], offset)
    return measured(
        "loss_landscape", total=near * (ring == 1) + boundary * (ring == 2), nll=np.where(ring == 2, nll, 0.0)
    )


def waves(size: float) -> Measurement:
    """A paraboloid with waves that no paraboloid has."""
    x = np.arange(5) - 2.0
    bowl = x[:, None] ** 2 + x**2
    return measured(
        "loss_landscape", total=bowl + size * np.outer([-1.0, 2.0, 0.0, -2.0, 1.0], np.ones(5)), nll=0 * bowl
    )


def noise(low: float = 0.0, high: float = 0.0) -> Measurement:
    drop = [0.9, low, low, 0.3, high, high]
    return layered("frequency_noise", {"frequency": (0.0, 0.1, 0.3, 0.5, 0.8, 1.0)}, drop=(("frequency",), drop))


def fourier(value: float, unit: str, blocks: range) -> Measurement:
    """The change in some units of 8 blocks; that of the others is the opposite."""
    names = [f"blocks.{i} {each}" for i in range(8) for each in ("MSA", "MLP")]
    chosen = [name.endswith(unit) and int(name.split(".")[1].split()[0]) in blocks for name in names]
    return layered(
        "feature_fourier",
        {"step": names, "place": ("0", "1", "2")},
        change=(("step",), np.where(chosen, value, -value)),
        high=(("place",), [0.0, 0.0, 0.0]),
    )


def variance(
    value: float = 0.0,
    chosen: Callable[[str, int, int], bool] = lambda unit, stage, block: True,
    logs: Callable[[int, int], float] = lambda stage, block: 0.0,
) -> Measurement:
    """4 stages of 3 blocks: the change in the units that are chosen, else the opposite, and the log variance."""
    blocks = [(stage, block) for stage in range(1, 5) for block in range(3)]
    steps = [(unit, *block) for block in blocks for unit in ("MSA", "MLP", "Conv")]
    change = [value if chosen(*step) else -value for step in steps]
    axes = {
        "step": [f"layers.{stage - 1}.blocks.{block} {unit}" for unit, stage, block in steps],
        "place": [f"layers.{stage - 1}.blocks.{block} out" for stage, block in blocks],
    }
    after = np.exp([logs(*block) for block in blocks])
    return layered("feature_variance", axes, change=(("step",), change), variance=(("place",), after))


def cka(inside: float, across: float) -> Measurement:
    """Similarities of blocks of the same stage and of different stages."""
    stage = np.array([0, 0, 1, 1])
    names = ["stages.0.0", "stages.0.1", "stages.1.0", "stages.1.1"]
    values = np.where(stage[:, None] == stage, inside, across)
    axes = {"layer": names, "other_layer": names}
    return layered("representation_cka", axes, cka=(("layer", "other_layer"), values))


def lesion(value: float, unit: str, chosen: Callable[[int, int], bool]) -> Measurement:
    """The accuracy lost without a unit for which `chosen(stage, block)`; much for units of the other kinds."""
    units = [(kind, stage, block) for stage in range(4) for block in range(2) for kind in ("MSA", "MLP", "Conv")]
    loss = [value * chosen(stage, block) if kind == unit else 0.5 - value * block for kind, stage, block in units]
    return layered(
        "lesion",
        {"unit": [f"stages.{stage}.{block} {kind}" for kind, stage, block in units]},
        change=(("unit",), -np.array(loss)),
        stage=(("unit",), [stage for _, stage, _ in units]),
    )


#: Number -> a measurement in which it is this level, times a size that is relevant for it.
NUMBERS: dict[str, Callable[[float], Measurement]] = {
    "error": lambda level: fit(error=level / 10),
    "accuracy": lambda level: fit(error=1 - level / 10),
    "nll": lambda level: fit(nll=level),
    "nep": lambda level: hessian(nep=level / 10),
    "ape": lambda level: hessian(ape=np.exp(level)),
    "eigenvalues": lambda level: hessian(size=np.exp(level)),
    "rise": lambda level: landscape(boundary=level),
    "nll_rise": lambda level: landscape(nll=level),
    "near_rise": lambda level: landscape(near=level),
    "not_parabolic": waves,
    "turning": lambda level: measured("trajectory", angle=[0.0, 0.0, level, np.nan]),
    "high_noise_drop": lambda level: noise(high=level / 10),
    "low_noise_drop": lambda level: noise(low=level / 10),
    "robustness": lambda level: measured("corruptions", mean_accuracy=level / 10),
    "signed_ece": lambda level: measured("calibration", signed_ece=level / 10, ece=0.3),
    "ece": lambda level: measured("calibration", signed_ece=0.3, ece=level / 10),
    "speed": lambda level: measured("speed", images_per_second=100 * level),
    "deep_high": lambda level: layered("feature_fourier", {}, high=(("place",), [0.0, -level, level, -level])),
    "late_msa": lambda level: fourier(level, "MSA", range(2, 8)),
    "late_mlp": lambda level: fourier(level, "MLP", range(2, 8)),
    "early_msa": lambda level: fourier(level, "MSA", range(2)),
    "all_msa": lambda level: fourier(level, "MSA", range(8)),
    "all_mlp": lambda level: fourier(level, "MLP", range(8)),
    "variance_msa": lambda level: variance(level, lambda unit, stage, block: unit == "MSA"),
    "variance_mlp": lambda level: variance(level, lambda unit, stage, block: unit == "MLP"),
    "variance_conv": lambda level: variance(level, lambda unit, stage, block: unit == "Conv"),
    "variance_124": lambda level: variance(level, lambda unit, stage, block: unit == "MSA" and stage != 3),
    "variance_3_last": lambda level: variance(level, lambda *step: step == ("MSA", 3, 2)),
    "variance_trend": lambda level: variance(logs=lambda stage, block: level * (3 * stage + block)),
    "variance_peak": lambda level: variance(logs=lambda stage, block: level * (block == 2)),
    "cka": lambda level: cka(level / 10, level / 10),
    "cka_drop": lambda level: cka(0.5 + level / 10, 0.5),
    "conv_first": lambda level: lesion(level / 10, "Conv", lambda stage, block: stage == 0),
    "conv_start": lambda level: lesion(level / 10, "Conv", lambda stage, block: block == 0),
    "mlp_start": lambda level: lesion(level / 10, "MLP", lambda stage, block: block == 0),
    "msa_end": lambda level: lesion(level / 10, "MSA", lambda stage, block: block == 1),
}


def lines() -> list[tuple[str, str, str, list[list[str]]]]:
    found = []
    for line in CLAIMS.splitlines():
        figure, claim, number, order = line.split(maxsplit=3)
        found.append((figure, claim, number, [group.split(" | ") for group in order.split(" > ")]))
    return found


def verdict_of(figure: str, claim: str, results: Results) -> Verdict:
    judged = experiment(f"hdvw_{figure}")
    return judged.check(results)[[each.name for each in judged.claims].index(claim)]


def levels_of(order: list[list[str]], *, reverse: bool = False) -> dict[str, float]:
    """The level of each arm: the first group is the highest, the number 0 has level 0.

    >>> levels_of([["a"], ["b"]]), levels_of([["0"], ["a"]]), levels_of([["0"], ["a"]], reverse=True)
    ({'a': 2.0, 'b': 1.0}, {'a': -1.0}, {'a': 1.0})
    """
    levels = {arm: float(len(order) - place) for place, group in enumerate(order) for arm in group}
    if reverse:
        levels = {arm: len(order) + 1 - level for arm, level in levels.items()}
    zero = levels.pop("0", 0.0)
    return {arm: level - zero for arm, level in levels.items()}


@pytest.mark.parametrize(("figure", "claim", "number", "order"), lines())
def test_a_claim_holds_in_its_direction_only(figure: str, claim: str, number: str, order: list[list[str]]) -> None:
    outcomes = [
        verdict_of(
            figure,
            claim,
            Results(
                [
                    entry(arm, NUMBERS[number](level + 0.001 * seed * level), seed)
                    for arm, level in levels_of(order, reverse=reverse).items()
                    for seed in range(3)
                ]
            ),
        ).outcome
        for reverse in (False, True)
    ]
    assert outcomes == ["holds", "does not hold"]


@pytest.mark.parametrize(("figure", "claim"), TOGETHER)
def test_error_and_nll_rise_together(figure: str, claim: str) -> None:
    arms = TOGETHER[figure, claim]
    for sign, outcome in ((1.0, "holds"), (-1.0, "does not hold")):
        found = [
            entry(arm, fit(error=0.5 + sign * place / 100, nll=1 + 0.1 * place + 0.001 * seed * place), seed)
            for place, arm in enumerate(arms)
            for seed in range(3)
        ]
        assert verdict_of(figure, claim, Results(found)).outcome == outcome


@pytest.mark.parametrize(("figure", "claim"), EVERY_LENGTH)
def test_every_length_counts(figure: str, claim: str) -> None:
    """ViT is worse for every number of epochs; one length at which it is better is enough against the claim."""
    number = NUMBERS[EVERY_LENGTH[figure, claim]]
    for better, outcome in (([], "holds"), (LENGTHS[1:2], "does not hold"), (LENGTHS, "does not hold")):
        found = [
            entry(f"{network}, {length}", number(2 + 0.001 * seed + lead * (-1 if length in better else 1)), seed)
            for network, lead in (("vit_tiny", 1.0), ("resnet50", 0.0))
            for length in LENGTHS
            for seed in range(3)
        ]
        assert verdict_of(figure, claim, Results(found)).outcome == outcome


def test_every_statistical_claim_has_a_direction() -> None:
    claims = {
        (each.name.removeprefix("hdvw_"), claim.name)
        for each in select(paper="hdvw")
        if not each.origin
        for claim in each.claims
        if not claim.deterministic
    }
    assert claims == {(figure, claim) for figure, claim, *_ in lines()} | set(TOGETHER) | set(EVERY_LENGTH)
