"""The documentation is correct: code runs, commands parse, numbers occur in the results, links are valid.

The site is built once, by the real mkdocs in strict mode, and read with the standard library's HTML parser.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer
from PIL import Image

import vitlab
from browser import browser_page, chromium, until
from vitlab.cli import app, settings_table
from vitlab.core import extensions, plugins
from vitlab.core.expressions import parse_call, split_calls

ROOT = Path(__file__).resolve().parent.parent
GENERATOR = ROOT / "docs/generator"
_FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

__all__ = ["browser_page", "chromium"]  # fixtures


def fences(page: str, language: str) -> list[tuple[str, str]]:
    """Title and text of every block of a language on a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(title, body) for kind, title, body in _FENCE.findall(text) if kind == language]


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for i in range(2):
        Image.new("RGB", (8, 8)).save(tmp_path / f"photos/{i}.png")
    (_, code), *_ = fences("README.md", "python")
    exec(code.replace("pretrained=True", "pretrained=False"), {})  # no download
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for _, code in fences("docs/tour.md", "python"):
        exec(code, names)
    assert names["page"].exists() and names["trained"].training is not None
    assert [measurement.subject for measurement in names["entropy"]] == ["plain", "with CB"]


@pytest.mark.parametrize("page", ["api", "your_own"])
def test_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks with a title are files, or need other libraries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(extensions, "_REGISTERED", {})  # what a page registers is not seen by other tests
    names: dict[str, Any] = {}
    blocks = [code for title, code in fences(f"docs/{page}.md", "python") if not title]
    for code in blocks:
        exec(code, names)
    assert len(blocks) >= 8 and "row" in names


