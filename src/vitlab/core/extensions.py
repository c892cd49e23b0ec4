"""Extensions: things that other packages, single files or Python code add to vitlab.

There are three ways, for each kind of `KINDS`:

- an entry point of an installed package, in the group `vitlab.<kind>`: its name is the name in vitlab, its value
  `package.module` or `package.module:attribute`;
- a Python file named in the environment variable `VITLAB_PLUGINS` (several are separated as in PATH) with a literal
  `VITLAB = {"parts": ["Halve"], "figures": {"my_kind": "draw_my_kind"}}`, which names objects of the file by kind, or
  maps names to objects;
- `register(kind, name, thing)` in Python (`registration.py`).

Nothing is imported to list names. An extension that cannot be read is reported once, in one line, and skipped; a name
that exists already is an error that names both origins.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

from vitlab.core.errors import VitlabError

__all__ = [
    "KINDS",
    "Extension",
    "extensions",
    "failed_in",
    "registrations",
    "resolve",
    "resolve_all",
    "store",
    "warn_once",
]

#: The kinds of things that can be added, named as the folders of the package.
KINDS = (
    "parts",
    "losses",
    "instruments",
    "stress_tests",
    "adapters",
    "models",
    "data",
    "recipes",
    "figures",
    "experiments",
)

#: Environment variable with the paths of plugin files.
VARIABLE = "VITLAB_PLUGINS"

_EXPECTED = 'VITLAB = {"kind": ["name", ...]}, or {"kind": {"name": "object", ...}}'

_REGISTERED: dict[tuple[str, str], Any] = {}
_REGISTRATIONS = 0
_REPORTED: set[str] = set()
_FILE_MODULES: dict[str, ModuleType] = {}


@dataclass(frozen=True)
class Extension:
    """Something that is added to vitlab.

    Args:
        kind: one of `KINDS`.
        name: its name in vitlab.
        reference: where it is, for `resolve`: `package.module`, `package.module:attribute`, `/path/file.py:attribute`
            or `registered:kind:name`.
        origin: for people: `package NAME VERSION`, `file PATH` or `registered in Python`.
        source: the file of its code, if known, to read its docstring without an import.
    """

    kind: str
    name: str
    reference: str
    origin: str
    source: Path | None = None


def store(kind: str, name: str, thing: Any) -> None:
    """Keep an object that `registration.register` has checked."""
    global _REGISTRATIONS
    _REGISTERED[kind, name] = thing
    _REGISTRATIONS += 1


def registrations() -> int:
    """The number of registrations so far, for caches of what was registered."""
    return _REGISTRATIONS


def extensions(kind: str, built_in: Mapping[str, Any] | None = None) -> dict[str, Extension]:
    """Returns the extensions of a kind by name.

    Args:
        kind: one of `KINDS`.
        built_in: the names that vitlab itself has; an extension of the same name is an error.
    """
    found: dict[str, Extension] = {}
    for each in _all(kind):
        taken = "vitlab" if each.name in (built_in or {}) else found[each.name].origin if each.name in found else ""
        if taken and not (each.name in found and found[each.name].reference == each.reference):
            raise VitlabError(
                f"{kind}: the name {each.name!r} of {each.origin} is taken by {taken}; rename or remove one of them"
            )
        found[each.name] = each
    return found


def failed_in(error: BaseException) -> str:
    """Returns which extension raised an exception, and where: `file mine.py failed in nano, line 12`; '' if none did.

    The frames of the exception are searched from the innermost one for a file of an extension.
    """
    files = {each.source.resolve(): each.origin for kind in KINDS for each in _all(kind) if each.source is not None}
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        origin = files.get(Path(frame.f_code.co_filename).resolve())
        if origin is not None:
            return f"{origin} failed in {frame.f_code.co_name}, line {line}"
    return ""


def resolve(reference: str) -> Any:
    """Import what a reference names: a module, or an attribute of one. What an extension prints is on stderr.

    >>> resolve("vitlab.core.errors:VitlabError").__name__
    'VitlabError'
    """
    if reference.startswith("registered:"):
        _, kind, name = reference.split(":", 2)
        return _REGISTERED[kind, name]
    place, colon, attribute = reference.rpartition(":")
    if not colon or place == "" or (len(place) == 1 and os.name == "nt"):
        place, attribute = reference, ""
    own = place.partition(".")[0] == "vitlab"
    try:
        with nullcontext() if own else redirect_stdout(sys.stderr):  # stdout is for the output, such as that of --json
            module = _file_module(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        return getattr(module, attribute) if attribute else module
    except VitlabError:
        raise
    except (Exception, SystemExit) as error:  # code of others; a script may call sys.exit
        reason = next(iter(str(error).strip().splitlines()), "")
        raise VitlabError(f"the extension {reference} cannot be imported ({type(error).__name__}: {reason})") from error


def resolve_all(references: Iterable[str]) -> dict[str, Any]:
    """Import what several references name; one that cannot be imported is reported in one line and left out."""
    found = {}
    for reference in references:
        try:
            found[reference] = resolve(reference)
        except VitlabError as error:
            if reference.startswith("vitlab."):
                raise
            warn_once(f"{error}; it is skipped")
    return found


def _all(kind: str) -> list[Extension]:
    return [*_from_packages(kind), *_from_files(kind), *_from_python(kind)]


def _from_packages(kind: str) -> list[Extension]:
    return list(_installed(kind, tuple(sys.path)))


@cache
def _installed(kind: str, search_path: tuple[str, ...]) -> tuple[Extension, ...]:
    """The entry points of a kind; reading them takes milliseconds, so they are read once per search path."""
    found = []
    for entry in metadata.entry_points(group=f"vitlab.{kind}"):
        package = f"package {entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package"
        module, _, attribute = entry.value.partition(":")
        source = None
        if entry.dist is not None:
            source = _source(entry.dist, module)
            problem = f"{entry.value} does not exist" if source is None else _problem(source, attribute)
            if problem:
                warn_once(f"{kind}: {entry.name!r} of {package}: {problem}; it is skipped")
                continue
        found.append(Extension(kind, entry.name, entry.value, package, source))
    return tuple(sorted(found, key=lambda each: each.name))


def _source(package: metadata.Distribution, module: str) -> Path | None:
    """The file of a module of a package, without an import. The code of an editable installation is elsewhere."""
    folders = [Path(str(package.locate_file("")))]
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module.partition(".")[0])  # the top level only: nothing is imported
        if spec is not None:
            found = spec.submodule_search_locations or filter(None, [spec.origin])
            folders += [Path(location).parent for location in found]
    path = module.replace(".", "/")
    candidates = [folder / end for folder in folders for end in (f"{path}.py", f"{path}/__init__.py")]
    return next((each for each in candidates if each.is_file()), None)


def _from_files(kind: str) -> list[Extension]:
    found = []
    for text in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        path = Path(text)
        try:
            path = path.expanduser()
            names = _declared(path)
        except (OSError, SyntaxError, ValueError, RuntimeError) as error:  # RuntimeError: no home of that user
            warn_once(f"{VARIABLE}: {path} is skipped ({next(iter(str(error).splitlines()), type(error).__name__)})")
            continue
        for name, attribute in names.get(kind, {}).items():
            problem = _problem(path, attribute)
            if problem:
                warn_once(f"{VARIABLE}: {kind}: {name!r} of {path}: {problem}; it is skipped")
                continue
            found.append(Extension(kind, name, f"{path.resolve()}:{attribute}", f"file {path}", path))
    return found


def _from_python(kind: str) -> list[Extension]:
    return [
        Extension(kind, name, f"registered:{kind}:{name}", "registered in Python")
        for own, name in _REGISTERED
        if own == kind
    ]


def _declared(path: Path) -> dict[str, dict[str, str]]:
    """Returns the literal `VITLAB` of a plugin file: by kind, the object of each name."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        if "VITLAB" not in map(ast.unparse, targets):
            continue
        try:
            declared = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        except (ValueError, TypeError):
            raise ValueError(f"VITLAB is not a literal; expected {_EXPECTED}") from None
        if not isinstance(declared, dict):
            raise ValueError(f"VITLAB is {repr(declared)[:60]}; expected {_EXPECTED}")
        return {kind: _names(kind, given) for kind, given in declared.items()}
    raise ValueError(f"it has no VITLAB; expected {_EXPECTED}")


