"""What mkdocs calls while it builds the site: adds the generated pages, fills the navigation, and mends links.

Links in README.md, CONTRIBUTING.md and docs/ are written for people who read the repository. A link that leaves docs/
leads, in the site, to the page that shows that file.
"""

from __future__ import annotations

import ast
import posixpath
import re
from functools import cache
from typing import Any

import pages
from mkdocs.structure.files import File, Files

#: Where what lies beside docs/ is found in the site; the rest of the repository is shown as source.
HOMES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "examples": "examples.md"}
#: The generated kinds, where `mkdocs.yml` names them in its navigation.
_KIND = re.compile(r"^generated/(\w+)$")
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s]+)")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_SOURCE = re.compile(r"\]\((?:\.\./)*source/([^)#\s]+)\.md\)")

_all_pages = cache(pages.all_pages)


def on_config(config: Any) -> Any:
    """`Parts: generated/parts` becomes the pages of all parts; `generated/results` those of docs/results."""
    config.nav = [_filled(entry) for entry in config.nav]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what is not written by hand."""
    made = {path: text for kind in _all_pages().values() for path, text in kind.items()}
    made["results/index.md"] = _results_index()
    made["examples.md"] = _examples()
    for name in ("README.md", "CONTRIBUTING.md"):
        made[HOMES[name]] = rehome((pages.ROOT / name).read_text(encoding="utf-8"), name, HOMES[name])
    written = [
        rehome(file.content_string, f"docs/{file.src_uri}", file.src_uri) for file in files.documentation_pages()
    ]
    for text in [*made.values(), *written]:
        for path in _SOURCE.findall(text):
            if (pages.ROOT / path).is_file():  # else mkdocs says which page has a link to nowhere
                made.setdefault(pages.source_page(path), pages.source(path))
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mend the links of pages that are written by hand."""
    return markdown if page.file.generated_by else rehome(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def rehome(text: str, file: str, page: str) -> str:
    """The links of a file of the repository, as its page in the site needs them.

    >>> rehome("[a](docs/architecture.md#rows) [b](src/vitlab/zoo.py) [c](docs/results)", "README.md", "index.md")
    '[a](architecture.md#rows) [b](source/src/vitlab/zoo.py.md) [c](results/index.md)'
    """

    def mend(match: re.Match[str]) -> str:
        target, mark, anchor = match.group(1).partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        return posixpath.relpath(_home(path), posixpath.dirname(page) or ".") + mark + anchor

    pieces = _CODE.split(text)
    return "".join(piece if piece.startswith("```") else _LINK.sub(mend, piece) for piece in pieces)


def _home(path: str) -> str:
    """Where in the site a file or folder of the repository is found."""
    if path in HOMES:
        return HOMES[path]
    inside = path.removeprefix("docs/")
    if inside == path:
        return pages.source_page(path)
    return f"{inside}/index.md" if (pages.ROOT / path).is_dir() else inside


def _filled(entry: Any) -> Any:
    """An entry of the navigation, `generated/KIND` replaced by the pages of that kind."""
    if isinstance(entry, dict):
        return {name: _filled(value) for name, value in entry.items()}
    if isinstance(entry, list):
        return [_filled(value) for value in entry]
    match = _KIND.match(entry)
    if match is None:
        return entry
    if match.group(1) == "results":
        return ["results/index.md", *(f"results/{name}.md" for name, _ in _results())]
    return list(_all_pages()[match.group(1)])


def _results() -> list[tuple[str, str]]:
    """The name and the heading of every page in docs/results."""
    found = sorted((pages.ROOT / "docs/results").glob("*.md"))
    return [(file.stem, file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")) for file in found]


def _results_index() -> str:
    lines = [f"- [{title}]({name}.md)" for name, title in _results()]
    return "# Results\n\nWhat was measured with vitlab, and what did not hold.\n\n" + "\n".join(lines)


def _examples() -> str:
    """Every script of examples/, with what it says of itself."""
    said = ["# Examples", "Scripts to run and to change. Each takes `--help`; those that need real data say so."]
    for file in sorted((pages.ROOT / "examples").glob("*.py")):
        path = f"examples/{file.name}"
        summary, rest = pages.parts_of(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
        link = f"[`{path}`]({pages.source_page(path)})"
        said += [f"## {pages.escape(file.stem)}", pages.escape(summary), pages.markdown(rest), link]
    return "\n\n".join(said)