def test_reference_has_every_public_name_with_its_signature() -> None:
    """The headings of api.md are `vitlab.__all__`, and the signatures have the names and the order of the code."""
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(vitlab.__all__)
    for name in vitlab.__all__:
        if name == "VitlabError":
            continue
        written = next(body for _, body in fences("docs/api.md", "text") if body.startswith(f"{name}("))
        call = ast.parse(f"def {written.partition(' -> ')[0].strip()}: ...").body[0]
        assert isinstance(call, ast.FunctionDef)
        own = inspect.signature(getattr(vitlab, name)).parameters
        given = call.args
        assert [each.arg for each in given.args] == [
            key for key, each in own.items() if each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        assert [each.arg for each in given.kwonlyargs] == [
            key for key, each in own.items() if each.kind is each.KEYWORD_ONLY
        ]
        assert (given.kwarg is not None) == any(each.kind is each.VAR_KEYWORD for each in own.values())


def test_command_line_page_has_every_option() -> None:
    """Each command has a section that names all of its options."""
    text = (ROOT / "docs/command_line.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for verb, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        section = next(body for heading, body in sections.items() if verb in heading.split())
        for option in (each for each in command.params if each.param_type_name == "option"):
            known = section + sections["Common rules"]
            assert any(f"`{flag}`" in known for flag in option.opts), f"{verb} {option.opts}"


@pytest.mark.slow
def test_added_files_work(tmp_path: Path) -> None:
    """Copy the files of adding.md into a copy of the package and run the blocks between them."""
    shutil.copytree(ROOT / "src/vitlab", tmp_path / "src/vitlab", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = fences("docs/adding.md", "python")
    files = [(title, code) for title, code in blocks if title.startswith("src/")]
    assert len(files) == 8
    for title, code in files:
        assert not (tmp_path / title).exists(), f"{title} is taken"
        (tmp_path / title).write_text(code, encoding="utf-8")
    script = tmp_path / "use.py"
    script.write_text("import torch\ntorch.set_num_threads(1)\n" + "".join(code for title, code in blocks if not title))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--doctest-modules"]
    for arguments in ([sys.executable, str(script)], [*command, *(title for title, _ in files if "bird" not in title)]):
        ended = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    command = [sys.executable, "-m", "vitlab", "reproduce", "cb_fig_99", "--scale", "smoke", "--json", "--quiet"]
    ended = subprocess.run([*command, "--device", "cpu"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    (judged,) = json.loads(ended.stdout)
    assert [verdict["outcome"] for verdict in judged["verdicts"]] == ["not run", "holds"], ended.stderr[-2000:]
    folder = tmp_path / "tests/experiments"
    shutil.copytree(ROOT / "tests/experiments", folder, ignore=shutil.ignore_patterns("__pycache__"))
    (title, code) = next((title, code) for title, code in blocks if title.startswith("tests/"))
    assert not (tmp_path / title).exists(), f"{title} is taken"
    (tmp_path / title).write_text(code, encoding="utf-8")
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path / "tests")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "python_files=test_*.py", "-k"]
    chosen = ["fig_99 and not in_the_paper or deep_half", "tests/experiments/test_contract.py", title]
    ended = subprocess.run([*command, *chosen], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0 and "passed" in ended.stdout, ended.stdout[-2000:] + ended.stderr[-2000:]


@pytest.mark.slow
def test_extensions_of_the_page_work(tmp_path: Path) -> None:
    """In a separate process, because extensions cannot be removed."""
    blocks = dict(fences("docs/adding.md", "python"))
    (tmp_path / "mine.py").write_text(blocks["mine.py"], encoding="utf-8")
    (tmp_path / "use.py").write_text(blocks["use_mine.py"] + blocks["register.py"], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    environment["VITLAB_PLUGINS"] = str(tmp_path / "mine.py")
    command = [sys.executable, "-m", "vitlab", "reproduce", "nano_size", "--scale", "smoke", "--json", "--quiet"]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert json.loads(ended.stdout)[0]["verdicts"][0]["outcome"] == "holds", ended.stderr[-2000:]


@pytest.mark.slow
def test_extensions_of_the_page_work_as_a_package(tmp_path: Path) -> None:
    """The instrument, its figure, the stress test and the adapter of the page, with names from `vitlab.extend` only."""
    blocks = dict(fences("docs/adding.md", "python"))
    paths = {
        "instruments": "instruments/attention_peak",
        "figures": "reporting/figures/attention_peak",
        "stress_tests": "stress_tests/grey",
        "adapters": "adapters/bird_net",
    }
    information = tmp_path / "outside-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    entries = ""
    for kind, path in paths.items():
        code = re.sub(
            r"^from vitlab\.[\w.]+ import", "from vitlab.extend import", blocks[f"src/vitlab/{path}.py"], flags=re.M
        )
        (tmp_path / f"outside_{kind}.py").write_text(code, encoding="utf-8")
        entries += f"[vitlab.{kind}]\n{Path(path).name} = outside_{kind}\n"
    (information / "entry_points.txt").write_text(entries)
    (tmp_path / "bird_net.py").write_text(blocks["src/bird_net.py"], encoding="utf-8")
    script = tmp_path / "use.py"
    script.write_text(
        "import torch, vitlab\nfrom bird_net import BirdNet\n"
        "model = BirdNet().eval()\nassert vitlab.describe(model, 32).family == 'bird_net'\n"
        "batches = [(torch.rand(2, 3, 32, 32), torch.tensor([0, 1]))]\n"
        "peak = vitlab.measure('attention_peak', model, batches)\n"
        "assert 'Attention peak' in vitlab.report([peak], 'peak.html').read_text(encoding='utf-8')\n"
        "grey = {'preprocessing': {'mean': (0.5,) * 3, 'std': (0.25,) * 3}}\n"
        "assert 0 <= vitlab.stress('grey', model, batches, **grey).values['accuracy'][0] <= 1\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src")])}
    ended = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]


def commands() -> list[str]:
    """Every `vitlab …` line in a code block of the README and of the pages."""
    pages = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
    blocks = [block for page in pages for block in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))]
    text = "\n".join(blocks)
    found = re.findall(r"^(?:\$ )?vitlab ([a-z]+) +(.*)$", text, re.MULTILINE)
    return [f"{verb} {re.split(r' {3,}', rest)[0]}" for verb, rest in found]  # text after three spaces is a remark


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_commands_parse(line: str) -> None:
    """The command line takes the verbs, options and names that the documentation shows."""
    verb, *arguments = shlex.split(line)
    arguments = [argument for argument in arguments if not argument.startswith("[")]  # [parts|models|…]: one of these
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    parsed = command.make_context(verb, arguments).params
    known = plugins.instruments() if verb == "measure" else plugins.stress_tests()
    for call in split_calls(parsed.get("with_") or ""):
        assert parse_call(call)[0] in known
    if verb == "train":
        assert plugins.recipe(parsed["recipe"]).epochs


