"""The architecture: which rows import which, which may name other libraries' models, and which do not import torch."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = SOURCE / "vitlab"

#: From top to bottom: a row imports only from rows below it; files of one package may import each other.
ROWS = [
    {"__main__"},
    {"cli"},
    {"experiments"},
    {"demo", "dry_run", "explore", "runner", "model_sizes"},
    {"tasks", "monitoring", "extend"},
    {"training", "instruments", "stress_tests"},
    {"zoo", "inputs"},
    {"assemblies"},
    {"preprocessing"},
    {"surgery", "checkpoints", "interventions"},
    {"identity"},
    {"recording", "fitted", "markers", "eval_mode"},
    {"adapters"},
    {"models"},
    {"data", "modules", "losses"},
    {"corruptions", "kernels"},
    {"reporting", "recipes", "progress"},
    {"core"},
]
RANK = {name: len(ROWS) - i for i, row in enumerate(ROWS) for name in row}

#: Who may name the model classes of other libraries.
MODEL_CLASSES = {"adapters", "zoo", "models", "assemblies", "tasks"}
TIMM_PIECES = ("timm.data", "timm.optim", "timm.scheduler", "timm.utils")
MAY_USE_PIECES = MODEL_CLASSES | {"preprocessing", "data", "training", "stress_tests"}
TORCH_FREE = {"core", "reporting", "recipes", "progress"}
TORCH_ONLY = {"modules", "losses"}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def unit(path: Path) -> str:
    """The top-level file or package that a file belongs to."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """All modules that a file imports, and whether at its top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = set(map(id, tree.body))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        found += [(name, id(node) in top) for name in names]
    return found


def test_every_file_has_a_row() -> None:
    assert {unit(path) for path in files()} - {"__init__"} <= set(RANK)


def test_the_architecture_page_lists_the_rows() -> None:
    """Row by row, top to bottom; names that are reserved in `ROWS` but have no file yet are not listed."""
    text = (SOURCE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.partition("| row | contents |")[2].strip().partition("\n\n")[0].splitlines()[1:]
    existing = {unit(path) for path in files()}
    listed = [set(re.findall(r"`(\w+)`", line.split("|")[1])) for line in table]
    assert listed == [row & existing for row in ROWS]


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_row_imports_only_from_rows_below(path: Path) -> None:
    own = unit(path)
    if own == "__init__":
        return  # imports lazily, on the user's behalf
    for name, _ in imports(path):
        if not name.startswith("vitlab."):
            continue
        other = name.split(".")[1]
        if other in RANK and other != own:
            assert RANK[other] < RANK[own] or (RANK[other] == RANK[own] and _siblings(own, other)), f"{path}: {name}"


def _siblings(own: str, other: str) -> bool:
    """Files of a row that act as one package: the demo and dry runs call the runner."""
    return {own, other} <= {"demo", "dry_run", "runner"}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_some_rows_import_other_libraries_models(path: Path) -> None:
    own = unit(path)
    for name, _ in imports(path):
        library = name.split(".")[0]
        if library == "timm":
            allowed = MAY_USE_PIECES if name.startswith(TIMM_PIECES) else MODEL_CLASSES
            assert own in allowed, f"{path} names {name}"
        if library == "transformers":
            trainer = own == "monitoring" and name in ("transformers", "transformers.TrainerCallback")
            assert own in MODEL_CLASSES or trainer, f"{path} names {name}"
        if name.startswith("torchvision.models"):
            assert own in {"adapters", "zoo", "assemblies", "tasks"}, f"{path} names {name}"
        if own in TORCH_FREE and library in {"torch", "torchvision", "timm", "transformers"}:
            raise AssertionError(f"{path} names {name}, but {own} imports no torch")
        if own in TORCH_ONLY:
            assert library in {"torch", "vitlab", *sys.stdlib_module_names}, f"{path} names {name}"


def test_no_cycles() -> None:
    graph: dict[str, set[str]] = {}
    names = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in files()
    }
    for name, path in names.items():
        graph[name] = {other for other, top in imports(path) if top and other in names and other != name}
    visiting: set[str] = set()
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in visiting, " -> ".join((*trail, name))
        if name in done:
            return
        visiting.add(name)
        for other in graph[name]:
            if not name.startswith(other + "."):  # a package's files may name the package
                visit(other, (*trail, name))
        visiting.discard(name)
        done.add(name)

    for name in graph:
        visit(name, ())


def loaded_by(code: str) -> set[str]:
    """The top-level libraries that a fresh process has loaded after running some code."""
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE)}
    ).stdout
    return set(json.loads(output.splitlines()[-1]))


def everything_in(package: str) -> str:
    folder = PACKAGE / package
    names = [path.stem for path in folder.glob("*.py") if path.stem != "__init__"]
    return "\n".join(f"import vitlab.{package}.{name}" for name in names) or f"import vitlab.{package}"


