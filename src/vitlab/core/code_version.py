"""A digest of the code that a measurement is made with, so that a stored result of older code is not taken for new."""

from __future__ import annotations

import ast
from functools import cache
from hashlib import blake2b
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent

#: Modules that import the files of a folder by name, which their source does not show.
_BY_NAME = {"vitlab.adapters": "adapters", "vitlab.surgery": "modules", "vitlab.zoo": "models"}


@cache
def code_version(module: str, package: Path = _PACKAGE) -> str:
    """Hex digest of a module's source and of all that it imports from vitlab, directly or not.

    Args:
        module: for example `vitlab.instruments.attention_entropy`.
        package: the folder of the package.

    Returns:
        16 hex digits; empty for a module that is not of vitlab.

    >>> len(code_version("vitlab.stress_tests.occlusion")), code_version("json")
    (16, '')
    """
    start = _file(module, package)
    if start is None:
        return ""
    found, waiting = {start}, [(module, start)]
    while waiting:
        for name, file in _imported(*waiting.pop(), package):
            if file not in found:
                found.add(file)
                waiting.append((name, file))
    digest = blake2b(digest_size=8)
    for file in sorted(found):
        source = file.read_bytes()
        digest.update(f"{file.relative_to(package).as_posix()} {len(source)}\n".encode() + source)
    return digest.hexdigest()


def _imported(module: str, file: Path, package: Path) -> list[tuple[str, Path]]:
    """The modules of vitlab that a file imports anywhere, those for type checkers left out."""
    names = list(_names(file))
    if module in _BY_NAME:
        names += [f"vitlab.{_BY_NAME[module]}.{each.stem}" for each in (package / _BY_NAME[module]).glob("*.py")]
    places = [(name, _file(name, package)) for name in names]
    return [(name, place) for name, place in places if place is not None]


@cache
def _names(file: Path) -> list[str]:
    """What a file imports, by name; of `from a import b` also a.b, which may be a module, and the packages around."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_bytes(), filename=str(file))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    around = [".".join(name.split(".")[:end]) for name in names for end in range(2, name.count(".") + 1)]
    return [*names, *around]


def _file(module: str, package: Path) -> Path | None:
    """The source of a module of vitlab, but not of `vitlab` itself, which only names what others hold."""
    root, _, rest = module.partition(".")
    if root != "vitlab" or not rest:
        return None
    path = package.joinpath(*rest.split("."))
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((each for each in candidates if each.is_file()), None)
