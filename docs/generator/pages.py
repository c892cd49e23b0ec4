"""Generate pages from the code: one for each part, loss, instrument, stress test, family, model and recipe.

Each function returns Markdown pages by path, such as `parts/ContextBroadcast.md`. Everything that `vitlab list` shows
has a page.
"""

from __future__ import annotations

import inspect
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pprint import pformat
from types import ModuleType
from typing import Any

import families
import paper_pages
from docstrings import cell, escape, markdown, parts_of

from vitlab.cli.settings_table import COLUMNS, KINDS
from vitlab.core import descriptions, plugins
from vitlab.core.anatomy import SEAMS
from vitlab.core.extensions import resolve
from vitlab.core.signatures import settings_of

ROOT = Path(__file__).resolve().parents[2]
Pages = dict[str, str]


def all_pages() -> dict[str, Pages]:
    """Returns the generated pages of each kind, its index first."""
    kinds: dict[str, tuple[str, Callable[[], Pages]]] = {
        "parts": ("Modules to add to a model; they map (B, N, D) to (B, N, D).", parts),
        "losses": ("Losses for training.", losses),
        "instruments": ("Each instrument measures one property of a model.", instruments),
        "stress_tests": ("Each stress test evaluates a model under one kind of perturbation.", stress_tests),
        "families": ("Families of models with an adapter; other models are read generically.", family_pages),
        "models": ("The papers' architectures, in timm's registry after `import vitlab.models`.", models),
        "recipes": ("Training runs as data.", recipes),
        "settings": ("Settings of data sets and models, as `vitlab list data --settings` shows them.", settings),
    }
    made = {kind: _with_index(kind, about, make()) for kind, (about, make) in kinds.items()}
    return {**made, "papers": paper_pages.pages()}


def parts() -> Pages:
    """What a part computes, its default seam, and what it takes from its place in a model."""
    return {f"parts/{name}.md": _part(name, module) for name, module in plugins.parts().items()}


def _part(name: str, module: str) -> str:
    made = plugins.part(name)
    settings = _defaults(made)
    known = [key for key in inspect.signature(made).parameters if key not in settings]
    facts = {
        "default seam": f"`{made.default_seam}` (change with `at=`)",
        "taken from its place": ", ".join(f"`{key}`" for key in known) or "nothing",
        "source": source_link(module),
    }
    use = f'```python\nvitlab.retrofit(model, "{name}()")  # at="{made.default_seam}"\n```'
    return _page(name, _doc(made), facts, use, settings)


def losses() -> Pages:
    """What a loss computes, and its settings."""
    found = {}
    for name, reference in plugins.losses().items():
        made = _object(reference, name)
        facts = {"source": source_link(reference)}
        found[f"losses/{name}.md"] = _page(name, _doc(made), facts, _signature(made), _defaults(made))
    return found


def instruments() -> Pages:
    """What an instrument measures, and its formulas."""
    return {f"instruments/{name}.md": _carded(name, at, "measure") for name, at in plugins.instruments().items()}


def stress_tests() -> Pages:
    """What a stress test does, and its formulas."""
    return {f"stress_tests/{name}.md": _carded(name, at, "stress") for name, at in plugins.stress_tests().items()}


def _carded(name: str, at: str, verb: str) -> str:
    module, card = resolve(at), descriptions.card(at)
    better = {True: "higher is better", False: "lower is better", None: "no direction"}
    facts = {
        "paper": cell(card["paper"]),
        "cost": cell(card["cost"]),
        "needs": cell(", ".join(card.get("needs", ())) or "any model"),
        "direction": better[card.get("higher_is_better")],
        "source": source_link(at),
        "figure": _drawing(name),
    }
    given = "folder" if card["inputs"] == "files" else "batches"
    use = (
        f'```python\nmeasurement = vitlab.{verb}("{name}", model, {given})\n```\n\n'
        f"```console\n$ vitlab {verb} MODEL --with {name}\n```"
    )
    body = _page(name, _doc(module), facts, use, {}, title=card["title"])
    sections = [body, "## Settings and results", markdown(_doc(module.measure), _defaults(module.measure))]
    return "\n\n".join([*sections, *_maths(module)])


