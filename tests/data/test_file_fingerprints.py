"""Fingerprints depend on the files only."""

from __future__ import annotations

import os
from pathlib import Path

from vitlab.data.file_fingerprints import files_stamp, folder_fingerprint


def test_the_fingerprint_depends_on_names_and_sizes(tmp_path: Path) -> None:
    root, twin = tmp_path / "a", tmp_path / "b"
    for folder, order in ((root, "xy"), (twin, "yx")):
        for name in order:
            (folder / name).mkdir(parents=True)
            (folder / name / "0.jpg").write_bytes(b"12")
    first = folder_fingerprint(root)
    assert folder_fingerprint(twin) == first, "the order in which files were made, or where they are"
    seen = {first}
    (root / "x" / "0.jpg").write_bytes(b"123")
    seen.add(folder_fingerprint(root))
    (root / "x" / "1.jpg").touch()
    seen.add(folder_fingerprint(root))
    (root / "x" / "1.jpg").rename(root / "y" / "1.jpg")
    seen.add(folder_fingerprint(root))
    assert len(seen) == 4


def test_links_are_followed_once_and_results_are_skipped(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / "link").symlink_to(elsewhere)
    (root / "back").symlink_to(root)
    (root / "nowhere.jpg").symlink_to(tmp_path / "gone.jpg")
    before = folder_fingerprint(root, root / "runs")
    (root / "runs").mkdir()
    (root / "runs" / "found.json").write_text("{}")
    assert folder_fingerprint(root, root / "runs") == before != folder_fingerprint(root)
    (elsewhere / "new.jpg").touch()
    assert folder_fingerprint(root, root / "runs") != before


def test_a_file_replaced_by_one_of_the_same_size_is_noticed_by_its_time(tmp_path: Path) -> None:
    file = tmp_path / "labels.npy"
    file.write_bytes(b"12")
    os.utime(file, ns=(0, 1))
    before = folder_fingerprint(tmp_path), folder_fingerprint(tmp_path, times=True), files_stamp([file])
    file.write_bytes(b"21")
    os.utime(file, ns=(0, 2))
    after = folder_fingerprint(tmp_path), folder_fingerprint(tmp_path, times=True), files_stamp([file])
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]
