"""Models are distinguished by their weights; different weights are not averaged; untrained models are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitlab.core.measurement import Measurement
from vitlab.reporting import read, report
from vitlab.reporting.models import name_models


def found(
    subject: str, value: float, weights: str = "", origin: str = "random", kind: str = "attention_entropy", **about: Any
) -> Measurement:
    table = np.full((2, 2), value)
    model = {"model": {"name": subject, "expression": None, "weights": weights, "origin": origin}} if weights else {}
    settings = about.pop("settings", {})
    return Measurement(kind, subject, {"mean": table}, {"mean": ("layer", "head")}, {}, settings, {**model, **about})


def subjects(*measurements: Measurement) -> list[str]:
    return [m.subject for m in name_models(measurements).measurements]


def page(tmp_path: Path, *measurements: Measurement) -> str:
    return report(measurements, tmp_path / "page.html").read_text(encoding="utf-8").partition("<script>")[0]


def test_different_models_of_the_same_name_are_not_averaged(tmp_path: Path) -> None:
    """Measured from Python without a subject: entropies 2.83 and 0.11 were averaged to 1.47."""
    two = [found("VisionTransformer", 2.83, "aa11bb22"), found("VisionTransformer", 0.11, "cc33dd44")]
    assert subjects(*two) == ["VisionTransformer (aa11bb)", "VisionTransformer (cc33dd)"]
    text = page(tmp_path, *two)
    assert "2.83" in text and "1.47" not in text
    assert "2 models are called &#39;VisionTransformer&#39; (different weights or settings)" in text


def test_without_digests_and_repeats_measurements_are_of_two_models() -> None:
    assert subjects(found("ViT", 1.0), found("ViT", 2.0)) == ["ViT", "ViT (2)"]
    kinds = [found("ViT", value, kind=kind) for kind in ("attention_entropy", "other") for value in (1.0, 2.0)]
    assert subjects(*kinds) == ["ViT", "ViT (2)", "ViT", "ViT (2)"]
    assert name_models(kinds).remarks[0].startswith("2 models are called 'ViT' (not marked as repeats)")


@pytest.mark.parametrize(
    "about",
    [
        lambda i: {"part": [i, 3], "data": f"scenes test[{i}::3] x{i}"},
        lambda i: {"data": f"scenes test[{i}::3] x{i}"},
        lambda i: {"settings": {"seed": i}},
        lambda i: {"seed": i},
        lambda i: {"repeat": i},
    ],
)
def test_declared_repeats_are_one_model(about: Any) -> None:
    for weights in ("", "aa11"):
        named = name_models([found("ViT", float(i), weights, **about(i)) for i in range(3)])
        assert [m.subject for m in named.measurements] == ["ViT"] * 3 and not named.remarks


def test_equal_weights_are_one_model_under_any_name() -> None:
    path = "file/runs/cb/model.safetensors"
    origin = f"file: {path.removeprefix('file/')}"
    measured = found(path, 1.0, "aa11", origin), found("ViT + CB", 2.0, "aa11", origin, kind="other")
    named = name_models(measured)
    assert [m.subject for m in named.measurements] == ["ViT + CB"] * 2
    assert named.origins == {"ViT + CB": origin} and not named.untrained
    old = found("ViT + CB", 3.0, kind="training")  # without a digest, but of a name that only one model has
    assert subjects(*measured, old) == ["ViT + CB"] * 3


def test_the_same_measurement_twice_is_not_a_repeat() -> None:
    """Same weights, same images: another device moves the last digits, which is no noise of the images."""
    twice = [found("ViT", x, "aa11", data="scenes test[:8] h") for x in (1.0, 1.0001)]
    named = name_models(twice)
    assert len(named.measurements) == 1 and named.remarks == [
        "1 measurement omitted: same weights, images and settings."
    ]


def test_untrained_models_and_origins_of_weights_are_stated(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        found("plain", 1.0, "aa11", "hub: timm/deit_tiny.fb_in1k"),
        found("new", 2.0, "bb22", "random"),
        found("old", 3.0),
    )
    assert "Weights: plain: hub timm/deit_tiny.fb_in1k; new: random, not trained." in text
    assert "new has random weights and was not trained." in text and "plain has random" not in text
    assert "random weights" not in page(tmp_path, found("old", 3.0))


@pytest.mark.parametrize("path", ["{run}", "{run}/model.safetensors"])
@pytest.mark.parametrize("weights", ["", "aa11"])
def test_a_measurement_of_a_run_s_file_belongs_to_the_run(tmp_path: Path, path: str, weights: str) -> None:
    run = tmp_path / "runs" / "cb"
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(json.dumps({"epoch": 1, "top1": 50.0, "test_images": 100}) + "\n")
    where = path.format(run=run)
    found(f"file/{where}", 1.0, weights, f"file: {where}").save(tmp_path / "measure" / "entropy")
    found(f"file/{where} | Part()", 1.5).save(tmp_path / "measure" / "with_part")
    made = read([tmp_path])
    assert [(m.kind, m.subject) for m in made if "|" not in m.subject] == [
        ("attention_entropy", "cb"),
        ("training", "cb"),
    ]
    assert {m.subject for m in name_models(made).measurements} == {"cb", f"file/{where} | Part()"}
    curve = next(m for m in made if m.kind == "training")
    assert 0.04 < float(curve.values[curve.errors["top1"]][0]) / 100 < 0.06  # √(¼ / 100), about
    snapshot = found(f"file/{run}/snapshots/epoch-1.safetensors", 2.0, "bb22")
    snapshot.save(tmp_path / "measure" / "early")
    assert snapshot.subject in {m.subject for m in read([tmp_path])}, "other weights of a run are another model"


def test_other_preprocessing_is_not_a_duplicate(tmp_path: Path) -> None:
    """Accuracies of 50 and 39 % with another mean: the second was left out as the same measurement."""
    two = [
        found("ViT", value, "aa11", data="scenes test[all 8] h", preprocessing={"mean": [mean], "source": source})
        for value, mean, source in ((1.25, 0.5, "timm"), (2.25, 0.0, "timm, changed: mean"))
    ]
    named = name_models(two)
    assert len(named.measurements) == 2 and not named.remarks
    text = page(tmp_path, *two)
    assert "preprocessing mean=[0.5]" in text and "preprocessing mean=[0.0]" in text and "1.75" not in text


def test_images_that_were_split_into_parts_later_are_shown_once() -> None:
    """`measure`, then `measure --repeats 2` into the same folder."""
    data = "scenes test[8 of 32, evenly spaced"
    whole = found("ViT", 1.5, "aa11", images=8, data=f"{data}] h")
    parts = [found("ViT", float(i), "aa11", images=4, data=f"{data}, part {i} of 2] h{i}") for i in (1, 2)]
    named = name_models([whole, *parts])
    assert [float(m.values["mean"][0, 0]) for m in named.measurements] == [1.0, 2.0]
    assert named.remarks == ["1 measurement omitted: the same images are shown split into another number of parts."]
    interrupted = name_models([whole, parts[0]])
    assert [float(m.values["mean"][0, 0]) for m in interrupted.measurements] == [1.5], "more images"


def test_equal_weights_of_other_settings_are_two_models() -> None:
    """`num_heads=2` and `num_heads=3` with the same random weights: the second was left out as a duplicate."""
    about = [{"weights": "aa11", "architecture": f"timm/vit(num_heads={heads})"} for heads in (2, 3)]
    two = [
        Measurement("attention_entropy", f"timm/vit(num_heads={h})", {"mean": np.ones((1, h))},
                    {"mean": ("layer", "head")}, provenance={"model": each, "data": "scenes test[all 8] h"})
        for h, each in zip((2, 3), about, strict=True)
    ]  # fmt: skip
    named = name_models(two)
    assert [m.values["mean"].shape for m in named.measurements] == [(1, 2), (1, 3)] and not named.remarks
    assert len({m.subject for m in named.measurements}) == 2
    curve = found("run", 3.0, "aa11", kind="training")  # the weights of a run folder, without the architecture
    assert subjects(two[0], curve) == ["timm/vit(num_heads=2)"] * 2


def test_images_that_are_not_known_are_not_called_the_same() -> None:
    """Measured in Python on two lists of images: the second was left out as the same images."""
    named = name_models([found("ViT", value, "aa11") for value in (1.0, 2.0)])
    assert len(named.measurements) == 1
    assert "on images that are not known; name the images with Batches" in named.remarks[0]
    apart = name_models([found("ViT", value, "aa11", data=data) for value, data in ((1.0, "clean"), (2.0, "dark"))])
    assert len(apart.measurements) == 2 and not apart.remarks
