"""The settings of parts, instruments, stress tests, recipes, data, losses and models, for `vitlab list --settings`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from vitlab.cli.json_output import print_json
from vitlab.core import plugins
from vitlab.core.descriptions import origin
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.extensions import resolve, warn_once
from vitlab.core.signatures import Setting, settings_of

Schema = Mapping[str, Sequence[Setting]]

COLUMNS = ("setting", "type", "default", "range", "help")


def _parts() -> Schema:
    from vitlab.surgery.building import INJECTED

    return _each("parts", plugins.parts(), lambda name: settings_of(plugins.part(name), INJECTED))


def _instruments() -> Schema:
    known = plugins.instruments()
    return _each(
        "instruments", known, lambda name: settings_of(plugins.procedure("instrument", name, known)[1].measure, 2)
    )


def _stress() -> Schema:
    known = plugins.stress_tests()
    return _each(
        "stress_tests", known, lambda name: settings_of(plugins.procedure("stress test", name, known)[1].measure, 2)
    )


def _recipes() -> Schema:
    return _each("recipes", plugins.recipes(), lambda name: settings_of(plugins.recipe_function(name)))


def _each(kind: str, names: Iterable[str], settings: Callable[[str], Sequence[Setting]]) -> Schema:
    """The settings of each name; an extension that cannot be imported is reported and left out."""
    found = {}
    for name in names:
        try:
            found[name] = settings(name)
        except VitlabError as error:
            if not origin(kind, name):
                raise
            warn_once(f"{kind}: {name!r} of {origin(kind, name)} is skipped ({error})")
    return found


def data_set_settings() -> Schema:
    """The settings of all data sets by name."""
    from vitlab.data.catalogue import data_settings
    from vitlab.data.question_catalogue import question_settings
    from vitlab.data.segmentation_sets import pair_settings

    return {**pair_settings(), **data_settings(), **question_settings()}


def _models() -> Schema:
    from vitlab.models._settings import architecture
    from vitlab.zoo import settings_of_model

    assemblies = {f"vitlab/{name}": settings_of_model(f"vitlab/{name}") for name in plugins.assemblies()}
    return {"vitlab/…": settings_of(architecture), **assemblies}


def _losses() -> Schema:
    """The settings of losses, which have defaults; what a loss compares has none."""
    found = _each("losses", plugins.losses(), lambda name: settings_of(_loss(name)))
    return {name: [each for each in settings if not each.required] for name, settings in found.items()}


def _loss(name: str) -> Callable[..., object]:
    found = resolve(plugins.losses()[name])
    function: Callable[..., object] = getattr(found, name, found)
    return function


#: The settings of each kind by name.
KINDS: dict[str, Callable[[], Schema]] = {
    "parts": _parts,
    "models": _models,
    "instruments": _instruments,
    "stress": _stress,
    "recipes": _recipes,
    "data": data_set_settings,
    "losses": _losses,
}


def find(what: str) -> Schema:
    """Returns the settings of a kind, or of one thing by its name.

    Args:
        what: a kind, or the name of a part, instrument, stress test, recipe, data set, loss or model.
    """
    if not what:
        raise VitlabError(f"--settings needs one of {', '.join(KINDS)}, or a name: vitlab list instruments --settings")
    if what in KINDS:
        return KINDS[what]()
    names: dict[str, str] = {}
    for kind in KINDS:
        known = {
            "parts": plugins.parts,
            "instruments": plugins.instruments,
            "stress": plugins.stress_tests,
            "recipes": plugins.recipes,
            "losses": plugins.losses,
        }.get(kind, KINDS[kind])
        names |= dict.fromkeys(known(), kind)
        if what in names:
            found = KINDS[kind]()
            if what not in found:  # an extension that cannot be imported; the warning has the reason
                raise VitlabError(f"the settings of {what!r} cannot be read; see the warning")
            return {what: found[what]}
    if "/" in what:
        from vitlab.zoo import settings_of_model

        return {what: settings_of_model(what)}
    raise unknown("list or name", what, [*KINDS, *names])


def show(what: str, *, as_json: bool = False) -> None:
    """Print the settings of a kind or of one thing: a table on a terminal, lines with tabs when piped."""
    rows = {name: [setting.row for setting in settings] for name, settings in find(what).items()}
    if as_json:
        print_json(rows)
        return
    lines = [(name, *(row[column] for column in COLUMNS)) for name, each in rows.items() for row in each]
    if not sys.stdout.isatty():
        print("\n".join("\t".join(line) for line in [("name", *COLUMNS), *lines]))
        return
    table = Table(Column("name", no_wrap=True), *COLUMNS, box=None)
    for line in lines:
        table.add_row(*map(Text, line))
    Console().print(table)
