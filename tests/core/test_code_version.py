"""The code version of an instrument changes with all code that it runs, and with no other code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.core import code_version as module
from vitlab.core import plugins
from vitlab.core.code_version import code_version

PACKAGE = Path(module.__file__).parent.parent


def changed(file: str, name: str, tmp_path: Path) -> bool:
    """Whether the version of a module is another one after a byte was added to a file."""
    copy = tmp_path / "changed" / "vitlab"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / file).open("ab") as source:
        source.write(b"\n")
    return code_version(name, copy) != code_version(name)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("instruments/attention_entropy.py", "vitlab.instruments.attention_entropy"),
        ("instruments/shared/one_pass.py", "vitlab.instruments.attention_entropy"),
        ("recording/tape.py", "vitlab.instruments.attention_entropy"),
        ("recording/attention_capture.py", "vitlab.instruments.attention_entropy"),
        ("recording/attention_call.py", "vitlab.instruments.attention_entropy"),
        ("kernels/twin_products.py", "vitlab.instruments.attention_stability"),
        ("adapters/timm_swin.py", "vitlab.instruments.attention_entropy"),
        ("stress_tests/shared/pixel_evaluation.py", "vitlab.stress_tests.corruptions"),
        ("corruptions/jpeg.py", "vitlab.stress_tests.corruptions"),
    ],
)
def test_a_byte_in_an_imported_file_changes_the_version(file: str, name: str, tmp_path: Path) -> None:
    assert changed(file, name, tmp_path)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("instruments/lesion.py", "vitlab.instruments.attention_entropy"),
        ("corruptions/jpeg.py", "vitlab.instruments.calibration"),
        ("reporting/page.py", "vitlab.instruments.attention_entropy"),
        ("cli/commands.py", "vitlab.stress_tests.corruptions"),
        ("__init__.py", "vitlab.stress_tests.corruptions"),
    ],
)
def test_other_files_do_not_change_the_version(file: str, name: str, tmp_path: Path) -> None:
    assert not changed(file, name, tmp_path)


@pytest.mark.slow
def test_the_location_of_the_package_does_not_change_the_version(tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "vitlab"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    every = [*plugins.instruments().values(), *plugins.stress_tests().values()]
    versions = [code_version(name, copy) for name in every]
    assert versions == [code_version(name) for name in every] and len(set(versions)) == len(versions)


def test_modules_of_other_packages_have_no_version() -> None:
    assert code_version("json") == code_version("vitlab") == code_version("vitlab.nothing") == ""


@pytest.mark.parametrize("name", ["vitlab.instruments.attention_entropy", "vitlab.stress_tests.occlusion"])
def test_all_loaded_modules_are_included(name: str, tmp_path: Path) -> None:
    """What Python itself loads for the module is among the files of its version."""
    code = f"import sys, json, {name}; print(json.dumps([m for m in sys.modules if m.startswith('vitlab.')]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    read: set[Path] = set()
    waiting = [(name, module._file(name, PACKAGE))]
    while waiting:
        read.add(waiting[-1][1])
        waiting += [each for each in module._imported(*waiting.pop(), PACKAGE) if each[1] not in read]
    loaded = {module._file(each, PACKAGE) for each in json.loads(run.stdout)} - {None}
    assert loaded <= read
