"""Only one process can lock a folder; the lock file of a dead process has no effect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.core.errors import VitlabError
from vitlab.core.lock import NAME, locked

SOURCE = Path(__file__).resolve().parents[2] / "src"
HOLDER = """
import sys, time
sys.path.insert(0, {source!r})
from pathlib import Path
from vitlab.core.lock import locked
with locked(Path({folder!r})):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """Another process that holds the folder."""
    code = HOLDER.format(source=str(SOURCE), folder=str(tmp_path / "run"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_raises_a_one_line_error(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    message = rf"in use by process {holder.pid} on \S+; wait until it ends, or give another --out"
    with pytest.raises(VitlabError, match=message) as caught, locked(tmp_path / "run"):
        pass
    assert "\n" not in str(caught.value)


def test_the_lock_of_a_killed_process_is_free(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert json.loads((tmp_path / "run" / NAME).read_text())["pid"] == holder.pid
    with locked(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / NAME).read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("left", ['{"pid": 1, "host": "another-machine"}', "", "no json", "[]"])
def test_a_foreign_lock_file_is_free(left: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(left)
    for _ in range(2):
        with locked(tmp_path):
            assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def test_the_lock_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path):
        raise KeyError
    code = HOLDER.format(source=str(SOURCE), folder=str(tmp_path)).replace("time.sleep(600)", "")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"held\n"


def test_a_folder_in_place_of_the_lock_is_one_line(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(VitlabError, match=r".lock cannot be written .Is a directory.; remove it"), locked(tmp_path):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """Every write to /dev/full fails as on a full disk."""
    (tmp_path / NAME).symlink_to("/dev/full")
    message = (
        rf"^{tmp_path}/.lock cannot be written \(No space left on device\); free some space, or give another --out$"
    )
    with pytest.raises(VitlabError, match=message), locked(tmp_path):
        pytest.fail("the block ran")


def test_an_error_inside_the_block_is_raised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="mine"), locked(tmp_path):
        raise OSError("mine")