def test_training_on_your_own_images_finds_training_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the page, with a folder as the page makes it: three classes of four images."""
    from vitlab.data.catalogue import open_data

    for label in ("red", "green", "blue"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (8, 8)).save(tmp_path / "photos" / label / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^\$ vitlab train (.*photos.*)$", (ROOT / "docs/your_own.md").read_text("utf-8"), re.MULTILINE)
    recipes = [shlex.split(line)[0] for line in lines]
    assert recipes
    for recipe in recipes:
        assert len(open_data(plugins.recipe(recipe).data).to_train_on()) == 9


def test_numbers_of_the_papers_page_are_in_the_results() -> None:
    """Each number in a row of measured_claims.md that cites a page of results occurs on that page."""
    rows = re.findall(
        r"^\|.*\| (.*?) \|.*\|$", (ROOT / "docs/measured_claims.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    cited = [(row, re.findall(r"\]\((results/\w+\.md)\)", row)) for row in rows]
    assert sum(bool(pages) for _, pages in cited) >= 10
    for row, pages in cited:
        known = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
        text = re.sub(r"\[page\]\([^)]*\)", "", row)
        assert not pages or [number for number in re.findall(r"\d+\.\d+|\d{2,}", text) if number not in known] == []


def test_numbers_of_the_papers_page_are_in_the_records() -> None:
    """Each decimal in a row of measured_claims.md that cites an experiment is a rounded number of its verdicts."""
    rows = re.findall(
        r"^\|.*\| (.*?) \|.*\|$", (ROOT / "docs/measured_claims.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    cited = [(row, re.findall(r"\]\(papers/(\w+)\.md\)", row)) for row in rows]
    assert any(names for _, names in cited)
    for row, names in cited:
        files = [file for name in names for file in (ROOT / "docs/results/data/reproduce").glob(f"*/{name}.json")]
        verdicts = [each for file in files for each in json.loads(file.read_text(encoding="utf-8"))["verdicts"]]
        known = [abs(value) for each in verdicts for value in (each["our_value"], *(each["interval"] or ())) if value]
        for number in re.findall(r"\d+\.\d+", row) if names else ():
            digits = len(number.partition(".")[2])
            assert any(f"{value:.{digits}f}" == number for value in known), number


def test_a_docstring_becomes_markdown(generator: Any) -> None:
    """Sections, equations and doctests, against text written by hand."""
    text = "A_b.\n\n    y = x_i * 2\n\nArgs:\n    a, b: two\n        lines.\n\nReturns:\n    (B, N).\n\n>>> f(1)\n2"
    assert generator.docstrings.markdown(text, {"a": "`1`"}).split("\n\n") == [
        "A\\_b.",
        "```text\ny = x_i * 2\n```",
        "**Args**",
        "`a`, `b`\n:   two lines. *Default* `1`.",
        "**Returns**",
        "(B, N).",
        "```pycon\n>>> f(1)\n2\n```",
    ]


@pytest.mark.parametrize("module", ["docstrings", "families", "hooks", "pages", "paper_overview", "paper_pages"])
def test_generator_doctests(generator: Any, module: str) -> None:
    ended = doctest.testmod(importlib.import_module(module))
    assert ended.attempted and not ended.failed


def test_pages_show_extensions_with_their_origin(
    generator: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A page of each kind for the extensions of a file."""
    from cases import plugin_file
    from vitlab.experiments.catalogue import experiment

    monkeypatch.setenv("VITLAB_PLUGINS", str(plugin_file.__file__))
    pages = generator.pages
    adapter = plugins.family_adapters()["stacked"]
    made = {
        "parts/Halve.md": pages.parts()["parts/Halve.md"],
        "losses/confidence.md": pages.losses()["losses/confidence.md"],
        "instruments/weight_norm.md": pages.instruments()["instruments/weight_norm.md"],
        "stress_tests/inverted.md": pages.stress_tests()["stress_tests/inverted.md"],
        "models/plugin_vit.md": pages.models()["models/plugin_vit.md"],
        "recipes/plugin_recipe.md": pages.recipes()["recipes/plugin_recipe.md"],
        "families/stacked.md": pages._family("stacked", adapter),
        "papers/plugin_experiment.md": pages.paper_pages.page(experiment("plugin_experiment"), {}),
    }
    for path, text in made.items():
        assert text.startswith(f"# {Path(path).stem}"), path
        assert "plugin&#95;file.py" in text or "plugin\\_file.py" in text or "plugin_file.py" in text, path
        assert "../source/" not in text, path
    both = [experiment("cb_table_s16"), experiment("plugin_experiment")]
    overview = importlib.import_module("paper_overview").overview(both, {each.name: {} for each in both})
    assert "1 tables and figures" in overview and "plugin_experiment" not in overview


