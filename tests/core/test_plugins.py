"""Names read from files equal those of the imported modules."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vitlab
from vitlab.core import descriptions, plugins
from vitlab.core.errors import VitlabError

ROOT = Path(plugins.__file__).resolve().parents[2]


@pytest.mark.parametrize(("folder", "listed"), [("modules", plugins.parts), ("recipes", plugins.recipes)])
def test_listed_names_are_the_public_names_of_the_modules(folder: str, listed: Callable[[], dict[str, str]]) -> None:
    found = {}
    for file in sorted((ROOT / "vitlab" / folder).glob("[!_]*.py")):
        module = importlib.import_module(f"vitlab.{folder}.{file.stem}")
        found |= dict.fromkeys(getattr(module, "__all__", []), module.__name__)
    assert listed() == found
    assert all(callable(getattr(importlib.import_module(module), name)) for name, module in found.items())


@pytest.mark.parametrize(
    ("folder", "listed"), [("instruments", plugins.instruments), ("stress_tests", plugins.stress_tests)]
)
def test_instruments_and_stress_tests_are_the_modules_with_a_card(
    folder: str, listed: Callable[[], dict[str, str]]
) -> None:
    for name, module in listed().items():
        loaded = importlib.import_module(module)
        assert module == f"vitlab.{folder}.{name}" and loaded.CARD.title and callable(loaded.measure)


def test_families_come_from_the_adapters() -> None:
    found: dict[str, str] = {}
    for module in plugins.adapter_modules():
        found |= importlib.import_module(module).FAMILIES
    assert plugins.families() == found and list(plugins.families()) == sorted(found)
    assert len(found) >= 34


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys; from vitlab.core import descriptions, plugins as p; "
        "[f() for f in (p.parts, p.recipes, p.instruments, p.stress_tests, p.families, p.models, p.adapter_modules)]; "
        "descriptions.summary('vitlab.modules.context_broadcast', 'ContextBroadcast'); p.recipe('quick'); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}).returncode == 0


def test_a_part_is_its_class() -> None:
    from vitlab.modules.context_broadcast import ContextBroadcast

    assert plugins.part("ContextBroadcast") is ContextBroadcast
    with pytest.raises(VitlabError, match=r"no part 'ContextBroadcst' \(did you mean 'ContextBroadcast'\?\)"):
        plugins.part("ContextBroadcst")


def test_summaries_are_the_first_lines_of_docstrings() -> None:
    from vitlab.modules import context_broadcast as module

    first = module.ContextBroadcast.__doc__.splitlines()[0]
    assert descriptions.summary(module.__name__, "ContextBroadcast") == first
    assert descriptions.summary(module.__name__) == module.__doc__.splitlines()[0]


def test_a_recipe_is_what_its_function_returns() -> None:
    from vitlab.recipes.quick import quick

    assert plugins.recipe("quick(images=64, epochs=1)") == quick(images=64, epochs=1)
    made = plugins.recipe("quick(diversification=1)")
    assert made == quick(diversification=1.0) and isinstance(made.objective.diversification, float)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("quik", r"no recipe 'quik' \(did you mean 'quick'\?\); there are: .*quick"),
        ("quick(epoch=1)", r"no setting of quick 'epoch' \(did you mean 'epochs'\?\); there are: part, div"),
        ("quick(epochs='3')", r"quick\(epochs='3'\): expected an integer from 1"),
        ("quick(epochs=True)", r"quick\(epochs=True\): expected an integer"),
        ("quick(images=1.5)", r"quick\(images=1.5\): expected an integer"),
        ("quick(epochs=__import__('os'))", "is not a literal"),
        ("quick(epochs=0)", r"quick\(epochs=0\): expected an integer from 1"),
    ],
)
def test_mistakes_in_a_recipe_are_one_line(text: str, error: str) -> None:
    with pytest.raises(VitlabError, match=error) as caught:
        plugins.recipe(text)
    assert len(str(caught.value).splitlines()) == 1


def test_every_recipe_can_be_made_from_its_name_alone() -> None:
    assert len(plugins.recipes()) > 3
    for name in plugins.recipes():
        assert plugins.recipe(name).epochs >= 1


@pytest.mark.parametrize("setting", ["stop", "no_such_setting"])
@pytest.mark.parametrize(
    ("use", "known"), [(vitlab.measure, plugins.instruments), (vitlab.stress, plugins.stress_tests)]
)
def test_an_unknown_setting_names_the_known_ones(use: Any, known: Any, setting: str) -> None:
    for kind, module in known().items():
        takes = list(inspect.signature(importlib.import_module(module).measure).parameters)[2:]
        if setting in takes:
            continue
        with pytest.raises(VitlabError, match=f"no setting of {kind} '{setting}'") as caught:
            use(kind, None, [], **{setting: "fog"})
        assert all(name in str(caught.value) for name in takes) and "\n" not in str(caught.value)
