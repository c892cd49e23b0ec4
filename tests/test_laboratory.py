"""Measuring by name: what is already there is found again, and nothing else is taken for it."""

from __future__ import annotations

from pathlib import Path

import torch

import vitlab
from vitlab import laboratory, zoo
from vitlab.core.measurement import Measurement

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"


def measured(model: str, name: str, out: Path, images: int = 4) -> tuple[Path, Measurement]:
    (path,) = laboratory.measure([model], [name], out, images=images, show=False)
    return path, Measurement.load(path)


def test_the_same_is_not_measured_again_and_another_is(tmp_path: Path) -> None:
    path, first = measured(TINY, "attention_diversity", tmp_path)
    assert measured(TINY, "attention_diversity", tmp_path)[1].provenance["time"] == first.provenance["time"]
    other, second = measured(TINY, "attention_diversity(tau=0.5)", tmp_path)
    assert other != path and second.settings["tau"] == 0.5
    assert measured(TINY, "attention_diversity", tmp_path)[1].settings.get("tau", 0) == 0
    _, more = measured(TINY, "attention_diversity", tmp_path, images=5)
    assert more.provenance["images"] == 5


def test_new_weights_in_the_same_file_are_measured_again(tmp_path: Path) -> None:
    model, path = vitlab.load(TINY, seed=0), tmp_path / "model.safetensors"
    zoo.save(model, TINY, str(path))
    _, first = measured(f"file/{path}", "attention_entropy", tmp_path / "out")
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(20)
    zoo.save(model, TINY, str(path))
    _, second = measured(f"file/{path}", "attention_entropy", tmp_path / "out")
    assert (first.values["mean"] != second.values["mean"]).all()