@pytest.mark.parametrize(
    "code",
    [
        "import vitlab",
        "from vitlab.extend import Card, Claim, Figure, Recipe, register",
        *(everything_in(package) for package in sorted(TORCH_FREE) if (PACKAGE / package).is_dir()),
        "import vitlab.cli.commands",
        "from vitlab.core import plugins; plugins.parts(); plugins.families(); plugins.instruments()",
        "from vitlab.core import plugins as names; names.stress_tests()",
    ],
    ids=lambda code: code.splitlines()[0],
)
def test_imports_no_torch_transitively(code: str) -> None:
    assert not loaded_by(code) & {"torch", "timm", "torchvision", "transformers", "plotly"}


@pytest.mark.parametrize("arguments", ["['--help']", "['list', 'parts']", "['list', 'families']"])
def test_the_command_line_lists_without_torch(arguments: str) -> None:
    code = f"""
import sys
sys.argv = ['vitlab', *{arguments}]
from vitlab.cli import main
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""
    assert not loaded_by(code) & {"torch", "timm", "torchvision", "transformers"}


@pytest.mark.parametrize("package", sorted(TORCH_ONLY))
def test_modules_and_losses_load_torch_only(package: str) -> None:
    assert not loaded_by(everything_in(package)) & {"timm", "torchvision", "transformers", "plotly"}


def test_no_public_function_shares_its_name_with_a_module() -> None:
    import vitlab

    modules = {path.stem for path in PACKAGE.iterdir()} - {"__init__"}
    assert not modules & {name for name in vitlab.__all__ if name != "__version__"}


def test_every_public_function_can_be_called_twice(tmp_path: Path) -> None:
    """A lazily imported package that shadows a function shows at the second call only."""
    import torch

    import vitlab

    text = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)"
    images = torch.randn(2, 3, 32, 32)
    for _ in range(2):
        model = vitlab.load(text)
        assert vitlab.describe(model).family == "vit"
        vitlab.retrofit(model, "ContextBroadcast")
        assert len(vitlab.parts(model)) == 2
        with vitlab.record(model, "attention") as tape:
            model(images)
        assert len(tape) == 2
        with vitlab.record_diversification(model, tau=0.0) as diversification:
            model(images)
            assert 0 < float(diversification.loss().detach()) <= 1
        vitlab.restore(model)
        measurement = vitlab.measure("attention_entropy", model, [images])
        batches = [(images.clamp(-1, 1), torch.tensor([0, 1]))]
        assert vitlab.stress("patch_shuffle", model, batches, grids=[2]).kind == "patch_shuffle"
        assert vitlab.report([measurement], tmp_path / "report.html").exists()
        with vitlab.intervene(model, "ablate", block="blocks.0"):
            model(images)
        assert isinstance(measurement, vitlab.Measurement)
        prepared = vitlab.batches_for(model, "scenes(test=4, size=32)", images=2)
        assert isinstance(prepared, vitlab.Batches)
        row = vitlab.train("quick(images=32, epochs=1)", tmp_path / "run", device="cpu")
        assert row["epoch"] == 1
        vitlab.save(model, text, str(tmp_path / "model.safetensors"))
        assert vitlab.activations(model, images, block="blocks.0").values
        assert set(vitlab.measure_together(["attention_entropy"], model, [images])) == {"attention_entropy"}
        asked = {"data": "scenes(test=4, size=32)", "images": 2, "show": False}
        assert len(vitlab.measure_models([text], ["attention_entropy"], tmp_path / "measured", **asked)) == 1
        expressions = [f"{text[:-1]}, num_classes=25)"]
        assert vitlab.stress_models(expressions, ["patch_shuffle(grids=(2,))"], tmp_path / "stressed", **asked)
        assert vitlab.Monitor(model, [images], every=1).after_step(1)
        assert callable(vitlab.hugging_face_callback) and callable(vitlab.lightning_callback)
        with pytest.raises(vitlab.VitlabError, match="rgb_anon"):
            next(vitlab.export_acdc(model, tmp_path, tmp_path / "exported"))
        assert vitlab.tensorboard_log(tmp_path) and vitlab.wandb_log(tmp_path, "project")
    assert set(vitlab.__all__) == {
        "Batches",
        "Measurement",
        "Monitor",
        "VitlabError",
        "activations",
        "batches_for",
        "describe",
        "export_acdc",
        "hugging_face_callback",
        "intervene",
        "lightning_callback",
        "load",
        "measure",
        "measure_models",
        "measure_together",
        "parts",
        "record",
        "record_diversification",
        "report",
        "restore",
        "retrofit",
        "save",
        "stress",
        "stress_models",
        "tensorboard_log",
        "train",
        "wandb_log",
    }, "a new public name: call it twice here too"
