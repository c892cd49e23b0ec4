"""The pages that are made from the code: one for each part, loss, instrument, stress test, family, model and recipe.

Each function returns pages by path, such as `parts/ContextBroadcast.md`, as Markdown. What `vitlab list` finds has a
page; nobody writes one.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pprint import pformat
from types import ModuleType
from typing import Any

import families
from docstrings import cell, escape, markdown, parts_of

from vitlab.core import plugins
from vitlab.core.anatomy import SEAMS

ROOT = Path(__file__).resolve().parents[2]
Pages = dict[str, str]


def all_pages() -> dict[str, Pages]:
    """The generated pages of each kind, its index first."""
    kinds: dict[str, tuple[str, Callable[[], Pages]]] = {
        "parts": ("Parts go into a model: (B, N, D) in, (B, N, D) out.", parts),
        "losses": ("Losses steer training.", losses),
        "instruments": ("Instruments measure one thing about a model each.", instruments),
        "stress_tests": ("Stress tests put a model under one kind of strain each.", stress_tests),
        "families": ("Families of models that an adapter describes; others are read generically.", family_pages),
        "models": ("The papers' architectures, in timm's registry after `import vitlab.models`.", models),
        "recipes": ("Recipes are training runs written down as data.", recipes),
    }
    return {kind: _with_index(kind, said, make()) for kind, (said, make) in kinds.items()}


def parts() -> Pages:
    """What a part does, where it goes, and what its place must tell it."""
    return {f"parts/{name}.md": _part(name, module) for name, module in plugins.parts().items()}


def _part(name: str, module: str) -> str:
    made = plugins.part(name)
    settings = _defaults(made)
    known = [key for key in inspect.signature(made).parameters if key not in settings]
    facts = {
        "goes to": f"`{made.default_seam}`, unless `at=` says otherwise",
        "learns from its place": ", ".join(f"`{key}`" for key in known) or "nothing",
        "source": source_link(module),
    }
    use = f'```python\nvitlab.retrofit(model, "{name}()")  # at="{made.default_seam}"\n```'
    return _page(name, _doc(made), facts, use, settings)


def losses() -> Pages:
    """The losses: the public names of each file in `losses/`."""
    found = {}
    for file in sorted((ROOT / "src/vitlab/losses").glob("[!_]*.py")):
        module = importlib.import_module(f"vitlab.losses.{file.stem}")
        for name in module.__all__:
            made = getattr(module, name)
            facts = {"source": source_link(module.__name__)}
            found[f"losses/{name}.md"] = _page(name, _doc(made), facts, _signature(made), _defaults(made))
    return found


def instruments() -> Pages:
    """What an instrument measures, and its maths."""
    return {f"instruments/{name}.md": _carded(name, at, "measure") for name, at in plugins.instruments().items()}


def stress_tests() -> Pages:
    """What a stress test does to a model, and its maths."""
    return {f"stress_tests/{name}.md": _carded(name, at, "stress") for name, at in plugins.stress_tests().items()}


def _carded(name: str, at: str, verb: str) -> str:
    module, card = importlib.import_module(at), plugins.card(at)
    better = {True: "higher is better", False: "lower is better", None: "neither is better"}
    facts = {
        "stands for": cell(card["paper"]),
        "costs": cell(card["cost"]),
        "needs": cell(", ".join(card.get("needs", ())) or "any model"),
        "reading": better[card.get("higher_is_better")],
        "source": source_link(at),
        "drawing": _drawing(name),
    }
    given = "folder" if "files" in card.get("needs", ()) else "batches"
    use = (
        f'```python\nfound = vitlab.{verb}("{name}", model, {given})\n```\n\n'
        f"```console\n$ vitlab {verb} MODEL --with {name}\n```"
    )
    body = _page(name, _doc(module), facts, use, {}, title=card["title"])
    sections = [body, "## Settings and results", markdown(_doc(module.measure), _defaults(module.measure))]
    return "\n\n".join([*sections, *_maths(module)])


def _drawing(name: str) -> str:
    at = f"vitlab.reporting.figures.{name}"
    drawn = (ROOT / "src" / (at.replace(".", "/") + ".py")).exists()
    return source_link(at) if drawn else "by its axes"


def _maths(module: ModuleType) -> list[str]:
    """The pure functions above `measure`, in the order of the file."""
    found: list[str] = []
    for name, value in vars(module).items():
        own = inspect.isfunction(value) and value.__module__ == module.__name__
        if own and not name.startswith("_") and name != "measure":
            heading = [] if found else ["## The maths"]
            found += [*heading, f"### {name}", _signature(value), markdown(_doc(value), _defaults(value))]
    return found


def family_pages() -> Pages:
    """What a family's models offer, read from its example model."""
    return {f"families/{name}.md": _family(name, adapter) for name, adapter in sorted(families.adapters().items())}


def _family(name: str, adapter: ModuleType) -> str:
    anatomy = families.anatomy(name)
    facts = {"example": f"`{adapter.FAMILIES[name]}`", "source": source_link(adapter.__name__)}
    if anatomy is not None:
        kinds = sorted({block.mixer.kind for block in anatomy.blocks})
        facts |= {"blocks": str(len(anatomy.blocks)), "tokens are mixed by": ", ".join(kinds)}
    body = [
        _page(name, _doc(adapter), facts, f"```console\n$ vitlab describe {adapter.FAMILIES[name]}\n```", {}),
        "## How it is read",
        markdown(_doc(adapter.blocks)),
        markdown(f"Family: {_doc(adapter.family)}"),
    ]
    return "\n\n".join([*body, "## Seams", _seams(anatomy, adapter), *_without_map(anatomy)])


