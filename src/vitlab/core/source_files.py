"""Read names and literals of Python files, without importing them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

from vitlab.core.errors import VitlabError

__all__ = ["assigns", "body_of", "decorated", "functions_of", "literal", "parsed"]


@cache
def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file, read once."""
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def assigns(file: Path, name: str) -> bool:
    """Whether a file assigns a name at its top level."""
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name for node in parsed(file).body)


def decorated(file: Path, decorator: str) -> list[str]:
    """The functions at the top level of a file that have a decorator, such as `register_model`."""
    functions = (node for node in parsed(file).body if isinstance(node, ast.FunctionDef))
    return [each.name for each in functions if decorator in map(ast.unparse, each.decorator_list)]


def body_of(file: Path, inside: str = "") -> list[ast.stmt]:
    """The statements of the class `inside` if the file has it, else those of the file."""
    body = parsed(file).body
    owner = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == inside), None)
    return body if owner is None else owner.body


def literal(file: Path, name: str, default: Any, inside: str = "") -> Any:
    """The literal assigned to a name at the top level of a file, or of the class `inside` if the file has it."""
    for node in body_of(file, inside):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                return ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                raise VitlabError(f"invalid {name} in {file.name}; expected a literal, for `vitlab list`") from None
    return default


def functions_of(file: Path, table: str) -> dict[str, str]:
    """The keys of a dict of functions, `{"name": function, …}`, and the function's name of each."""
    for node in parsed(file).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        if ast.unparse(node.target) == table:
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(key): ast.unparse(value) for key, value in pairs if key is not None}
    return {}
