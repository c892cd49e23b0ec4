"""Extensions from an installed package, from a file and from Python, seen by Python and by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import vitlab
from cases import plugin_file
from vitlab.core import extensions, plugins
from vitlab.core.errors import VitlabError

FILE = Path(plugin_file.__file__)
SOURCE = Path(vitlab.__file__).resolve().parents[1]
MODEL = "vitlab/plugin_vit(num_classes=25)"
#: What an entry point of each kind names, in a package whose only module is the plugin file.
OBJECTS = {
    kind: names if isinstance(names, dict) else dict(zip(names, names, strict=True))
    for kind, names in plugin_file.VITLAB.items()
}
VALUES = {kind: [f"{name} = outside:{thing}" for name, thing in names.items()] for kind, names in OBJECTS.items()}


def wheel(folder: Path, name: str, source: str, entry_points: str) -> Path:
    """A wheel of one module, written by hand: a zip file with three metadata files."""
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


def install(path: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*command, str(path)], check=True, capture_output=True)


def run(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([variables.pop("also", ""), str(SOURCE)]).strip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "vitlab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=300)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    text = "".join(f"[vitlab.{kind}]\n" + "\n".join(lines) + "\n\n" for kind, lines in VALUES.items())
    install(wheel(folder, "outside", FILE.read_text(encoding="utf-8"), text), folder / "site")
    return folder / "site"


@pytest.fixture
def as_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITLAB_PLUGINS", str(FILE))


@pytest.mark.parametrize("way", ["package", "file"])
def test_the_command_line_lists_and_uses_extensions(way: str, installed: Path, tmp_path: Path) -> None:
    extra = {"also": str(installed)} if way == "package" else {"VITLAB_PLUGINS": str(FILE)}
    origin = "package outside 1.0" if way == "package" else f"file {FILE}"
    listed = run("list", "parts", "--json", folder=tmp_path, **extra)
    assert origin in json.loads(listed.stdout)["Halve"], listed.stderr
    cards = json.loads(run("list", "instruments", "--json", folder=tmp_path, **extra).stdout)
    assert origin in cards["weight_norm"]["title"] and cards["weight_norm"]["cost"] == "no forward"
    trained = run("train", "plugin_recipe(epochs=1)", "--out", "run", "--device", "cpu", folder=tmp_path, **extra)
    assert trained.returncode == 0, trained.stderr
    measured = run(
        *("measure", f"{MODEL} | Halve", "--with", "weight_norm(scale=2.0)", "--data", "few_scenes(count=4)"),
        *("--device", "cpu", "--json"),
        folder=tmp_path,
        **extra,
    )
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)[0]["values"]["norm"] > 0
    report = run("report", "runs/measure", folder=tmp_path, **extra)
    assert report.returncode == 0 and "a figure of a plugin" in (tmp_path / "report.html").read_text()


def test_listing_extensions_imports_no_torch(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from vitlab.core import plugins, extensions;"
        "names = [plugins.parts(), plugins.instruments(), plugins.recipes(), plugins.families(), plugins.losses()];"
        "assert 'Halve' in names[0] and 'confidence' in names[4];"
        "print(plugins.summary(names[0]['Halve'], 'Halve'), 'torch' in sys.modules)"
    )
    paths = os.pathsep.join([str(installed), str(SOURCE)])
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert ended.stdout.strip() == "Multiplies tokens by one half. False", ended.stderr


@pytest.mark.usefixtures("as_file")
def test_python_uses_extensions_of_a_file() -> None:
    model = vitlab.load(MODEL, seed=0).eval()
    images = torch.randn(2, 3, 32, 32)
    before = model(images)
    vitlab.retrofit(model, "Halve")
    assert not torch.equal(model(images), before)
    vitlab.restore(model)
    expected = torch.cat([each.detach().flatten() for each in model.parameters()]).norm()
    assert abs(float(vitlab.measure("weight_norm", model, [images]).values["norm"]) - float(expected)) < 1e-4
    assert vitlab.stress("inverted", model, [images]).kind == "inverted"
    stacked = plugins.resolve(plugins.adapter_modules()[0]).CLASSES[0].rpartition(".")[0]
    assert vitlab.describe(getattr(sys.modules[stacked], "Stacked")(), 32).family == "stacked"  # noqa: B009
    assert plugins.families()["stacked"] == "Stacked()"


@pytest.mark.usefixtures("as_file")
def test_a_loss_of_an_extension_is_added_to_the_objective() -> None:
    from vitlab.core.recipe import Objective
    from vitlab.tasks.classification import make_loss

    model, images = vitlab.load(MODEL, seed=0).eval(), torch.randn(4, 3, 32, 32)
    labels, weights = torch.tensor([0, 1, 2, 3]), torch.ones(4)
    batch = (images, labels, labels, weights)
    plain = make_loss(Objective())(model, batch)
    added = make_loss(Objective(extra=("confidence(weight=0.5, power=3.0)",)))(model, batch)
    expected = 0.5 * model(images).softmax(1).amax(1).pow(3).mean()
    assert torch.allclose(added - plain, expected, atol=1e-6)


@pytest.mark.usefixtures("as_file")
def test_an_experiment_of_an_extension_is_listed_and_judged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from vitlab.cli.reproduction import show_list
    from vitlab.core.experiment import Results
    from vitlab.experiments.catalogue import experiment, select

    found = experiment("plugin_experiment")
    assert found.title == plugin_file.plugin_experiment.TITLE and found in select(all_=True)
    assert [job.procedure for job in found.plan("smoke")] == ["sizes"]
    assert [verdict.outcome for verdict in found.check(Results())] == ["holds"]
    show_list([found], tmp_path, as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["scales"]["smoke"]["jobs"] == 1


def test_objects_themselves_are_accepted() -> None:
    model = vitlab.load("timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)")
    images = torch.randn(2, 3, 32, 32)
    assert vitlab.measure(plugin_file.weight_norm, model, [images], scale=3.0).kind == "weight_norm"
    assert vitlab.stress(plugin_file.inverted, model.eval(), [images]).kind == "inverted"
    vitlab.retrofit(model, plugin_file.Halve)
    with pytest.raises(VitlabError, match="CARD and measure"):
        vitlab.measure(plugin_file.Halve, model, [images])


def test_registration_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_REGISTERED", {})
    extensions.register("instruments", "my_norm", plugin_file.weight_norm)
    model = vitlab.load("timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)")
    assert vitlab.measure("my_norm", model, [torch.randn(1, 3, 32, 32)]).kind == "weight_norm"
    assert plugins.origin("instruments", "my_norm") == "registered in Python"
    with pytest.raises(VitlabError, match="already registered"):
        extensions.register("instruments", "my_norm", plugin_file.inverted)
    with pytest.raises(VitlabError, match="parts"):
        extensions.register("part", "x", plugin_file.Halve)


def test_a_name_that_is_taken_names_both_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text('VITLAB = {"parts": ["ContextBroadcast"]}\n')
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    with pytest.raises(VitlabError, match=r"'ContextBroadcast' of file .*mine\.py is taken by vitlab"):
        plugins.parts()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n", "skipped"),
        ("x = 1\n", "no VITLAB"),
        ('VITLAB = {"partz": ["A"]}\n', "unknown kind 'partz'"),
        ("VITLAB = dict(parts=names())\n", "skipped"),
    ],
)
def test_a_broken_file_is_one_line_and_does_not_stop_the_rest(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "_REPORTED", set())
    path = tmp_path / "mine.py"
    path.write_text(text)
    monkeypatch.setenv("VITLAB_PLUGINS", os.pathsep.join([str(path), str(FILE)]))
    with pytest.warns(UserWarning, match=reason):
        assert "Halve" in plugins.parts() and "ContextBroadcast" in plugins.parts()


def test_a_package_whose_module_is_missing_is_reported(tmp_path: Path) -> None:
    text = "[vitlab.parts]\nLost = nowhere.at_all:Lost\nAbsent = broken:Absent\n"
    install(wheel(tmp_path, "broken", "x = 1\n", text), tmp_path / "site")
    ended = run("list", "parts", folder=tmp_path, also=str(tmp_path / "site"))
    assert ended.returncode == 0 and "ContextBroadcast" in ended.stdout
    assert "'Lost' of package broken 1.0" in ended.stderr and "has no 'Absent'" in ended.stderr


def test_code_that_fails_at_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text('VITLAB = {"parts": ["Bad"]}\nraise RuntimeError("no GPU here")\n')
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    with pytest.raises(VitlabError, match="cannot be imported .RuntimeError: no GPU here"):
        plugins.part("Bad")