def _seams(anatomy: Any, adapter: ModuleType) -> str:
    """Every seam of the vocabulary: in how many blocks it is offered, or why not."""
    if anatomy is None:
        return "The example model cannot be built on this machine; `vitlab describe` tells."
    rows = []
    for seam in SEAMS:
        offered = sum(block.seam(seam) is not None for block in anatomy.blocks)
        missing = cell(adapter.ABSENT.get(seam, "")) or ("only where its meaning holds" if not offered else "")
        rows.append((f"`{seam}`", f"{offered} of {len(anatomy.blocks)}" if offered else "none", missing))
    return _table(("seam", "blocks", "why not"), rows)


def _without_map(anatomy: Any) -> list[str]:
    reasons = {} if anatomy is None else {block.mixer.why_no_map: block.mixer.kind for block in anatomy.blocks}
    said = [f"- {escape(kind)}: {escape(why)}." for why, kind in reasons.items() if why]
    return ["## Blocks without an attention map", "\n".join(said)] if said else []


def models() -> Pages:
    """Where an architecture comes from, what differs from the paper, and the sizes that are published."""
    found = {}
    for name in plugins.models():
        module = importlib.import_module(name)
        entries = getattr(module, "PAPER", {})
        rows = [
            (f"`vitlab/{model}`", _number(size["params_m"]), _number(size["macs_g"]), _number(size["exact_params"]))
            for model, size in entries.items()
        ]
        sizes = _table(("model", "parameters, M", "MACs, G", "exact parameters"), rows)
        about = "As published; ours beside them: `vitlab list models --params`."
        body = _page(module.__name__.rpartition(".")[2], _doc(module), {"source": source_link(name)}, "", {})
        found[f"models/{name.rpartition('.')[2]}.md"] = f"{body}\n\n## Sizes\n\n{about}\n\n{sizes}"
    return found


def recipes() -> Pages:
    """A recipe's lab note, its settings, and what it is with none of them changed."""
    found = {}
    for name, module in plugins.recipes().items():
        made = getattr(importlib.import_module(module), name)
        use = f"```console\n$ vitlab train {name} --out runs/{name}\n```"
        body = _page(name, _doc(made), {"source": source_link(module)}, use, _defaults(made))
        data = f"## As data\n\n```python\n{pformat(made(), width=100, sort_dicts=False)}\n```"
        found[f"recipes/{name}.md"] = f"{body}\n\n{data}"
    return found


def source_link(module: str, page: str = "x/y.md") -> str:
    """A link to the page with the source of a module; by default from a page one folder deep.

    >>> source_link("vitlab.modules.qkv")
    '[`src/vitlab/modules/qkv.py`](../source/src/vitlab/modules/qkv.py.md)'
    """
    path = f"src/{module.replace('.', '/')}.py"
    return f"[`{path}`]({posixpath.relpath(source_page(path), posixpath.dirname(page) or '.')})"


def source_page(path: str) -> str:
    """The page that shows a file of the repository."""
    return f"source/{path}.md"


def source(path: str) -> str:
    """A file of the repository as a page, which the search leaves out."""
    text = (ROOT / path).read_text(encoding="utf-8")
    about = "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"
    language = "python" if path.endswith(".py") else "text"
    return f'{about}# {escape(path)}\n\n``````{language} linenums="1"\n{text}``````\n'


def _page(
    name: str, docstring: str, facts: Mapping[str, str], use: str, defaults: Mapping[str, str], title: str = ""
) -> str:
    """Name, first sentence, facts, use, and the rest of the docstring."""
    summary, rest = parts_of(docstring)
    lead = [f"# {name}", escape(summary)]
    if title and title not in summary:
        lead.append(f"*{escape(title)}.*")
    table = _table(("", ""), [(f"**{key}**", value) for key, value in facts.items()])
    return "\n\n".join(piece for piece in (*lead, table, use, markdown(rest, defaults) if rest else "") if piece)


def _with_index(kind: str, said: str, pages: Pages) -> Pages:
    """The pages of a kind behind one that lists them, each with its first sentence."""
    rows = []
    for path, text in pages.items():
        name = posixpath.basename(path).removesuffix(".md")
        rows.append((f"[{name}]({name}.md)", text.split("\n\n")[1].replace("|", "&#124;")))
    heading = kind.replace("_", " ").capitalize()
    return {f"{kind}/index.md": f"# {heading}\n\n{said}\n\n{_table(('name', 'what it is'), rows)}", **pages}


def _doc(made: Any) -> str:
    return inspect.getdoc(made) or ""


def _signature(made: Any) -> str:
    """`name(a, b=1)`, types left to the source."""
    parameters = [p.replace(annotation=p.empty) for p in inspect.signature(made).parameters.values()]
    return f"```python\n{made.__name__}{inspect.Signature(parameters)}\n```"


def _defaults(made: Any) -> dict[str, str]:
    """What each parameter is by default."""
    parameters = inspect.signature(made).parameters
    return {name: repr(p.default) for name, p in parameters.items() if p.default is not p.empty}


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"
