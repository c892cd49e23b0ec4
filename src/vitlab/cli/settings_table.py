"""The settings of parts, instruments, stress tests, recipes, data sets and models, for `vitlab list --settings`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.core import plugins
from vitlab.core.errors import unknown
from vitlab.core.extensions import resolve
from vitlab.core.signatures import Setting, settings_of

Schema = Mapping[str, Sequence[Setting]]

COLUMNS = ("setting", "type", "default", "range", "help")


def _parts() -> Schema:
    from vitlab.surgery import INJECTED

    return {name: settings_of(plugins.part(name), INJECTED) for name in plugins.parts()}


def _instruments() -> Schema:
    return {name: settings_of(resolve(at).measure, 2) for name, at in plugins.instruments().items()}


def _stress() -> Schema:
    return {name: settings_of(resolve(at).measure, 2) for name, at in plugins.stress_tests().items()}


def _recipes() -> Schema:
    return {name: settings_of(plugins.recipe_function(name)) for name in plugins.recipes()}


def _data() -> Schema:
    from vitlab.data.catalogue import data_settings
    from vitlab.data.question_catalogue import question_settings
    from vitlab.data.segmentation_sets import pair_settings

    return {**pair_settings(), **data_settings(), **question_settings()}


def _models() -> Schema:
    from vitlab.models._settings import architecture

    assemblies = {
        f"vitlab/{name}": settings_of(getattr(resolve(at), name), 1) for name, at in plugins.assemblies().items()
    }
    return {"vitlab/…": settings_of(architecture), **assemblies}


#: The settings of each kind by name.
KINDS: dict[str, Callable[[], Schema]] = {
    "parts": _parts,
    "models": _models,
    "instruments": _instruments,
    "stress": _stress,
    "recipes": _recipes,
    "data": _data,
}


def find(what: str) -> Schema:
    """Returns the settings of a kind, or of one thing by its name.

    Args:
        what: a kind, or the name of a part, instrument, stress test, recipe, data set or assembly.
    """
    if what in KINDS:
        return KINDS[what]()
    names: dict[str, str] = {}
    for kind in KINDS:
        known = {
            "parts": plugins.parts,
            "instruments": plugins.instruments,
            "stress": plugins.stress_tests,
            "recipes": plugins.recipes,
        }.get(kind, KINDS[kind])
        names |= dict.fromkeys(known(), kind)
        if what in names:
            return {what: KINDS[names[what]]()[what]}
    raise unknown("list or name", what, [*KINDS, *names])


def show(what: str, *, as_json: bool = False) -> None:
    """Print the settings of a kind or of one thing: a table on a terminal, lines with tabs when piped."""
    rows = {name: [setting.row for setting in settings] for name, settings in find(what).items()}
    if as_json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    lines = [(name, *(row[column] for column in COLUMNS)) for name, each in rows.items() for row in each]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(line) for line in [("name", *COLUMNS), *lines]))
        return
    table = Table(Column("name", no_wrap=True), *COLUMNS, box=None)
    for line in lines:
        table.add_row(*map(Text, line))
    Console().print(table)
