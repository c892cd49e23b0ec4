"""Extensions from an installed package, from a file and from Python, from Python and from the command line."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

import vitlab
from cases import plugin_file
from vitlab.core import descriptions, extensions, plugins
from vitlab.core.errors import ExtensionError, VitlabError
from vitlab.core.registration import register
from vitlab.core.source_files import parsed
from vitlab.data.catalogue import data_sets
from vitlab.data.question_catalogue import question_sets
from vitlab.data.segmentation_sets import pair_sets
from vitlab.identity import identify

FILE = Path(plugin_file.__file__)
SOURCE = Path(vitlab.__file__).resolve().parents[1]
MODEL = "vitlab/plugin_vit(num_classes=25)"
MODEL_WITHOUT_PLUGIN = (
    "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
)
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


@pytest.mark.slow
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
        "import sys; from vitlab.core import descriptions, plugins;"
        "names = [plugins.parts(), plugins.instruments(), plugins.recipes(), plugins.families(), plugins.losses()];"
        "assert 'Halve' in names[0] and 'confidence' in names[4];"
        "print(descriptions.summary(names[0]['Halve'], 'Halve'), 'torch' in sys.modules)"
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


def test_functions_are_accepted() -> None:
    from vitlab.instruments import attention_entropy
    from vitlab.stress_tests import patch_shuffle

    model = vitlab.load(MODEL_WITHOUT_PLUGIN, seed=0).eval()
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([0, 1])
    by_name = vitlab.measure("attention_entropy", model, [images], name="x")
    by_function = vitlab.measure(attention_entropy.measure, model, [images], name="x")
    assert (by_function.values["mean"] == by_name.values["mean"]).all() and by_function.kind == "attention_entropy"
    assert vitlab.stress(patch_shuffle.measure, model, [(images, labels)], grids=[2]).kind == "patch_shuffle"

    def brightness(model: torch.nn.Module, batches: list[Tensor], *, power: float = 1.0) -> vitlab.Measurement:
        value = torch.cat(list(batches)).pow(power).mean().double().numpy()
        return vitlab.Measurement("brightness", "", {"mean": value}, {"mean": ()})

    for use in (vitlab.measure, vitlab.stress):
        found = use(brightness, model, [images], power=2.0, name="mine")
        assert found.subject == "mine" and np.isclose(found.values["mean"], (images**2).mean().item())
        with pytest.raises(VitlabError, match="no setting of brightness 'powr'"):
            use(brightness, model, [images], powr=2.0)
    with pytest.raises(VitlabError, match="returned float; expected a vitlab.Measurement"):
        vitlab.measure(lambda model, batches: 1.0, model, [images])


@pytest.fixture
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_REGISTERED", {})


@pytest.mark.usefixtures("_nothing_registered")
def test_registration_in_python() -> None:
    register("instruments", "my_norm", plugin_file.weight_norm)
    model = vitlab.load("timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)")
    assert vitlab.measure("my_norm", model, [torch.randn(1, 3, 32, 32)]).kind == "weight_norm"
    assert descriptions.origin("instruments", "my_norm") == "registered in Python"
    taken = r"'my_norm' of class .*inverted, registered in Python, is taken by class .*weight_norm, .* registered"
    with pytest.raises(VitlabError, match=taken):
        register("instruments", "my_norm", plugin_file.inverted)
    with pytest.raises(VitlabError, match="parts"):
        register("part", "x", plugin_file.Halve)


@pytest.mark.usefixtures("_nothing_registered", "as_file")
def test_a_registered_name_that_is_taken_names_both_origins() -> None:
    """The name raises immediately, and existing extensions still work."""
    with pytest.raises(VitlabError, match=r"'ContextBroadcast' of class .*Halve, registered .* taken by vitlab;"):
        register("parts", "ContextBroadcast", plugin_file.Halve)
    with pytest.raises(VitlabError, match=r"'Halve' of class .*, registered in Python, is taken by file .*plugin_file"):
        register("parts", "Halve", plugin_file.Halve)
    with pytest.raises(VitlabError, match=r"data: the name 'camvid' of function .* is taken by vitlab"):
        register("data", "camvid", plugin_file.few_scenes)
    with pytest.raises(VitlabError, match=r"families: the name 'stacked' of class .* is taken by file .*plugin_file"):
        register("adapters", "another", plugin_file.stacked_adapter)
    assert plugins.part("ContextBroadcast").__module__ == "vitlab.modules.context_broadcast"
    assert "stacked" in plugins.families()


@pytest.mark.usefixtures("_nothing_registered")
def test_a_cell_that_is_run_twice_replaces_its_definition() -> None:
    """The second definition is used, and its code version differs from that of the first."""
    cell = "class Scale(nn.Module):\n    default_seam = 'mlp.out'\n    def forward(self, x):\n        return x * {}\n"
    versions = []
    for factor in (2, 3, 3):
        space = {"nn": torch.nn, "__name__": "notebook"}
        exec(cell.format(factor), space)
        register("parts", "Scale", space["Scale"])
        versions.append(descriptions.source_digest("registered:parts:Scale"))
        assert plugins.part("Scale")()(torch.ones(1)).item() == factor
    assert versions[0] != versions[1] == versions[2]


@pytest.mark.parametrize(
    ("kind", "thing", "message"),
    [
        ("parts", 3, "got 3 of type int; expected a class of torch.nn.Module"),
        ("parts", plugin_file.confidence, "expected a class of torch.nn.Module"),
        ("instruments", plugin_file.Halve, "Halve without CARD, measure; expected a module, class or object with CARD"),
        ("stress_tests", plugin_file.confidence, "without CARD, measure"),
        ("adapters", plugin_file.inverted, "without FAMILIES, CLASSES, ABSENT, family, blocks"),
        ("experiments", plugin_file.inverted, "without TITLE, PAPER, CLAIMS, plan, check"),
        ("data", "scenes", "expected a function"),
        ("figures", None, "expected a function, or a module with draw"),
    ],
)
@pytest.mark.usefixtures("_nothing_registered")
def test_an_object_that_its_kind_cannot_use_is_refused(kind: str, thing: object, message: str) -> None:
    with pytest.raises(VitlabError, match=message) as caught:
        register(kind, "thing", thing)
    assert "\n" not in str(caught.value) and "'thing'" in str(caught.value)
    assert not extensions.extensions(kind)
    with pytest.raises(VitlabError, match="invalid name"):
        register("parts", "two words", plugin_file.Halve)


def test_a_name_that_is_taken_names_both_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text('VITLAB = {"parts": ["ContextBroadcast"]}\nclass ContextBroadcast: ...\n')
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    with pytest.raises(VitlabError, match=r"'ContextBroadcast' of file .*mine\.py is taken by vitlab"):
        plugins.parts()


@pytest.mark.parametrize(
    ("kind", "name", "read"),
    [
        ("instruments", "lesion", plugins.instruments),
        ("stress_tests", "occlusion", plugins.stress_tests),
        ("losses", "distillation", plugins.losses),
        ("recipes", "quick", plugins.recipes),
        ("experiments", "cb_table_s16", plugins.experiments),
        ("figures", "lesion", plugins.figures),
        ("adapters", "timm_vit", plugins.families),
        ("models", "rvt_tiny", plugins.models),
        ("models", "upernet", plugins.models),
        ("data", "cifar100", data_sets),
        ("data", "camvid", data_sets),
        ("data", "vqav2", data_sets),
    ],
)
def test_a_taken_name_of_any_kind_is_an_error(
    kind: str, name: str, read: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"VITLAB = {{{kind!r}: [{name!r}]}}\ndef {name}(): ...\n")
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    with pytest.raises(
        VitlabError, match=rf"{kind}: the name '{name}' of file .*mine\.py is taken by vitlab"
    ) as caught:
        read()
    assert "\n" not in str(caught.value)


def test_a_family_of_two_adapters_names_both_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    for path, family in ((first, "bird"), (second, "bird")):
        path.write_text(
            f"VITLAB = {{'adapters': ['{path.stem}']}}\nclass {path.stem}:\n    FAMILIES = {{{family!r}: ''}}\n"
        )
    monkeypatch.setenv("VITLAB_PLUGINS", os.pathsep.join([str(first), str(second)]))
    with pytest.raises(VitlabError, match=r"'bird' of file .*second\.py is taken by file .*first\.py"):
        plugins.families()
    second.write_text(second.read_text().replace("bird", "vit"))
    monkeypatch.setenv("VITLAB_PLUGINS", str(second))
    parsed.cache_clear()
    with pytest.raises(VitlabError, match=r"'vit' of file .*second\.py is taken by vitlab"):
        plugins.families()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def broken(:\n", "skipped"),
        ("x = 1\n", "no VITLAB"),
        ('VITLAB = {"partz": ["A"]}\n', "unknown kind 'partz'"),
        ("VITLAB = dict(parts=names())\n", "skipped"),
        ('VITLAB = {"parts": ["Missing"]}\n', "mine.py has no 'Missing'; it is skipped"),
        ('VITLAB = ["parts"]\n', r"mine.py is skipped .VITLAB is \['parts'\]; expected VITLAB = {"),
        ("VITLAB = 3\n", "mine.py is skipped .VITLAB is 3; expected"),
        ('VITLAB = {"parts": 3}\n', "mine.py is skipped .VITLAB has 'parts': 3; expected"),
        ('VITLAB = {"parts": "Damp"}\nclass Damp: ...\n', "mine.py is skipped .VITLAB has 'parts': 'Damp'; expected"),
        ('VITLAB = {"parts": [3]}\n', r"mine.py is skipped .VITLAB has 'parts': \[3\]; expected"),
        ('VITLAB = {"parts": {"A": ["b"]}}\n', "mine.py is skipped .VITLAB has 'parts': {'A'"),
        ('VITLAB = {["parts"]: 3}\n', "mine.py is skipped .VITLAB is not a literal"),
        ('VITLAB: dict = {"partz": []}\n', "unknown kind 'partz'"),
    ],
)
def test_a_broken_file_is_one_line_and_does_not_stop_the_rest(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "_REPORTED", set())
    path = tmp_path / "mine.py"
    path.write_text(text)
    monkeypatch.setenv("VITLAB_PLUGINS", os.pathsep.join([str(path), str(FILE)]))
    with pytest.warns(UserWarning, match=reason) as caught:
        assert "Halve" in plugins.parts() and "ContextBroadcast" in plugins.parts()
    assert len(caught) == 1 and "\n" not in str(caught[0].message)


def test_annotated_declarations_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`VITLAB: dict = …` and `CARD: ClassVar = …` mean the same as without annotations."""
    path = tmp_path / "mine.py"
    text = "class size:\n    CARD: object = Card(title='Size', cost='nothing')\n"
    path.write_text(f"VITLAB: dict[str, list[str]] = {{'instruments': ['size']}}\n{text}")
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    assert descriptions.card(plugins.instruments()["size"]) == {"title": "Size", "cost": "nothing"}