def _drawing(name: str) -> str:
    if name in plugins.figures():
        return source_link(plugins.figures()[name])
    at = f"vitlab.reporting.figures.{name}"
    drawn = (ROOT / "src" / (at.replace(".", "/") + ".py")).exists()
    return source_link(at) if drawn else "chosen by its axes"


def _maths(module: Any) -> list[str]:
    """The pure functions of the file, in its order; none for a class."""
    found: list[str] = []
    for name, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        if own and not name.startswith("_") and name != "measure":
            heading = [] if found else ["## Formulas"]
            found += [*heading, f"### {name}", _signature(value), markdown(_doc(value), _defaults(value))]
    return found


def family_pages() -> Pages:
    """The seams of a family's example model."""
    return {f"families/{name}.md": _family(name, at) for name, at in plugins.family_adapters().items()}


def _family(name: str, reference: str) -> str:
    adapter, anatomy = resolve(reference), families.anatomy(name)
    facts = {"example": f"`{adapter.FAMILIES[name]}`", "source": source_link(reference)}
    if anatomy is not None:
        kinds = sorted({block.mixer.kind for block in anatomy.blocks})
        facts |= {"blocks": str(len(anatomy.blocks)), "mixers": ", ".join(kinds)}
    body = [
        _page(name, _doc(adapter), facts, f"```console\n$ vitlab describe {adapter.FAMILIES[name]}\n```", {}),
        "## Blocks",
        markdown(_doc(adapter.blocks)),
        markdown(f"Family: {_doc(adapter.family)}"),
    ]
    return "\n\n".join([*body, "## Seams", _seams(anatomy, adapter), *_without_map(anatomy)])


def _seams(anatomy: Any, adapter: Any) -> str:
    """Every seam: in how many blocks it is offered, or why not."""
    if anatomy is None:
        return "The example model cannot be built on this machine; see `vitlab describe`."
    rows = []
    for seam in SEAMS:
        offered = sum(block.seam(seam) is not None for block in anatomy.blocks)
        missing = cell(adapter.ABSENT.get(seam, "")) or ("its definition does not hold here" if not offered else "")
        rows.append((f"`{seam}`", f"{offered} of {len(anatomy.blocks)}" if offered else "none", missing))
    return _table(("seam", "blocks", "why not"), rows)


def _without_map(anatomy: Any) -> list[str]:
    reasons = {} if anatomy is None else {block.mixer.why_no_map: block.mixer.kind for block in anatomy.blocks}
    lines = [f"- {escape(kind)}: {escape(why)}." for why, kind in reasons.items() if why]
    return ["## Blocks without an attention map", "\n".join(lines)] if lines else []


def models() -> Pages:
    """The source of an architecture, differences from the paper, and published sizes."""
    found = {}
    for reference in plugins.models():
        module = resolve(reference)
        entries = getattr(module, "PAPER", {})
        rows = [
            (f"`vitlab/{model}`", _number(size["params_m"]), _number(size["macs_g"]), _number(size["exact_params"]))
            for model, size in entries.items()
        ]
        sizes = _table(("model", "parameters, M", "MACs, G", "exact parameters"), rows)
        about = "As published. `vitlab list models --params` prints ours, too."
        name = module.__name__.rpartition(".")[2]
        body = _page(name, _doc(module), {"source": source_link(reference)}, "", {})
        found[f"models/{name}.md"] = f"{body}\n\n## Sizes\n\n{about}\n\n{sizes}" if entries else body
    return found


def recipes() -> Pages:
    """A recipe's docstring, its settings, and its data with defaults."""
    found = {}
    for name, module in plugins.recipes().items():
        made = _object(module, name)
        use = f"```console\n$ vitlab train {name} --out runs/{name}\n```"
        body = _page(name, _doc(made), {"source": source_link(module)}, use, _defaults(made))
        data = f"## As data\n\n```python\n{pformat(made(), width=100, sort_dicts=False)}\n```"
        found[f"recipes/{name}.md"] = f"{body}\n\n{data}"
    return found


