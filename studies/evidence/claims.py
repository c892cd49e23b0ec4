"""What the papers claim: published effects with their source, fixed before the runs.

An effect is positive in the direction of the claim. The smallest relevant effect is half of the published one. Where
a paper gives a curve or a picture only, the published effect is None and the claim is about the sign.

CB: "Scratching Visual Transformer's Back with Uniform Attention". TAPADL: "Robustifying Token Attention for Vision
Transformers". All of these numbers are from ImageNet, and from ViT-Ti only where that is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from evidence.conditions import CONDITIONS

__all__ = ["CLAIMS", "Case", "Claim", "Term", "with_part"]

#: A weight, a condition and an arm: an effect is a weighted sum of runs with the same seed.
Term = tuple[int, str, str]


@dataclass(frozen=True)
class Case:
    """One comparison that a claim is tested by.

    Args:
        label: for tables.
        terms: what is added and subtracted, for each seed.
        paper: the published effect.
        source: where it is published; the numbers it is the difference of.
    """

    label: str
    terms: tuple[Term, ...]
    paper: float | None
    source: str


@dataclass(frozen=True)
class Claim:
    """A published claim; p values are adjusted over its cases.

    Args:
        name: letters, digits and underscores.
        text: one sentence.
        metric: what it is about.
        sign: 1 if a rise of the metric is claimed, −1 for a fall.
        cases: the comparisons.
    """

    name: str
    text: str
    metric: str
    sign: int
    cases: tuple[Case, ...]


def with_part(condition: str, arm: str) -> tuple[Term, ...]:
    """An arm less the plain runs of its baseline.

    >>> with_part("places", "front")
    ((1, 'places', 'front'), (-1, 'centre', 'plain'))
    """
    baseline = next(each for each in CONDITIONS if each.name == condition).baseline
    return (1, condition, arm), (-1, baseline or condition, "plain")


#: Conditions with a plain and a CB arm.
CB_CONDITIONS = ("centre", "epochs50", "mix_all", "one_head", "epochs200", "tapadl")


def _cb(paper: float | None, source: str) -> tuple[Case, ...]:
    return tuple(Case(f"{name}: cb", with_part(name, "cb"), paper, source) for name in CB_CONDITIONS)


def _tapadl(*effects: tuple[str, float | None, str]) -> tuple[Case, ...]:
    return tuple(Case(f"tapadl: {arm}", with_part("tapadl", arm), paper, source) for arm, paper, source in effects)


_FIG5 = "TAPADL Fig. 5, distributions only"
_FIG1 = "TAPADL Figs. 1 and 3, pictures only"

CLAIMS: tuple[Claim, ...] = (
    Claim("cb_top1", "CB raises top-1 accuracy.", "top1", 1, _cb(1.2, "CB Table 2, ViT-Ti: 72.2 → 73.4")),
    Claim(
        "cb_entropy",
        "CB lowers the entropy of deep attention.",
        "entropy_deep",
        -1,
        _cb(None, "CB Sec. 3.3, Fig. 7a, a curve (of the class token) only"),
    ),
    Claim(
        "cb_class_entropy",
        "CB lowers the entropy of the class token's deep attention.",
        "class_entropy_deep",
        -1,
        _cb(None, "CB Fig. 7a, a curve only"),
    ),
    Claim(
        "cb_occlusion",
        "CB and scaled CB raise accuracy with the centre masked.",
        "occlusion",
        1,
        (
            *_cb(1.0, "CB Table 8, ViT-S: 73.0 → 74.0"),
            Case("places: cb_s", with_part("places", "cb_s"), 0.7, "CB Table 8, ViT-S: 73.0 → 73.7"),
        ),
    ),
    Claim(
        "cb_fgsm",
        "CB and scaled CB raise accuracy under FGSM.",
        "fgsm",
        1,
        (
            *_cb(5.1, "CB Table 8, ViT-S, ε not stated: 27.2 → 32.3"),
            Case("places: cb_s", with_part("places", "cb_s"), 0.6, "CB Table 8, ViT-S, ε not stated: 27.2 → 27.8"),
        ),
    ),
    Claim(
        "cb_forms",
        "CB in all blocks, scaled CB and gated CB raise top-1 accuracy.",
        "top1",
        1,
        (
            Case("places: all_blocks", with_part("places", "all_blocks"), 1.0, "CB Table 2, ViT-Ti: 72.2 → 73.2"),
            Case("places: cb_s", with_part("places", "cb_s"), 1.3, "CB Table 5, ViT-Ti: 72.2 → 73.5"),
            Case("places: gate", with_part("places", "gate"), 0.5, "CB Table S5, ViT-S: 79.9 → 80.4"),
        ),
    ),
    Claim(
        "cb_place",
        "CB is better in the upper blocks than in all, and better after the MLP than before it.",
        "top1",
        1,
        (
            Case(
                "upper − all blocks",
                ((1, "centre", "cb"), (-1, "places", "all_blocks")),
                0.2,
                "CB Table 2, ViT-Ti: 73.2 → 73.4",
            ),
            Case(
                "after − before the MLP",
                ((1, "places", "all_blocks"), (-1, "places", "front")),
                0.6,
                "CB Table 4b, ViT-S: 79.9 → 80.5",
            ),
        ),
    ),
    Claim(
        "cb_heads",
        "CB gains more with fewer heads.",
        "top1",
        1,
        (
            Case(
                "gain with 1 head − gain with 3",
                (*with_part("one_head", "cb"), (-1, "centre", "cb"), (1, "centre", "plain")),
                None,
                "CB Fig. 9, a curve only",
            ),
        ),
    ),
    Claim(
        "tapadl_mce",
        "TAP, ADL and both lower mCE.",
        "mce",
        -1,
        _tapadl(
            ("tap", 1.2, "TAPADL Table 2, FAN-B-Hybrid: 46.1 → 44.9"),
            ("adl", 1.7, "TAPADL Table 2, FAN-B-Hybrid: 46.1 → 44.4"),
            ("tap_adl", 2.4, "TAPADL Table 2, FAN-B-Hybrid: 46.1 → 43.7"),
        ),
    ),
    Claim(
        "tapadl_top1",
        "TAP, ADL and both raise top-1 accuracy.",
        "top1",
        1,
        _tapadl(
            ("tap", 0.4, "TAPADL Table 2, FAN-B-Hybrid: 83.9 → 84.3"),
            ("adl", 0.1, "TAPADL Table 2, FAN-B-Hybrid: 83.9 → 84.0"),
            ("tap_adl", 0.4, "TAPADL Table 2, FAN-B-Hybrid: 83.9 → 84.3"),
        ),
    ),
    Claim(
        "tapadl_stability",
        "TAP, ADL and both make attention more stable under noise.",
        "stability",
        1,
        _tapadl(("tap", None, _FIG5), ("adl", None, _FIG5), ("tap_adl", None, _FIG5)),
    ),
    Claim(
        "tapadl_heads",
        "TAP and ADL together make heads less alike.",
        "head_similarity",
        -1,
        _tapadl(("tap_adl", 0.36, "TAPADL Sec. 4.1.2, FAN-B-Hybrid: 0.63 → 0.27")),
    ),
    Claim(
        "tapadl_overfocus",
        "TAP, ADL and both lower token overfocus.",
        "overfocus",
        -1,
        _tapadl(("tap", None, _FIG1), ("adl", None, _FIG1), ("tap_adl", None, _FIG1)),
    ),
)
