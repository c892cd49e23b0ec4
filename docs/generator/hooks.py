"""Hooks that mkdocs calls: add the generated pages, fill the navigation, and rewrite links.

Links in README.md, CONTRIBUTING.md and docs/ are relative to the repository. In the site, a link to a file outside
docs/ becomes a link to the page that shows that file.
"""

from __future__ import annotations

import ast
import posixpath
import re
from functools import cache
from typing import Any

import pages
from mkdocs.structure.files import File, Files

#: Pages of files outside docs/; all other files of the repository are shown as source.
HOMES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "examples": "examples.md"}
#: Entries of the navigation in `mkdocs.yml` that are replaced by generated pages.
_KIND = re.compile(r"^generated/(\w+)$")
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s]+)")
_CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_SOURCE = re.compile(r"\]\((?:\.\./)*source/([^)#\s]+)\.md\)")

_all_pages = cache(pages.all_pages)


def on_config(config: Any) -> Any:
    """Replace `generated/KIND` in the navigation by the pages of that kind."""
    config.nav = [_filled(entry) for entry in config.nav]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages; those of experiments are files of docs/, except those of extensions."""
    known = {file.src_uri for file in files.documentation_pages()}
    made = {path: text for kind in _all_pages().values() for path, text in kind.items() if path not in known}
    made["results/index.md"] = _results_index()
    made["examples.md"] = _examples()
    for name in ("README.md", "CONTRIBUTING.md"):
        made[HOMES[name]] = rehome((pages.ROOT / name).read_text(encoding="utf-8"), name, HOMES[name])
    written = [
        rehome(file.content_string, f"docs/{file.src_uri}", file.src_uri) for file in files.documentation_pages()
    ]
    for text in [*made.values(), *written]:
        for path in _SOURCE.findall(text):
            if (pages.ROOT / path).is_file():  # else mkdocs reports the broken link
                made.setdefault(pages.source_page(path), pages.source(path))
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of pages that are written by hand."""
    return markdown if page.file.generated_by else rehome(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)


def rehome(text: str, file: str, page: str) -> str:
    """Rewrite the links of a file of the repository for its page in the site.

    >>> rehome("[a](docs/architecture.md#rows) [b](src/vitlab/runner.py) [c](docs/results)", "README.md", "index.md")
    '[a](architecture.md#rows) [b](source/src/vitlab/runner.py.md) [c](results/index.md)'
    """

    def rewrite(match: re.Match[str]) -> str:
        target, mark, anchor = match.group(1).partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        return posixpath.relpath(_home(path), posixpath.dirname(page) or ".") + mark + anchor

    pieces = _CODE.split(text)
    return "".join(piece if piece.startswith("```") else _LINK.sub(rewrite, piece) for piece in pieces)


def _home(path: str) -> str:
    """The page of a file or folder of the repository."""
    if path in HOMES:
        return HOMES[path]
    inside = path.removeprefix("docs/")
    if inside == path:
        return pages.source_page(path)
    return f"{inside}/index.md" if (pages.ROOT / path).is_dir() else inside


def _filled(entry: Any) -> Any:
    """An entry of the navigation with `generated/KIND` replaced by the pages of that kind."""
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
    about = "Results measured with vitlab, negative ones included. [The log](../log.md) lists all findings by date."
    return "\n\n".join(["# Results", about, "\n".join(lines)])


def _examples() -> str:
    """Every script of examples/ and studies/, with its docstring."""
    sections = ["# Examples", "Scripts to run and to adapt. Each has `--help`, which states the data that it needs."]
    folders = [pages.ROOT / "examples", pages.ROOT / "studies"]
    for file in sorted(file for folder in folders for file in folder.glob("*.py")):
        path = f"{file.parent.name}/{file.name}"
        summary, rest = pages.parts_of(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "")
        link = f"[`{path}`]({pages.source_page(path)})"
        sections += [f"## {pages.escape(file.stem)}", pages.escape(summary), pages.markdown(rest), link]
    return "\n\n".join(sections)