def _names(kind: Any, given: Any) -> dict[str, str]:
    """The object of each name of one kind in a plugin file."""
    if kind not in KINDS:
        raise ValueError(f"VITLAB has the unknown kind {kind!r}; expected: {', '.join(KINDS)}")
    pairs = list(given.items()) if isinstance(given, dict) else given
    if isinstance(given, list | tuple | set):
        pairs = [(each, each) for each in given]
    if not isinstance(pairs, list) or not all(isinstance(text, str) and text for pair in pairs for text in pair):
        raise ValueError(f"VITLAB has {kind!r}: {repr(given)[:60]}; expected {_EXPECTED}")
    return dict(pairs)


def _problem(source: Path, attribute: str) -> str:
    """Why an object of a file cannot be used; empty if the file can be parsed and defines or imports the name."""
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError) as error:
        return f"{source.name} cannot be read ({next(iter(str(error).splitlines()), type(error).__name__)})"
    names = {"", *_defined(tree.body)}
    return "" if attribute in names or "*" in names else f"{source.name} has no {attribute!r}"


def _defined(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements define or import, also inside `if`, `try` and `with`; `*` for `import *`."""
    names: set[str] = set()
    for node in statements:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
        else:
            inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt | ast.ExceptHandler)]
            for each in inner:
                names |= _defined(each.body if isinstance(each, ast.ExceptHandler) else [each])
    return names


def _file_module(path: Path) -> ModuleType:
    """Import a plugin file once: by its own name if Python finds it by this name, so that both are the same module."""
    key = str(path)
    if key not in _FILE_MODULES and _found_by_name(path):
        _FILE_MODULES[key] = importlib.import_module(path.stem)
    if key not in _FILE_MODULES:
        name = f"vitlab_plugin_{path.stem}_{blake2b(key.encode(), digest_size=4).hexdigest()}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise VitlabError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look modules up by name
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _FILE_MODULES[key] = module
    return _FILE_MODULES[key]


def _found_by_name(path: Path) -> bool:
    """Whether `import STEM` imports this file."""
    try:
        spec = importlib.util.find_spec(path.stem) if path.stem.isidentifier() else None
    except (ImportError, ValueError):  # a module without a spec, such as `__main__`
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == path.resolve()


def warn_once(line: str) -> None:
    """Report a broken extension: one line, once per process."""
    if line not in _REPORTED:
        _REPORTED.add(line)
        warnings.warn(line, stacklevel=3)
