"""The number of forwards by the declared cost, against the number of forwards that really run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vitlab import load
from vitlab.core import plugins
from vitlab.core.forwards import forwards
from vitlab.runner.measured_model import procedure

MODEL = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=5)"

RUNS = [
    ("stress test", "corruptions(names=('fog', 'snow'), severities=(1, 3))"),
    ("stress test", "frequency_noise(frequencies=(0.1, 0.5))"),
    ("stress test", "occlusion(ratios=0.5)"),
    ("stress test", "patch_shuffle(grids=(2, 4))"),
    ("instrument", "attention_entropy"),
    ("instrument", "attention_stability"),
    ("instrument", "calibration"),
]


@pytest.mark.parametrize(("kind", "text"), RUNS)
def test_as_many_forwards_as_run(kind: str, text: str) -> None:
    known = plugins.instruments() if kind == "instrument" else plugins.stress_tests()
    one = procedure(kind, text, known)
    model, count = load(MODEL), 0
    images, labels = torch.rand(3, 3, 32, 32), torch.arange(3)

    def counted(*_: Any) -> None:
        nonlocal count
        count += 1

    _, module = plugins.procedure(kind, one.name, dict(known))
    module.measure(model, [(images, labels)], **one.settings)  # describes the model, which takes forwards of its own
    hook = model.patch_embed.register_forward_pre_hook(counted)
    module.measure(model, [(images, labels)], **one.settings)
    hook.remove()
    expected = forwards(one.card.cost, {**one.defaults, **one.settings})
    assert expected is not None and count in (expected, expected + 1), "a description may add one forward"


def test_gradients_count_as_three_forwards() -> None:
    known = plugins.stress_tests()
    one = procedure("stress test", "adversarial(epsilons=(1.0, 2.0), steps=4)", known)
    assert forwards(one.card.cost, {**one.defaults, **one.settings}) == 1 + 3 * 2 * (1 + 4)


def test_a_cost_in_other_words_is_not_known() -> None:
    assert forwards("as many forwards as needed", {}) is None
    assert forwards("1 + things forwards", {}) is None