def test_pages_show_the_valid_values_of_settings(generator: Any) -> None:
    page = generator.pages.stress_tests()["stress_tests/occlusion.md"]
    assert "*Default* `'zero'`; valid: 'zero' or 'black'." in page
    assert "*Default* `4`; valid: 1 to 64." in generator.pages.parts()["parts/TokenAwarePooling.md"]


def test_every_environment_variable_is_in_the_table() -> None:
    """Those that the code reads, found in its text."""
    read = re.compile(r'environ(?:\.get\(|\[)"(\w+)"|"(\w+)" in os\.environ|"(VITLAB_\w+)"')
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    used = {name for found in read.findall(text) for name in found if name}
    rows = (ROOT / "docs/command_line.md").read_text(encoding="utf-8").partition("| environment variable |")[2]
    described = {name for row in rows.splitlines() if row.startswith("| `") for name in re.findall(r"`([A-Z_]+)`", row)}
    assert {"VITLAB_DATA", "VITLAB_DEBUG"} <= used <= described


@pytest.mark.parametrize("kind", sorted(settings_table.KINDS))
def test_pages_show_every_setting_that_the_command_line_lists(generator: Any, kind: str) -> None:
    """The generated pages have the name, default and valid values of each setting of `vitlab list KIND --settings`."""
    folder = "stress_tests" if kind == "stress" else kind
    made = generator.pages.settings() if kind in ("data", "models") else getattr(generator.pages, folder)()
    cell = generator.docstrings.cell
    for name, settings in settings_table.KINDS[kind]().items():
        page = made[f"settings/{kind}.md" if kind in ("data", "models") else f"{folder}/{name}.md"]
        for row in (setting.row for setting in settings):
            assert f"`{row['setting']}`" in page, (name, row)
            assert row["default"] == "required" or cell(row["default"]) in page or f"`{row['default']}`" in page
            assert cell(row["range"]) in page or generator.docstrings.escape(row["range"]) in page, (name, row)


def test_pages_of_experiments_show_every_claim_and_verdict(generator: Any) -> None:
    """The numbers and outcome of a record are in the row of their claim; claims without a record were not run."""
    from vitlab.experiments.catalogue import experiment

    found = experiment("cb_table_s16")
    claim = next(claim for claim in found.claims if not claim.deterministic)
    entry = {"name": claim.name, "claim": claim.sentence, "paper_value": claim.paper, "our_value": 0.51}
    entry |= {"interval": [0.25, 0.75], "smallest_relevant": 0.3, "outcome": "holds", "why": "text"}
    pages = generator.pages.paper_pages
    text = pages.page(found, {"small": {"verdicts": [entry]}})
    rows = [line for line in text.splitlines() if line.endswith("* |")]
    assert len(rows) == len(found.claims)
    assert [
        row for row in rows if "| small | 0.51 points | 0.25 to 0.75 | *holds* |" in row and "raises the top-1" in row
    ]
    assert sum("*not run*" in row for row in rows) == len(rows) - 1


def test_the_overview_of_the_papers_is_current(generator: Any) -> None:
    """The committed page is what the generator returns, and has a row for each experiment."""
    text = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    overview = importlib.import_module("paper_overview")
    assert text == overview.page(), "run: python docs/generator/paper_pages.py"
    shown = [name for name in plugins.experiments() if re.search("_(fig|table)_", name)]
    assert text.startswith(f"# {len(shown)} tables and figures at a glance\n")
    rows = [line for line in text.splitlines() if "`vitlab reproduce " in line and line.startswith("| [")]
    assert len(rows) == len(plugins.experiments())
    for name, row in zip(plugins.experiments(), rows, strict=True):
        assert f"](papers/{name}.md)" in row and row.endswith(f"| `vitlab reproduce {name}` |")
    for picture in re.findall(r"\]\((results/data/reproduce/[^)]+)\)", text):
        assert (ROOT / "docs" / picture).is_file()
    assert "diagram" in text and "retracted" in text


