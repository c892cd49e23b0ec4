"""An error of a file that a worker process reads is one line that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.detection import Annotated, no_objects
from vitlab.data.detection_feed import DetectionFeed
from vitlab.data.detection_stream import DetectionStream
from vitlab.data.question_batches import QuestionBatches
from vitlab.data.question_set import QuestionSet

NORM = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class WrongImages:
    """A detection set whose second image does not fit its annotation."""

    fingerprint = "wrong"

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Annotated:
        if index == 1:
            raise VitlabError("b.jpg has 3x4 pixels, but its annotation says 4x4")
        return no_objects(torch.zeros(3, 32, 32, dtype=torch.uint8))


@pytest.mark.parametrize("processes", [0, 2])
def test_a_damaged_image_of_a_question(processes: int, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(tmp_path / "a.jpg")
    (tmp_path / "b.jpg").write_bytes(b"no image")
    questions = QuestionSet(
        (tmp_path / "a.jpg", tmp_path / "b.jpg"),
        torch.tensor([0, 1]),
        torch.ones(2, 3, dtype=torch.long),
        torch.zeros(2, 1, dtype=torch.long),
        torch.zeros(2, 1),
        torch.zeros(2, dtype=torch.long),
        ["?", "?"],
    )
    feed = QuestionBatches(questions, 2, *NORM, (8, 8), 4, 2, 0, processes=processes)
    with pytest.raises(VitlabError) as caught:
        list(feed.evaluation())
    assert "b.jpg" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("source", [DetectionFeed, DetectionStream])
def test_an_image_that_does_not_fit_its_annotation(source: type, processes: int) -> None:
    if source is DetectionFeed:
        batches = DetectionFeed(WrongImages(), (32,), 32, *NORM, batch_size=2, processes=processes).epoch(0)  # type: ignore[arg-type]
    else:
        batches = iter(DetectionStream(WrongImages(), 32, 32, *NORM, batch_size=2, processes=processes))  # type: ignore[arg-type]
    with pytest.raises(VitlabError) as caught:
        list(batches)
    assert str(caught.value) == "b.jpg has 3x4 pixels, but its annotation says 4x4"
