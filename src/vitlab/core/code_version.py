"""Digest of the code that computes a measurement, so that cached results of older code are not reused."""

from __future__ import annotations

import ast
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Any

_PACKAGE = Path(__file__).resolve().parent.parent

#: Modules that import all files of a folder dynamically, which the import statements do not show.
_BY_NAME = {"vitlab.adapters": "adapters", "vitlab.surgery": "modules", "vitlab.zoo": "models"}


@cache
def code_version(module: str, package: Path = _PACKAGE) -> str:
    """Returns a hex digest of the source of a module and of all modules of vitlab that it imports, also indirectly.

    Args:
        module: for example `vitlab.instruments.attention_entropy`.
        package: the folder of the package.

    Returns:
        16 hex digits; an empty string for a module outside vitlab.

    >>> len(code_version("vitlab.stress_tests.occlusion")), code_version("json")
    (16, '')
    """
    start = _file(module, package)
    if start is None:
        return ""
    files, queue = {start}, [(module, start)]
    while queue:
        for name, file in _imported(*queue.pop(), package):
            if file not in files:
                files.add(file)
                queue.append((name, file))
    digest = blake2b(digest_size=8)
    for file in sorted(files):
        source = file.read_bytes()
        digest.update(f"{file.relative_to(package).as_posix()} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def object_version(thing: Any) -> str:
    """Returns a hex digest of the compiled code of a function, or of the functions and literals of a class or module.

    It does not depend on names of files and numbers of lines. Functions that the code calls are not included.

    >>> object_version(lambda x: x + 1) == object_version(lambda x: x + 1) != object_version(lambda x: x + 2)
    True
    """
    digest = blake2b(digest_size=8)
    members = {"": thing} if hasattr(thing, "__code__") else dict(getattr(thing, "__dict__", {}))
    for name, value in sorted(members.items()):
        function = getattr(value, "__func__", value)  # of a static method or class method
        if hasattr(function, "__code__"):
            digest.update(f"{name} {_code(function.__code__)}\n".encode())
        elif isinstance(value, int | float | str | tuple) and not name.startswith("__"):
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()


def _code(code: CodeType) -> str:
    """The instructions, names and constants of a function and of the functions inside it."""
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return repr((code.co_code, code.co_names, code.co_varnames, constants))


def _imported(module: str, file: Path, package: Path) -> list[tuple[str, Path]]:
    """Returns the modules of vitlab that a file imports, also inside functions, but not for type checkers only."""
    names = list(_names(file))
    if module in _BY_NAME:
        names += [f"vitlab.{_BY_NAME[module]}.{each.stem}" for each in (package / _BY_NAME[module]).glob("*.py")]
    pairs = [(name, _file(name, package)) for name in names]
    return [(name, path) for name, path in pairs if path is not None]


@cache
def _names(file: Path) -> list[str]:
    """Returns the names that a file imports, their packages, and a.b for `from a import b`, which may be a module."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_bytes(), filename=str(file))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    packages = [".".join(name.split(".")[:end]) for name in names for end in range(2, name.count(".") + 1)]
    return [*names, *packages]


def _file(module: str, package: Path) -> Path | None:
    """Returns the source file of a module of vitlab; None for `vitlab` itself, which only re-exports names."""
    root, _, rest = module.partition(".")
    if root != "vitlab" or not rest:
        return None
    path = package.joinpath(*rest.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((each for each in candidates if each.is_file()), None)