def test_the_pages_of_the_papers_are_current(generator: Any) -> None:
    """The committed pages are what the generator returns, and their links lead to files of the repository."""
    made = generator.pages.paper_pages.committed()
    stored = {f"papers/{file.name}" for file in (ROOT / "docs/papers").glob("*")}
    assert stored == set(made) - {"papers.md"} == {f"papers/{name}.md" for name in plugins.experiments()}
    for path in stored:
        text = (ROOT / "docs" / path).read_text(encoding="utf-8")
        assert text == made[path], "run: python docs/generator/paper_pages.py"
        targets = re.findall(r"\]\(([^)]+)\)", text)
        assert targets and all((ROOT / "docs/papers" / target).is_file() for target in targets), path


def test_pages_say_what_differs_from_the_paper(generator: Any) -> None:
    """For every scale that trains networks and has no result; and what the file of the experiment says."""
    from vitlab.core.experiment import SCALES
    from vitlab.experiments.catalogue import experiment

    records = importlib.import_module("paper_overview").all_records()
    for name, found in records.items():
        text = (ROOT / f"docs/papers/{name}.md").read_text(encoding="utf-8")
        for scale in SCALES[1:]:
            kinds = {job.kind for job in experiment(name).plan(scale) if job.recipe}
            planned = bool(kinds - {"sizes", "blocks", "speed"}) and scale not in found
            assert (f"At `{scale}`: Trained on " in text) == planned, (name, scale)
    page = (ROOT / "docs/papers/tapadl_table_7.md").read_text(encoding="utf-8")
    assert "Trained on cifar100 for 60 epochs" in page and "AlexNet on CIFAR-100" in page
    assert "Eq. 1 at τ = 0 is ADL without threshold" in " ".join(page.split())


def test_pages_give_the_command_of_their_results(generator: Any) -> None:
    for name in ("cb_fig_4", "hdvw_fig_8"):
        text = (ROOT / f"docs/papers/{name}.md").read_text(encoding="utf-8")
        assert f"`vitlab reproduce {name} --scale small`" in text and "--scale smoke" not in text
        assert "DeiT-Ti with its published weights replaces" in text and "1,000 validation images" in text
    assert "repeated augmentation" in (ROOT / "docs/papers/cb_table_1.md").read_text(encoding="utf-8")


