"""The wheel works outside the checkout: demo, list, report, and extensions of each kind as a package and as a file.

The extensions are the texts of docs/adding.md. Dependencies come from the environment of the tests; the folder of the
installed packages is the only entry of PYTHONPATH, and an editable installation of vitlab comes after it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_FENCE = re.compile(r"^```(\w+) title=\"([^\"]+)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.slow

#: The extension of each kind in `vitlab list`.
LISTED = {
    "parts": "Damp",
    "losses": "confident",
    "instruments": "weight_size",
    "stress": "negative",
    "families": "flat",
    "models": "vitlab/nano_vit",
    "data": "two_colours",
    "recipes": "nano",
    "experiments": "nano_size",
}


def texts() -> dict[str, str]:
    """The files that docs/adding.md shows, by title."""
    return {title: body for _, title, body in _FENCE.findall((ROOT / "docs/adding.md").read_text(encoding="utf-8"))}


def install(source: Path, target: Path) -> None:
    """Build and install as a user does, without dependencies; hatchling is downloaded if it is not installed."""
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *isolation, "--target", str(target)]
    ended = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vitlab, installed from a wheel that is built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "--wheel-dir", str(folder)]
    ended = subprocess.run([*build, str(ROOT)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = folder.glob("vitlab-*.whl")
    install(wheel, folder / "site")
    return folder / "site"


def run(command: list[str], site: Path, folder: Path, **variables: str) -> str:
    """The output of a command in a folder outside the checkout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("VITLAB")}
    environment = {**kept, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **variables}
    ended = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}: {ended.stdout[-1000:]}{ended.stderr[-2000:]}"
    return ended.stdout


def test_the_wheel_is_imported(site: Path, tmp_path: Path) -> None:
    where = run(["-c", "import vitlab; print(vitlab.__file__)"], site, tmp_path).strip()
    assert Path(where) == site / "vitlab/__init__.py"
    assert (site / "vitlab/py.typed").is_file() and (site / "bin/vitlab").is_file()


def test_demo_list_and_report(site: Path, tmp_path: Path) -> None:
    smallest = ["demo", "--epochs", "1", "--images", "64", "--out", "demo", "--json", "--quiet"]
    result = json.loads(run(["-m", "vitlab", *smallest], site, tmp_path))
    assert "plotly" in (tmp_path / result["report"]).read_text(encoding="utf-8") and result["sentences"]
    counts = json.loads(run(["-m", "vitlab", "list", "--json"], site, tmp_path))
    assert int(counts["parts"]) >= 12 and int(counts["experiments"]) >= 60
    run(["-m", "vitlab", "report", "demo", "-o", "again.html"], site, tmp_path)
    assert (tmp_path / "again.html").stat().st_size > 1_000_000  # with plotly's script


@pytest.mark.parametrize("way", ["package", "file"])
def test_extensions_of_each_kind(way: str, site: Path, tmp_path: Path) -> None:
    files = texts()
    variables, paths, origin = {}, str(site), "package damping 1.0"
    if way == "file":
        (tmp_path / "mine.py").write_text(files["mine.py"], encoding="utf-8")
        variables, origin = {"VITLAB_PLUGINS": "mine.py"}, "file mine.py"
    else:
        project, outside = tmp_path / "damping", tmp_path / "outside"
        (project / "src/damping").mkdir(parents=True)
        (project / "src/damping/__init__.py").touch()
        (project / "src/damping/mine.py").write_text(files["mine.py"], encoding="utf-8")
        (project / "pyproject.toml").write_text(files["damping/pyproject.toml"], encoding="utf-8")
        install(project, outside)
        paths = os.pathsep.join([str(site), str(outside)])

    def vitlab(*arguments: str) -> str:
        return run(["-m", "vitlab", *arguments], site, tmp_path, **{**variables, "PYTHONPATH": paths})

    for kind, name in LISTED.items():
        rows = json.loads(vitlab("list", kind, "--json"))
        text = rows[name]["title"] if isinstance(rows[name], dict) else rows[name]
        assert text.endswith(f"[{origin}]"), kind
    assert json.loads(vitlab("train", "nano", "--out", "run", "--device", "cpu", "--json"))["epoch"] == 1
    common = ["--images", "8", "--device", "cpu", "--json", "--quiet"]
    (norm, _) = json.loads(vitlab("measure", "file/run", "--with", "weight_size,attention_entropy", *common))
    assert norm["kind"] == "weight_size" and norm["values"]["norm"] > 0
    (changed,) = json.loads(vitlab("stress", "file/run", "--with", "negative", "--data", "two_colours", *common))
    assert 0 <= changed["values"]["changed"] <= 1
    vitlab("report", "runs/measure", "runs/stress")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The norm of the weights is" in page and f"weight_size ({origin})" in page
    (judged,) = json.loads(vitlab("reproduce", "nano_size", "--scale", "smoke", "--json", "--quiet"))
    assert [verdict["outcome"] for verdict in judged["verdicts"]] == ["holds"]
    code = files["use_mine.py"]
    if way == "package":
        code = code.replace('os.environ["VITLAB_PLUGINS"] = "mine.py"\n', "").replace(
            "from mine ", "from damping.mine "
        )
    (tmp_path / "use.py").write_text(code, encoding="utf-8")
    run(["use.py"], site, tmp_path, **{**variables, "PYTHONPATH": paths})
