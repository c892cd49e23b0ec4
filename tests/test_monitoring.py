"""Measurements during training in other loops equal those made by hand at the same step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import vitlab
from cases import VIT, redraw, timm_model
from vitlab.core.errors import VitlabError
from vitlab.monitoring import Monitor, hugging_face_callback, lightning_callback

IMAGES = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3])


def tiny() -> nn.Module:
    return redraw(timm_model("vit_tiny_patch16_224", **VIT)())


def entropy(model: nn.Module) -> float:
    found = vitlab.measure("attention_entropy", model, [IMAGES])
    layers = found.values["mean"].mean(1)
    return float(layers[len(layers) // 2 :].mean())  # the deep half


def test_a_custom_loop(tmp_path: Path) -> None:
    model, rows = tiny(), []
    monitor = Monitor(model, [IMAGES], every=2, folder=tmp_path, log=rows.append)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    expected = {}
    for step in range(1, 6):
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
        optimizer.step()
        if step % 2 == 0:
            expected[step] = entropy(model)
        monitor.after_step(step)
        assert model.training
    assert [row["step"] for row in rows] == [2, 4]
    for row in rows:
        assert np.isclose(row["attention_entropy/mean"], expected[row["step"]], atol=1e-6)
    stored = vitlab.Measurement.load(tmp_path / "step-000004" / "attention_entropy")
    assert stored.subject == "step 4"
    assert rows[0]["attention_entropy/mean"] != rows[1]["attention_entropy/mean"]


def test_a_step_is_measured_once() -> None:
    """Lightning's `global_step` has the same value for all batches of an accumulation, and starts at 0."""
    monitor = Monitor(tiny(), [IMAGES], every=2)
    measured = [monitor.after_step(step) is not None for step in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)]
    assert measured == [False] * 4 + [True, False] + [False] * 2 + [True, False]


def test_procedures_are_given_as_on_the_command_line(tmp_path: Path) -> None:
    """A single text is not a list of letters, settings are used, and two calls of one name stay apart."""
    model = tiny().eval()
    assert list(Monitor(model, [IMAGES], "attention_entropy").measure(1)) == list(Monitor(model, [IMAGES]).measure(1))
    calls = "lesion(images=2), lesion(images=3),calibration(bins=5)"
    row = Monitor(model, [(IMAGES, LABELS)], calls, folder=tmp_path).measure(7)
    names = ["calibration", "lesion_images_2", "lesion_images_3"]
    assert sorted(path.stem for path in tmp_path.rglob("*.json")) == names
    for name, images in ((names[1], 2), (names[2], 3)):
        by_hand = vitlab.measure("lesion", model, [(IMAGES[:images], LABELS[:images])])
        stored = vitlab.Measurement.load(tmp_path / "step-000007" / name)
        assert np.allclose(stored.values["nll_change"], by_hand.values["nll_change"], atol=1e-6)
    assert {key.partition("/")[0] for key in row} == {"step", "lesion(images=2)", "lesion(images=3)", "calibration"}
    with pytest.raises(VitlabError, match=r"lesion\(images=0\): expected"):
        Monitor(model, [IMAGES], "lesion(images=0)")


class Classifier(nn.Module):
    """A model with the signature that the Trainer expects."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, pixel_values: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.inner(pixel_values)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    model = tiny()
    rows: list[dict[str, Any]] = []
    monitor = Monitor(model, [IMAGES], every=2, log=rows.append)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=4,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    data = [{"pixel_values": image, "labels": label} for image, label in zip(IMAGES, LABELS, strict=True)]
    callbacks = [hugging_face_callback(monitor)]
    trainer = transformers.Trainer(Classifier(model), arguments, train_dataset=data, callbacks=callbacks)
    trainer.train()
    assert [row["step"] for row in rows] == [2, 4]
    assert np.isclose(rows[-1]["attention_entropy/mean"], entropy(model), atol=1e-6)
    assert any("attention_entropy/mean" in row for row in trainer.state.log_history)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    model = tiny()
    rows: list[dict[str, Any]] = []

    class Module(lightning.LightningModule):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Any, index: int) -> Tensor:
            images, labels = batch
            return nn.functional.cross_entropy(self.model(images), labels)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    trainer = lightning.Trainer(
        max_steps=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
        callbacks=[lightning_callback(Monitor(model, [IMAGES], every=2, log=rows.append))],
    )
    trainer.fit(Module(), DataLoader(TensorDataset(IMAGES, LABELS), batch_size=2))
    assert [row["step"] for row in rows] == [2, 4]
    assert np.isclose(rows[-1]["attention_entropy/mean"], entropy(model), atol=1e-6)


def test_mistakes() -> None:
    with pytest.raises(VitlabError, match="attention_entropy"):
        Monitor(tiny(), [IMAGES], ["attention_entrop"])
    with pytest.raises(VitlabError, match=r"^Monitor\(procedures=\[\]\): expected at least one"):
        Monitor(tiny(), [IMAGES], [])


@pytest.mark.parametrize("every", [0, "x", 2.5, True, None])
def test_invalid_steps_raise(every: Any) -> None:
    with pytest.raises(VitlabError, match=r"^Monitor\(every=.*\): expected an integer from 1 to 1,000,000,000,000$"):
        Monitor(tiny(), [IMAGES], every=every)


def test_a_folder_that_cannot_be_written_raises_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(
            VitlabError, match=rf"^{folder} cannot be written \(Not a directory\); give another folder$"
        ):
            Monitor(tiny(), [IMAGES], folder=folder)
    with pytest.raises(VitlabError, match=r"^Monitor\(folder=3\): expected text"):
        Monitor(tiny(), [IMAGES], folder=3)  # type: ignore[arg-type]
    Monitor(tiny(), [IMAGES], folder=tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()