def test_rows_that_share_runs_state_it(generator: Any) -> None:
    """The effect of CB on ViT-Ti is one result, shown in several rows with the network that was used."""
    text = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    (sentence,) = [line for line in text.splitlines() if line.startswith("The rows CB ")]
    shared = re.findall(r"CB (?:Table|Fig\.) \w+", sentence)
    assert {"CB Table 1", "CB Table 2", "CB Table 3", "CB Table 5", "CB Table S15", "CB Fig. S11"} <= set(shared)
    numbers = set()
    for name in shared:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| [{name}](")]
        numbers.add(row.split(" | ")[3])
    assert len(numbers) == 1 and numbers.pop().startswith("small (ViT-Ti, CIFAR-100): ")


def test_a_row_of_the_overview_has_numbers_verdict_and_counts(generator: Any) -> None:
    """Against a record written by hand: the statistical claim with a result is shown, counts are not."""
    from vitlab.experiments.catalogue import experiment

    overview = importlib.import_module("paper_overview")
    found = experiment("cb_table_s16")
    entries = [{"name": claim.name, "claim": claim.sentence, "outcome": "not run"} for claim in found.claims]
    numbers = {"paper_value": 0.2, "our_value": 0.51, "interval": [0.25, 0.75], "smallest_relevant": 0.1, "why": ""}
    entries = [{**entry, **numbers, "our_value": None, "interval": None} for entry in entries]
    place = next(i for i, claim in enumerate(found.claims) if claim.name == "top1_cb_attention")
    entries[place] |= {**numbers, "outcome": "holds"}
    entries[0] |= {"our_value": 4599, "outcome": "does not hold"}
    text = overview.overview([found], {found.name: {"small": {"verdicts": entries}}})
    assert "1 of 1 experiments have results, for 2 of all 19 claims." in text
    assert "on 1 counts and facts: 1 does not hold. Verdicts on 1 effects: 1 holds." in text
    (row,) = [line for line in text.splitlines() if "`vitlab reproduce cb_table_s16`" in line]
    assert "| CB at attention raises the top-1 accuracy of ViT-S | 0.2 points |" in row
    assert "| small: 0.51 (0.25 to 0.75) points | *holds* |" in row
    assert "small: 1 holds, 1 does not hold, 17 not run" in row
    untouched = overview.overview([found], {found.name: {}})
    (row,) = [line for line in untouched.splitlines() if "`vitlab reproduce cb_table_s16`" in line]
    assert "| 0.6 points | – | *not run* | 19 not run | – |" in row, "the first claim with a published effect"


@pytest.fixture(scope="module")
def generator() -> Iterator[Any]:
    """The modules of docs/generator, found as mkdocs finds them."""
    pytest.importorskip("mkdocs", reason="the site needs: pip install 'vitlab[docs]'")
    sys.path.insert(0, str(GENERATOR))
    try:
        docstrings = importlib.import_module("docstrings")
        hooks = importlib.import_module("hooks")
        yield type("Generator", (), {"hooks": hooks, "pages": hooks.pages, "docstrings": docstrings})
    finally:
        sys.path.remove(str(GENERATOR))


# --- the built site ---


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in strict mode: mkdocs itself fails on a link or anchor that it cannot follow."""
    pytest.importorskip("mkdocs", reason="the site needs: pip install 'vitlab[docs]'")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return folder


class Reader(HTMLParser):
    """The anchors of a page, the links that it offers, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") not in ("prev", "next", "canonical"):
            self.loads.append(found["href"])
        elif "src" in found:
            self.loads.append(found["src"])


@cache
def read(page: Path) -> Reader:
    return Reader(page.read_text(encoding="utf-8"))


def missing(page: Path, target: str) -> bool:
    """Whether the file or anchor of a link does not exist."""
    parts = urlsplit(target)
    goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    goal = goal / "index.html" if goal.is_dir() else goal
    if not goal.is_file():
        return True
    return bool(parts.fragment) and goal.suffix == ".html" and unquote(parts.fragment) not in read(goal).anchors


def test_the_checker_sees_broken_links(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#here">', encoding="utf-8")
    (tmp_path / "b.html").write_text('<h1 id="here"><img src="https://cdn.example/x.png">', encoding="utf-8")
    assert not missing(tmp_path / "a.html", "b.html#here")
    assert missing(tmp_path / "a.html", "b.html#there") and missing(tmp_path / "a.html", "c.html")
    assert read(tmp_path / "b.html").loads == ["https://cdn.example/x.png"]


@pytest.mark.slow
def test_no_broken_link(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]  # its links start at the server's root
    assert len(pages) > 150
    broken = {
        f"{page.relative_to(site)} -> {target}"
        for page in pages
        for target in read(page).links + read(page).loads
        if not urlsplit(target).scheme and missing(page, target)
    }
    assert not broken, sorted(broken)


@pytest.mark.slow
def test_the_site_fetches_nothing(site: Path) -> None:
    """No page loads a script, font, style or picture from elsewhere, and no style does."""
    for page in site.rglob("*.html"):
        assert [load for load in read(page).loads if urlsplit(load).scheme not in ("", "data")] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
def test_every_listed_name_has_a_page(site: Path) -> None:
    expected = [
        *(f"parts/{name}.html" for name in plugins.parts()),
        *(f"instruments/{name}.html" for name in plugins.instruments()),
        *(f"stress_tests/{name}.html" for name in plugins.stress_tests()),
        *(f"families/{name}.html" for name in plugins.families()),
        *(f"recipes/{name}.html" for name in plugins.recipes()),
        *(f"papers/{name}.html" for name in plugins.experiments()),
    ]
    assert [page for page in expected if not (site / page).exists()] == []
    text = (site / "parts/TokenAwarePooling.html").read_text(encoding="utf-8")
    docstring = ast.get_docstring(next(iter(_classes("modules/token_aware_pooling.py")))) or ""
    assert docstring.splitlines()[0] in text and "src/vitlab/modules/token_aware_pooling.py" in text


def _classes(path: str) -> Iterator[ast.ClassDef]:
    tree = ast.parse((ROOT / "src/vitlab" / path).read_text(encoding="utf-8"))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


@pytest.mark.slow
def test_search_works_from_local_files(site: Path, browser_page: Any) -> None:
    """Search works on a page opened as a file, without console errors and external requests."""
    browser_page.goto((site / "index.html").as_uri())
    browser_page.keyboard.press("/")
    browser_page.keyboard.type("overfocus")
    until(browser_page, "document.querySelectorAll('.md-search-result__link').length > 0")
    links = browser_page.evaluate("[...document.querySelectorAll('.md-search-result__link')].map(a => a.href)")
    assert any("token_overfocus" in link for link in links)
