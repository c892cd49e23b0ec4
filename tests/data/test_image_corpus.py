"""Unusual image files are decoded correctly or raise a one-line error that names the file."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cases.odd_images import KINDS, OddFile, corpus
from vitlab.core.errors import VitlabError
from vitlab.data.decoding import open_rgb
from vitlab.data.folders import open_folder
from vitlab.data.images import IGNORED, ImageFiles


def outcome(file: OddFile) -> str:
    """`decoded`, `refused`, or what is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = open_rgb(file.path)
    except VitlabError as error:
        if "\n" in str(error) or str(file.path) not in str(error):
            return f"an error that is not one line with the file's name: {error}"
        return "refused" if file.pixels is None or file.damaged else f"refused an intact file: {error}"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"
    pixels = np.array(image)
    if file.pixels is None:
        return "silent error: decoded a file that is not complete"
    if image.mode != "RGB" or pixels.shape != file.pixels.shape:
        return f"silent error: {image.mode} {pixels.shape} instead of {file.pixels.shape}"
    difference = np.abs(pixels.astype(int) - file.pixels).max()
    return "decoded" if difference <= file.tolerance else f"silent error: pixels differ by {difference}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[OddFile]:
    return corpus(tmp_path_factory.mktemp("corpus"), each=6)


def test_every_file_is_decoded_or_refused(files: list[OddFile]) -> None:
    outcomes = {file.path.name: outcome(file) for file in files}
    counts = Counter(each if each in ("decoded", "refused") else each.partition(":")[0] for each in outcomes.values())
    print(f"\n{len(files)} files of {len(KINDS)} kinds: " + ", ".join(f"{n} {each}" for each, n in counts.items()))
    assert len(files) >= 300
    assert not {name: each for name, each in outcomes.items() if each not in ("decoded", "refused")}
    assert min(counts["decoded"], counts["refused"]) > 50


def test_a_folder_marks_the_files_that_cannot_be_read(files: list[OddFile]) -> None:
    data = open_folder(files[0].path.parent).test
    assert isinstance(data, ImageFiles) and len(data) == len(files)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels = [data[i][1] for i in range(len(data))]
    refused = {file.path for file in files if outcome(file) == "refused"}
    assert set(data.broken_paths) == refused
    assert {data.path(i) for i, label in enumerate(labels) if label == IGNORED} == refused
    messages = [str(each.message) for each in caught]
    assert all("\n" not in message for message in messages)
    assert all(any(str(path) in message for message in messages) for path in refused)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="missing.png"):
        open_rgb(tmp_path / "missing.png")
