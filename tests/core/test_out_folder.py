"""A folder that cannot be written raises; unfinished files of ended processes are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab import runner, tasks
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.out_folder import check_writable
from vitlab.core.store import write_atomically


def test_checking_a_writable_folder_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "a/b/c", "x/y", Path()):
        check_writable(folder)
    assert not list(tmp_path.iterdir())


def unwritable(tmp_path: Path) -> list[Path]:
    """Folders that even root cannot write: below a file, and in the file system of processes."""
    (tmp_path / "file").write_text("x")
    folders = [tmp_path / "file", tmp_path / "file/out"]
    if Path("/proc/self").exists():
        folders.append(Path("/proc/self/out"))
    return folders


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    folders = unwritable(tmp_path)
    if os.geteuid():
        (tmp_path / "closed").mkdir(mode=0o500)
        folders.append(tmp_path / "closed/out")
    for folder in folders:
        with pytest.raises(VitlabError, match=r"cannot be written \(.+\); give another --out") as caught:
            check_writable(folder)
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_measuring_and_training_check_the_folder_before_data_and_model(tmp_path: Path) -> None:
    """The model and the data do not exist, and would be the error if the folder were checked after them."""
    for folder in unwritable(tmp_path):
        for run, name in ((runner.measure, "attention_entropy"), (runner.stress, "corruptions")):
            with pytest.raises(VitlabError, match="cannot be written"):
                list(run(["timm/no_such_model"], [name], folder, data="scenes", show=False))
        with pytest.raises(VitlabError, match="cannot be written"):
            tasks.train(plugins.recipe("quick"), folder, settings=["model='timm/no_such_model'"])


def test_unfinished_files_of_ended_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    gone = [f".m.json.{ended.pid}.partial"]
    stay = [f".m.json.{os.getppid()}.partial", f".m.npz.{ended.pid}.partial", "m.json", ".m.json.x.partial"]
    for name in (*gone, *stay):
        (tmp_path / name).write_text("x")
    with write_atomically(tmp_path / "m.json") as file:
        file.write(b"y")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(stay)
