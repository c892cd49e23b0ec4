"""Detection from end to end on tiny scenes: learns, resumes bit for bit, two processes, commands and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitlab
from vitlab import runner, zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Measurement
from vitlab.core.recipe import Augment, Detection, Objective, Optimizer, Recipe, change
from vitlab.core.store import Run
from vitlab.data.detection_batches import targets_of
from vitlab.data.detection_sets import open_detection
from vitlab.data.run_lengths import encode_mask
from vitlab.preprocessing import preprocessing_of
from vitlab.tasks import train_task
from vitlab.tasks.detection import AveragePrecision, loss_of, make_feed, run, sides_of, with_settings
from vitlab.tasks.preprocessing import preprocessing_for
from vitlab.training.distributed import World

ROOT = Path(__file__).resolve().parent.parent.parent
BACKBONE = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=4, num_heads=3)"
MODEL = f"vitlab/mask_rcnn(backbone={BACKBONE!r}, width=16, head=32, anchor=8, proposals=20, samples=16)"


def tiny(**changes: Any) -> Recipe:
    recipe = Recipe(
        model=MODEL,
        data="scenes(train=12, test=6, objects=2, labels='shape')",
        task="detection",
        image_size=(32, 32),
        epochs=2,
        batch_size=4,
        augment=Augment(crop="none"),
        optimizer=Optimizer(warmup_epochs=0.5, clip=1.0),
        detection=Detection(score=0.01),
        checkpoint_every=2,
        log_every=1,
    )
    return replace(recipe, **changes)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return zoo.load(f"file/{folder}").state_dict()


def test_a_run_trains_and_its_model_is_measured_and_described(tmp_path: Path) -> None:
    row = train_task(tiny(), tmp_path / "run", device="cpu")
    assert row["step"] == 6 and row["test_images"] == 6
    assert all(0 <= row[name] <= 100 for name in ("box_ap", "box_ap50", "mask_ap", "mask_ap50"))
    model = f"file/{tmp_path / 'run'}"
    loaded = vitlab.load(model)
    anatomy = vitlab.describe(loaded)
    assert len(anatomy.blocks) == 4 and anatomy.blocks[0].name == "backbone.blocks.0"
    assert preprocessing_of(loaded).size == (32, 32)
    paths = list(runner.measure([model], ["attention_entropy", "average_precision"], tmp_path / "out", show=False))
    entropy, precision = (Measurement.load(path) for path in paths)
    assert entropy.values["mean"].shape[0] == 4
    for name in ("box_ap", "box_ap50", "mask_ap", "mask_ap50"):
        assert 100 * float(precision.values[name]) == pytest.approx(row[name], abs=1e-9)
    assert precision.values["example_image"].shape[0] == 6
    assert precision.axes["class"] == ("circle", "square", "triangle", "star", "cross")


def test_the_loss_is_the_sum_of_the_five_losses() -> None:
    recipe = replace(tiny(), model=with_settings(tiny(), 5))
    data = open_detection(recipe.data, image_size=(32, 32))
    model = vitlab.load(recipe.model, seed=0)
    batch = next(iter(make_feed(recipe, data, preprocessing_for(recipe, model, data), World()).epoch(0)))
    torch.manual_seed(0)
    total = loss_of(model, batch)
    torch.manual_seed(0)
    model.load_state_dict(vitlab.load(recipe.model, seed=0).state_dict())  # batch statistics of the neck
    parts = model(batch.images, targets_of(batch), batch.sizes)
    assert set(parts) == {"loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg", "loss_mask"}
    assert total.item() == pytest.approx(sum(each.item() for each in parts.values()), rel=1e-6)


@pytest.mark.slow
def test_an_interrupted_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    """Stopped after step 4 of 6, in the middle of the second epoch."""
    run(tiny(), tmp_path / "whole", device="cpu")

    class StopError(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["step"] == 5:
            raise StopError

    with pytest.raises(StopError):
        run(tiny(), tmp_path / "parts", device="cpu", log=stop)
    assert Run(tmp_path / "parts").newest_checkpoint()[1]["step"] == 4  # type: ignore[index]
    run(tiny(), tmp_path / "parts", device="cpu")
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


TWO = """
import json, sys, torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from test_detection import tiny
from vitlab.tasks.detection import run
recipe = tiny(epochs=1, data="scenes(train=8, test=7, objects=2, labels='shape')")
print(json.dumps(run(recipe, {folder!r}, device="cpu")))
sys.stdout.flush()
import os; os._exit(0)
"""


def processes(count: int, port: int, folder: Path) -> list[dict[str, Any]]:
    started = []
    for rank in range(count):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        if count > 1:
            environment |= {
                "RANK": str(rank),
                "WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
        code = TWO.format(tests=str(Path(__file__).parent), folder=str(folder))
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes))
    rows = []
    for process in started:
        output, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors[-3000:]
        rows.append(json.loads(output))
    return rows


@pytest.mark.slow
def test_two_processes_train_and_count_each_test_image_once(tmp_path: Path) -> None:
    """DDP fails if a parameter has no gradient. Both ranks return the metrics of the whole test set."""
    first, second = processes(2, 29771, tmp_path / "two")
    assert first["test_images"] == second["test_images"] == 7
    assert [first[name] for name in ("box_ap", "mask_ap50")] == [second[name] for name in ("box_ap", "mask_ap50")]
    model = zoo.load(f"file/{tmp_path / 'two'}")
    recipe = tiny(data="scenes(train=8, test=7, objects=2, labels='shape')")
    data = open_detection(recipe.data, image_size=(32, 32))
    own = AveragePrecision(data, World(), recipe, preprocessing_for(recipe, model, data))(model)
    assert own["box_ap"] == pytest.approx(first["box_ap"], abs=1e-6)


def test_images_without_objects_train(tmp_path: Path) -> None:
    """A batch whose images have no object gives finite losses."""
    recipe = replace(tiny(), model=with_settings(tiny(), 5))
    model = vitlab.load(recipe.model, seed=0)
    data = open_detection(recipe.data, image_size=(32, 32))
    batch = next(iter(make_feed(recipe, data, preprocessing_for(recipe, model, data), World()).epoch(0)))
    empty = batch._replace(labels=batch.labels[:, :0], boxes=batch.boxes[:, :0], masks=batch.masks[:, :0])
    assert torch.isfinite(loss_of(model, empty))


def test_an_untrained_model_has_low_and_a_perfect_one_full_precision() -> None:
    """The metric by a model that returns the objects of the test images."""
    recipe = tiny()
    data = open_detection(recipe.data, image_size=(32, 32))
    truth = [data.test[i] for i in range(6)]

    class Perfect(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.seen = 0

        def forward(self, images: torch.Tensor, sizes: torch.Tensor) -> list[dict[str, torch.Tensor]]:
            found = truth[self.seen : self.seen + len(images)]
            self.seen += len(images)
            return [
                {
                    "boxes": each.boxes,
                    "labels": each.labels,
                    "scores": torch.ones(len(each.labels)),
                    "masks": torch.ones(len(each.labels), 1, 28, 28),
                }
                for each in found
                if each is not None
            ]

    how = preprocessing_for(recipe, vitlab.load(with_settings(recipe, 5), seed=0), data)
    found = AveragePrecision(data, World(), recipe, how)(Perfect())
    assert found["box_ap"] == 100 and found["test_images"] == 6


def write_coco(root: Path, split: str, count: int) -> None:
    """Scenes of different sizes as files in the COCO format; the last object of each image is a crowd."""
    (root / "annotations").mkdir(parents=True, exist_ok=True)
    (root / split).mkdir()
    images, objects = [], []
    for i in range(count):
        size = (40 + 8 * (i % 3), 64 - 8 * (i % 2))
        scene = open_detection(f"scenes(train={count}, test=1, labels='shape')", image_size=size).to_train_on()[i]
        assert scene is not None
        Image.fromarray(scene.pixels.permute(1, 2, 0).numpy()).save(root / split / f"{i}.png")
        images.append({"id": 10 + i, "file_name": f"{i}.png", "height": size[0], "width": size[1]})
        for k, (box, label) in enumerate(zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True)):
            x0, y0, x1, y1 = box
            runs = {"size": list(size), "counts": encode_mask(scene.masks[k].numpy())["counts"]}
            entry = {"image_id": 10 + i, "category_id": 3 * label, "bbox": [x0, y0, x1 - x0, y1 - y0]}
            crowd = int(k > 0 and k == len(scene.labels) - 1)
            objects.append({**entry, "id": 100 * i + k + 1, "segmentation": runs, "iscrowd": crowd})
    categories = [{"id": 3 * label, "name": f"kind {label}"} for label in range(1, 6)]
    content = {"images": images, "annotations": objects, "categories": categories}
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))


def test_files_in_the_coco_format_train_at_several_sides(tmp_path: Path) -> None:
    write_coco(tmp_path / "coco", "train2017", 8)
    write_coco(tmp_path / "coco", "val2017", 5)
    recipe = tiny(
        model=MODEL.replace("num_heads=3", "num_heads=3, dynamic_img_size=True"),
        data="coco",
        image_size=(64, 96),
        epochs=1,
        detection=Detection(sides=(48, 64, 80), longest=100, score=0.01),
    )
    row = run(recipe, tmp_path / "run", root=tmp_path, device="cpu")
    assert row["step"] == 2 and row["test_images"] == 5 and np.isfinite(row["train_loss"])
    model, out = f"file/{tmp_path / 'run'}", tmp_path / "out"
    paths = list(runner.measure([model], ["attention_entropy", "average_precision"], out, root=tmp_path, show=False))
    precision = Measurement.load(paths[1])
    assert precision.axes["class"] == tuple(f"kind {label}" for label in range(1, 6))
    assert 100 * float(precision.values["box_ap"]) == pytest.approx(row["box_ap"], abs=1e-9)


# -- settings ---------------------------------------------------------------------------------------------------------


def test_sides() -> None:
    assert sides_of(tiny()) == ((32,), 32, 32)
    coco = plugins.recipe("coco_mask_rcnn")
    assert sides_of(coco) == (tuple(range(480, 801, 32)), 800, 1333)
    assert coco.optimizer.milestones == (8, 11) and coco.epochs == 12 and coco.optimizer.lr == 1e-4


def test_the_paper_puts_cb_outside_of_the_tapped_blocks() -> None:
    text = plugins.recipe("coco_mask_rcnn(part='cb')").model.replace("pretrained=True, ", "")
    model = vitlab.load(text.replace("backbone=", "size=(64, 64), width=16, head=16, backbone="))
    assert [part.block for part in vitlab.parts(model)] == [f"backbone.blocks.{i}" for i in (0, 1, 2, 4, 6, 8, 9, 10)]


@pytest.mark.filterwarnings("ignore:.*has another number of classes")
def test_weights_that_were_trained_with_cb(tmp_path: Path) -> None:
    """The pretrained part stays in its blocks, with the same weights; other blocks are an error that names them."""
    tiny_vit = "timm/deit_tiny_patch16_224(embed_dim=24, num_heads=3, depth=12{}) | ContextBroadcast(blocks='8:11')"
    trained = zoo.load(tiny_vit.format(""), seed=1)
    zoo.save(trained, tiny_vit.format(""), str(tmp_path / "model.safetensors"))

    def built(settings: str) -> Any:
        text = plugins.recipe(f"coco_mask_rcnn(part='cb', weights={str(tmp_path)!r}{settings})").model
        text = text.replace("dynamic_img_size", "embed_dim=24, num_heads=3, depth=12, dynamic_img_size")
        return vitlab.load(text.replace("backbone=", "size=(64, 64), width=16, head=16, backbone="))

    model = built(", blocks='8:11'")
    assert [part.block for part in vitlab.parts(model)] == [f"backbone.blocks.{index}" for index in (8, 9, 10)]
    found, given = model.state_dict(), trained.state_dict()
    for index in (0, 9):
        name = f"blocks.{index}.mlp.fc1.weight"
        assert torch.equal(found[f"backbone.{name}"], given[name])
    with pytest.raises(VitlabError, match=r"saved with ContextBroadcast at blocks\.8\.mlp, blocks\.9\.mlp"):
        built("")


def test_coco_refuses_a_part_with_a_grid() -> None:
    with pytest.raises(VitlabError, match="part='tap' needs images of one size"):
        plugins.recipe("coco_mask_rcnn(part='tap')")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"augment": Augment(crop="none", mixup=0.8)},
            r"invalid augment.mixup=0.8: detection has no such setting; set",
        ),
        ({"augment": Augment()}, "invalid augment.crop='pad'"),
        ({"objective": Objective(diversification=1.0)}, "invalid objective.diversification=1.0"),
        ({"compile": True}, "set compile=False"),
        ({"image_size": (40, 32)}, r"invalid image_size=\(40, 32\); expected multiples of 32"),
        ({"model": BACKBONE}, r"is not a detector; write for example vitlab/mask_rcnn\(backbone="),
        (
            {"model": MODEL.replace("width", "classes=3, width")},
            "has classes=3, but the data has 5 classes; omit classes",
        ),
        ({"data": "cifar100"}, "has no boxes and masks of objects"),
    ],
)
def test_unsupported_settings_of_detection_are_one_line_errors(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(VitlabError, match=message) as error:
        run(tiny(**changes), tmp_path / "run", device="cpu")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_average_precision_needs_a_detector(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="average_precision measures detectors, not VisionTransformer"):
        list(runner.measure([BACKBONE], ["average_precision"], tmp_path, data="scenes(train=1, test=2)", show=False))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("quick_detection(images=400, epochs=2)", marks=pytest.mark.slow),
        pytest.param("quick_detection", marks=pytest.mark.full),
    ],
)
def test_quick_detection_finds_objects(text: str, tmp_path: Path) -> None:
    """A third of the recipe's steps, a minute of CPU time: AP50 of 33 (boxes) and 32 (masks); untrained below 1.

    The full recipe: 74 and 73.
    """
    recipe = plugins.recipe(text)
    recipe = change(recipe, {"evaluate_every": recipe.epochs})
    row = train_task(recipe, tmp_path, device="cpu")
    assert row["box_ap50"] > 20 and row["mask_ap50"] > 20 and np.isfinite(row["train_loss"])