def settings() -> Pages:
    """The settings of data and model expressions, which have no page of their own for each name."""
    about = {
        "data": "The settings of data expressions. [Data](../data.md) describes the sets.",
        "models": "The settings of vitlab's models; those of any model: `vitlab list timm/NAME --settings`.",
    }
    return {f"settings/{kind}.md": _settings(kind, text) for kind, text in about.items()}


def _settings(kind: str, about: str) -> str:
    rows = [
        (f"`{name}`", f"`{setting.name}`", *(cell(setting.row[column]) for column in COLUMNS[1:]))
        for name, each in KINDS[kind]().items()
        for setting in each
    ]
    return f"# {kind}\n\n{about}\n\n{_table(('name', *COLUMNS), rows)}"


def _object(reference: str, name: str) -> Any:
    """A class or function: the object itself, or the attribute of a module."""
    found = resolve(reference)
    return getattr(found, name) if isinstance(found, ModuleType) else found


def source_link(module: str, page: str = "x/y.md") -> str:
    """A link to the source of a module; by default from a page one folder deep. For an extension, its origin.

    >>> source_link("vitlab.modules.qkv")
    '[`src/vitlab/modules/qkv.py`](../source/src/vitlab/modules/qkv.py.md)'
    """
    origin = descriptions.origin_of(module)
    if origin:
        return cell(origin)
    path = f"src/{module.replace('.', '/')}.py"
    return f"[`{path}`]({posixpath.relpath(source_page(path), posixpath.dirname(page) or '.')})"


def source_page(path: str) -> str:
    """The page that shows a file of the repository."""
    return f"source/{path}.md"


def source(path: str) -> str:
    """A file of the repository as a page, excluded from the search."""
    text = (ROOT / path).read_text(encoding="utf-8")
    about = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"
    language = "python" if path.endswith(".py") else "text"
    return f'{about}# {escape(path)}\n\n``````{language} linenums="1"\n{text}``````\n'


def _page(
    name: str, docstring: str, facts: Mapping[str, str], use: str, defaults: Mapping[str, str], title: str = ""
) -> str:
    """Name, summary, facts, use, and the rest of the docstring."""
    summary, rest = parts_of(docstring)
    lead = [f"# {name}", escape(summary)]
    if title and title not in summary:
        lead.append(f"*{escape(title)}.*")
    table = _table(("", ""), [(f"**{key}**", value) for key, value in facts.items()])
    return "\n\n".join(piece for piece in (*lead, table, use, markdown(rest, defaults) if rest else "") if piece)


def _with_index(kind: str, about: str, pages: Pages) -> Pages:
    """The pages of a kind after an index that lists them with their summaries."""
    rows = []
    for path, text in pages.items():
        name = posixpath.basename(path).removesuffix(".md")
        rows.append((f"[{name}]({name}.md)", text.split("\n\n")[1].replace("|", "&#124;")))
    heading = kind.replace("_", " ").capitalize()
    return {f"{kind}/index.md": f"# {heading}\n\n{about}\n\n{_table(('name', 'summary'), rows)}", **pages}


def _doc(made: Any) -> str:
    return inspect.getdoc(made) or ""


def _signature(made: Any) -> str:
    """`name(a, b=1)`, without types."""
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(made).parameters.values()]
    return f"```python\n{made.__name__}{inspect.Signature(parameters)}\n```"


def _defaults(made: Any) -> dict[str, str]:
    """The default and the valid values of each parameter that has a default, as Markdown."""
    found = {}
    for setting in settings_of(made):
        if not setting.required:
            valid = setting.row["range"]
            found[setting.name] = f"`{setting.default!r}`" + (f"; valid: {escape(valid)}" if valid else "")
    return found


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
