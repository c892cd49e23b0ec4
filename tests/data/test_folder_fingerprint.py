"""A folder's fingerprint depends on its files only."""

from __future__ import annotations

from pathlib import Path

from vitlab.data.folder_fingerprint import folder_fingerprint


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
