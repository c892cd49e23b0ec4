"""Videos as folders of frames: natural order, hidden files, broken ones without frames."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab.core.errors import VitlabError
from vitlab.data.sequences import frames, open_sequences


def write(folder, greys) -> None:
    folder.mkdir(parents=True)
    for i, grey in enumerate(greys):
        Image.new("L", (4, 4), grey).save(folder / f"frame{i + 8}.png")


def to_pixels(image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def test_frames_and_videos_come_in_natural_order(tmp_path) -> None:
    for name in ("v10", "v9"):
        write(tmp_path / "cat" / name, [10, 20, 30, 40])
    write(tmp_path / "bird" / "v1", [50, 60])
    write(tmp_path / ".hidden" / "v1", [1, 2])
    (tmp_path / "cat" / ".v0").mkdir()
    (tmp_path / "cat" / "notes.txt").write_text("no video")
    (tmp_path / "cat" / "v9" / "thumbs.db").write_text("no frame")
    found = open_sequences(tmp_path, to_pixels)
    assert found.names == ("bird/v1", "cat/v9", "cat/v10") and len(found) == 3
    assert found[1].shape == (4, 3, 4, 4) and found[1][:, 0, 0, 0].tolist() == [10, 20, 30, 40]
    assert [frame.mode for frame in frames(tmp_path / "bird" / "v1")] == ["RGB", "RGB"]


def test_a_subset_of_the_videos(tmp_path) -> None:
    for i in range(5):
        write(tmp_path / "cat" / f"v{i}", [i])
    found = open_sequences(tmp_path, to_pixels)
    assert found.spread(None) is found
    assert found.spread(2).names == ("cat/v0", "cat/v2") and found.spread(2).fingerprint != found.fingerprint
    for count in (1, 6, 2.5):
        with pytest.raises(VitlabError, match="expected 2 to 5, or None"):
            found.spread(count)


def test_broken_videos_have_no_frames(tmp_path) -> None:
    write(tmp_path / "cat" / "torn", [1, 2])
    (tmp_path / "cat" / "torn" / "frame9.png").write_bytes(b"no image")
    (tmp_path / "cat" / "empty").mkdir()
    found = open_sequences(tmp_path, to_pixels)
    with pytest.warns(UserWarning, match=r"cannot read the video .*empty \(no frames\)"):
        assert len(found[0]) == 0
    with pytest.warns(UserWarning, match="torn"):
        assert len(found[1]) == 0


def test_a_folder_without_videos_raises(tmp_path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(VitlabError, match=r"contains no videos; expected <class>/<video>.mp4"):
        open_sequences(tmp_path, to_pixels)