def test_a_package_whose_module_is_missing_is_reported(tmp_path: Path) -> None:
    text = "[vitlab.parts]\nLost = nowhere.at_all:Lost\nAbsent = broken:Absent\n"
    install(wheel(tmp_path, "broken", "x = 1\n", text), tmp_path / "site")
    install(wheel(tmp_path, "unreadable", "def (\n", "[vitlab.parts]\nTorn = unreadable:Torn\n"), tmp_path / "site")
    ended = run("list", "parts", folder=tmp_path, also=str(tmp_path / "site"))
    assert ended.returncode == 0 and "ContextBroadcast" in ended.stdout
    warned = sorted(line for line in ended.stderr.splitlines() if "skipped" in line)
    expected = ("'Absent' of package broken 1.0: broken.py has no 'Absent'", "'Lost' of package broken 1.0: nowhere")
    for line, start in zip(warned, (*expected, "'Torn' of package unreadable 1.0: unreadable.py cannot"), strict=True):
        assert line.startswith(f"warning: parts: {start}")


def test_an_editable_package_is_found_where_its_code_is(tmp_path: Path) -> None:
    """`pip install --editable` writes metadata into one folder and adds another one to the search path."""
    information, code = tmp_path / "site/outside-1.0.dist-info", tmp_path / "src/outside"
    information.mkdir(parents=True)
    code.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[vitlab.parts]\nHalve = outside.inner:Halve\n")
    (code / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (code / "inner.py").write_text('class Halve:\n    """Half of it."""\n')
    paths = os.pathsep.join([str(tmp_path / "site"), str(tmp_path / "src")])
    ended = run("list", "parts", "--json", folder=tmp_path, also=paths)
    assert json.loads(ended.stdout)["Halve"] == "Half of it. [package outside 1.0]", ended.stderr


def test_code_that_fails_at_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text('VITLAB = {"parts": ["Bad"]}\nclass Bad: ...\nraise RuntimeError("no GPU here")\n')
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    with pytest.raises(VitlabError, match="cannot be imported .RuntimeError: no GPU here"):
        plugins.part("Bad")


def test_what_an_extension_prints_at_import_does_not_mix_with_the_output(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        'VITLAB = {"data": ["photos"]}\nprint("loading")\ndef photos(location):\n    """Photos."""\n'
    )
    listed = run("list", "data", "--settings", "--json", folder=tmp_path, VITLAB_PLUGINS="loud.py")
    assert "photos" in json.loads(listed.stdout) and "loading" in listed.stderr


def test_code_that_exits_at_import_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "leaving.py"
    path.write_text('import sys\nVITLAB = {"data": ["photos"]}\ndef photos(location): ...\nsys.exit(3)\n')
    monkeypatch.setenv("VITLAB_PLUGINS", os.pathsep.join([str(path), str(FILE)]))
    monkeypatch.setattr(extensions, "_REPORTED", set())
    with pytest.warns(UserWarning, match=r"leaving\.py:photos cannot be imported .SystemExit: 3.; it is skipped"):
        assert {"few_scenes", "scenes"} <= set(data_sets())


def test_an_extension_that_cannot_be_used_does_not_stop_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Code that fails at import, and cards and families that cannot be read without an import."""
    from vitlab.cli import listing

    path = tmp_path / "mine.py"
    declared = {"data": ["photos"], "models": ["bad_vit"], "adapters": ["bird"], "instruments": ["uncarded"]}
    text = "def photos(): ...\ndef bad_vit(): ...\nclass bird:\n    FAMILIES = dict(bird='')\nclass uncarded: ...\n"
    path.write_text(f"VITLAB = {declared}\n{text}raise RuntimeError('no GPU here')\n")
    monkeypatch.setenv("VITLAB_PLUGINS", os.pathsep.join([str(path), str(FILE)]))
    monkeypatch.setattr(extensions, "_REPORTED", set())
    with pytest.warns(UserWarning) as caught:
        assert {"few_scenes", "scenes"} <= set(data_sets()) and "photos" not in data_sets()
        model = vitlab.load(MODEL, seed=0)
        assert vitlab.describe(model).family == "vit"
        assert {"stacked", "vit"} <= set(plugins.families())
        for kind in ("instruments", "families"):
            listing.show(kind, as_json=True)
    listed = capsys.readouterr().out
    assert "weight_norm" in listed and "lesion" in listed and "uncarded" not in listed
    lines = [str(each.message) for each in caught if "skipped" in str(each.message)]
    assert len(lines) == len(set(lines)) == 5 and not any("\n" in line for line in lines)
    assert sum("no GPU here" in line for line in lines) == 3


def test_the_settings_of_an_extension_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitlab.cli import settings_table

    (tmp_path / "mine.py").write_text('VITLAB = {"parts": ["Bad"]}\nclass Bad: ...\nraise RuntimeError("no GPU")\n')
    monkeypatch.setenv("VITLAB_PLUGINS", str(tmp_path / "mine.py"))
    monkeypatch.setattr(extensions, "_REPORTED", set())
    with (
        pytest.warns(UserWarning, match="no GPU"),
        pytest.raises(VitlabError, match="settings of 'Bad' cannot be read"),
    ):
        settings_table.find("Bad")


def test_an_object_of_a_wrong_type_in_a_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text('VITLAB = {"parts": ["Three"], "recipes": ["four"]}\nThree, four = 3, 4\n')
    monkeypatch.setenv("VITLAB_PLUGINS", str(tmp_path / "mine.py"))
    with pytest.raises(VitlabError, match=r"the part 'Three' \(.*mine\.py:Three\) is of type int; expected a class"):
        vitlab.load(f"{MODEL} | Three")
    with pytest.raises(VitlabError, match="the recipe 'four' .* is of type int"):
        plugins.recipe("four")


def test_names_that_are_defined_in_other_statements_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        'VITLAB = {"recipes": ["one", "two", "three", "four", "five"]}',
        "try:\n    from nothing_of_this_name import one\nexcept ImportError:\n    def one(): ...",
        "if True:\n    def two(): ...\nelse:\n    pass",
        "three, (four, *_) = one, (two, one)",
    ]
    (tmp_path / "mine.py").write_text("\n".join(lines))
    monkeypatch.setenv("VITLAB_PLUGINS", str(tmp_path / "mine.py"))
    monkeypatch.setattr(extensions, "_REPORTED", set())
    with pytest.warns(UserWarning, match="mine.py has no 'five'; it is skipped") as caught:
        assert set(extensions.extensions("recipes")) == {"one", "two", "three", "four"}
    assert len(caught) == 1
    (tmp_path / "mine.py").write_text('VITLAB = {"recipes": ["five"]}\nfrom elsewhere import *\n')
    assert set(extensions.extensions("recipes")) == {"five"}


@pytest.mark.usefixtures("as_file")
def test_every_list_shows_the_origin(capsys: pytest.CaptureFixture[str]) -> None:
    from vitlab.cli import listing

    names = {
        "parts": "Halve",
        "models": "vitlab/plugin_vit",
        "families": "stacked",
        "instruments": "weight_norm",
        "stress": "inverted",
        "recipes": "plugin_recipe",
        "data": "few_scenes",
        "losses": "confidence",
        "figures": "weight_norm",
        "experiments": "plugin_experiment",
    }
    assert set(names) == set(listing.KINDS)
    for kind, name in names.items():
        listing.show(kind, as_json=True)
        rows = json.loads(capsys.readouterr().out)
        found = rows[name]["title"] if isinstance(rows[name], dict) else rows[name]
        assert found.endswith(f"[file {FILE}]"), kind
        others = [row["title"] if isinstance(row, dict) else row for key, row in rows.items() if key != name]
        assert others and not any("[file" in row for row in others)


@pytest.mark.usefixtures("as_file")
@pytest.mark.parametrize(("kind", "name"), [("parts", "Halve"), ("instruments", "weight_norm")])
def test_the_origin_is_whole_on_a_narrow_terminal(kind: str, name: str) -> None:
    """A path without spaces is wrapped in its column without losing letters."""
    from vitlab.cli import listing

    row = {name: listing.KINDS[kind]()[name]}
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(listing._table(row))
    lines = console.export_text().splitlines()[kind == "instruments" :]
    start = lines[0].index("Norm" if kind == "instruments" else "Multiplies")
    end = lines[0].index("  no", start) if kind == "instruments" else None
    shown = "".join(line[start:end] for line in lines)
    assert f"[file {FILE}]".replace(" ", "") in shown.replace(" ", "")


@pytest.mark.usefixtures("as_file")
def test_completion_shows_the_origin() -> None:
    from vitlab.cli import completion

    origin = f"file {FILE}"
    assert completion.instruments("lesion,weight_n") == [("lesion,weight_norm", origin)]
    assert completion.stress_tests("invert") == [("inverted", origin)]
    assert completion.recipes("plugin_") == [("plugin_recipe", origin)]
    assert completion.experiments("plugin_") == [("plugin_experiment", origin)]
    assert completion.models("vitlab/plugin") == [("vitlab/plugin_vit", origin)]
    assert completion.models("vitlab/plugin_vit | Hal") == [("vitlab/plugin_vit | Halve", origin)]
    assert completion.models("vit") == ["vitlab/", ("vitlab/plugin_vit", origin)]


def test_the_shell_receives_names_and_origins(tmp_path: Path) -> None:
    """As zsh calls it: typer prints each name with its help."""
    variables = {"_VITLAB_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "vitlab train plugin_"}
    code = "from vitlab.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "VITLAB_PLUGINS": str(FILE), **variables}
    command = [sys.executable, "-c", f"import sys; sys.argv = ['vitlab']; {code}"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "plugin_recipe" in ended.stdout and "plugin_file.py" in ended.stdout, ended.stderr


@pytest.mark.usefixtures("as_file")
def test_measurements_and_the_report_name_the_origin(tmp_path: Path) -> None:
    model = vitlab.load(f"{MODEL} | Halve", seed=0).eval()
    images = torch.randn(2, 3, 32, 32)
    found = vitlab.measure("weight_norm", model, [images])
    origin = f"file {FILE}"
    assert found.provenance["extensions"] == {"weight_norm": origin, "plugin_vit": origin, "Halve": origin}
    text = vitlab.report([found], tmp_path / "report.html").read_text(encoding="utf-8")
    named = ("Halve", "figures", "plugin_vit", "weight_norm")
    assert f"From extensions: {', '.join(f'{name} ({origin})' for name in named)}." in text
    plain = vitlab.measure("attention_entropy", vitlab.load(MODEL_WITHOUT_PLUGIN), [images])
    assert "extensions" not in plain.provenance
    assert "From extensions" not in vitlab.report([plain], tmp_path / "plain.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("as_file")
def test_the_origin_of_model_and_data_is_known_where_they_are_indirect(tmp_path: Path) -> None:
    """The architecture of a file, of a restored model and of a backbone; the data set of batches and of the runner."""
    origin = f"file {FILE}"
    vitlab.save(vitlab.load(MODEL, seed=0), MODEL, str(tmp_path / "model.safetensors"))
    model = vitlab.load(f"file/{tmp_path / 'model.safetensors'}").eval()
    batches = vitlab.batches_for(model, "few_scenes(count=4)")
    expected = {"plugin_vit": origin, "few_scenes": origin}
    assert vitlab.measure("attention_entropy", model, batches).provenance["extensions"] == expected
    (stored,) = vitlab.measure_models([MODEL_WITHOUT_PLUGIN], ["attention_entropy"], tmp_path, data="few_scenes")
    assert stored.provenance["extensions"] == {"few_scenes": origin}
    assert "extensions" not in stored.provenance["model"]
    assembly = vitlab.load(f"vitlab/upernet(backbone={MODEL.partition('(')[0]!r}, classes=2)")
    assert identify(assembly).extensions == {"plugin_vit": origin}
    restored = vitlab.restore(vitlab.load(f"{MODEL} | Halve"))
    assert identify(restored).extensions == {"plugin_vit": origin}


@pytest.mark.parametrize(
    "kind", ["parts", "families", "instruments", "stress", "recipes", "data", "losses", "figures", "experiments"]
)
def test_listing_extensions_from_the_command_line_imports_no_torch(kind: str, installed: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.argv = ['vitlab', 'list', '{kind}', '--json']\nfrom vitlab.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert not {'torch', 'timm', 'outside'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(SOURCE)])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert ended.returncode == 0 and "package outside 1.0" in ended.stdout, ended.stderr


@pytest.mark.usefixtures("as_file")
def test_data_sets_are_described_without_an_import_as_with_one() -> None:
    assert descriptions.data_summaries() == {**pair_sets(), **data_sets(), **question_sets()}


BOOM = """
from vitlab.extend import Card, Measurement, Observer, observe

VITLAB = {"instruments": ["boom", "late", "number"], "stress_tests": ["bang"]}

class boom:
    CARD = Card(title="Fails", paper="", cost="", inputs="images")
    def measure(model, batches):
        raise KeyError("no such layer")

class late:
    CARD = Card(title="Fails in a shared pass", paper="", cost="", inputs="images", passes="shared")
    class Accumulator(Observer):
        kind = "late"
        def begin(self, anatomy):
            self.count = 1 / 0
    def measure(model, batches):
        return observe(model, batches, [late.Accumulator()])[0]

class number:
    CARD = Card(title="No measurement", paper="", cost="", inputs="images")
    def measure(model, batches):
        return 3

class bang:
    CARD = Card(title="Calls the model wrongly", paper="", cost="", inputs="images")
    def measure(model, batches):
        model(3)
"""


def test_an_instrument_of_an_extension_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    """One line with name and origin, the others are stored, and the exit code is not 0."""
    path = tmp_path / "mine.py"
    path.write_text(BOOM)
    names = "boom,late,attention_entropy,attention_distance,lesion"
    command = ("measure", MODEL_WITHOUT_PLUGIN, "--with", names, "--images", "2", "--device", "cpu", "--json")
    ended = run(*command, folder=tmp_path, VITLAB_PLUGINS=str(path))
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    kinds = ["attention_entropy", "attention_distance", "lesion"]
    assert [each["kind"] for each in json.loads(ended.stdout)] == kinds
    assert sorted(each.stem for each in tmp_path.rglob("runs/**/*.json")) == sorted(kinds)
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("vitlab:")]
    assert f"instrument 'boom' of file {path} failed: KeyError: 'no such layer'" in line
    assert f"instrument 'late' of file {path} failed: ZeroDivisionError: division by zero" in line
    shown = run(*command, folder=tmp_path, VITLAB_PLUGINS=str(path), VITLAB_DEBUG="1")
    assert shown.returncode == 1 and shown.stderr.count('raise KeyError("no such layer")') == 1


def test_errors_of_extensions_name_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BOOM)
    monkeypatch.setenv("VITLAB_PLUGINS", str(path))
    model, images = vitlab.load(MODEL_WITHOUT_PLUGIN, seed=0).eval(), torch.randn(2, 3, 32, 32)
    with pytest.raises(ExtensionError, match=r"stress test 'bang' of file .*mine.py failed: ") as caught:
        vitlab.stress("bang", model, [images])
    assert "\n" not in str(caught.value) and caught.value.__cause__ is not None
    with pytest.raises(ExtensionError, match=r"'number' of file .*mine.py failed: .* returned int; expected"):
        vitlab.measure("number", model, [images])


@pytest.mark.usefixtures("as_file")
def test_a_function_without_a_signature_is_no_part() -> None:
    with pytest.raises(VitlabError, match="relu.* is not a part; expected a name, a class or a torch.nn.Module"):
        vitlab.retrofit(vitlab.load(MODEL, seed=0), torch.relu, at="mlp.out")


@pytest.mark.usefixtures("as_file")
def test_an_instance_of_a_part_is_accepted() -> None:
    model = vitlab.load(MODEL, seed=0).eval()
    images = torch.randn(2, 3, 32, 32)
    by_name = vitlab.retrofit(vitlab.load(MODEL, seed=0).eval(), "Halve")(images)
    assert torch.equal(vitlab.retrofit(model, plugin_file.Halve())(images), by_name)
