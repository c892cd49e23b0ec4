"""The names of the parameters of a function or class, read from its file without an import, for shell completion."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from vitlab.core.descriptions import source_tree


def parameter_names(reference: str, name: str) -> list[str]:
    """Returns the names of the parameters of `name`; an empty list if the file does not define it.

    Args:
        reference: where it is, as `plugins.instruments()` gives it; an attribute of the reference is searched first.
        name: of a function, or of a class with `__init__`.

    >>> parameter_names("vitlab.instruments.calibration", "measure")
    ['model', 'batches', 'bins', 'images']
    """
    tree = source_tree(reference)
    if tree is None:
        return []
    attribute = reference.rpartition(":")[2] if ":" in reference else ""
    body = _body(tree.body, attribute) or tree.body
    function = _function(body, name)
    return [] if function is None else [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]


def _function(body: Sequence[ast.stmt], name: str) -> ast.FunctionDef | None:
    """The function of that name, or the constructor of the class; that of its base class in the same file, too."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ClassDef) and node.name == name:
            own = _function(node.body, "__init__")
            bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
            return own or next(filter(None, (_function(body, base) for base in bases)), None)
    return None


def _body(body: Sequence[ast.stmt], name: str) -> Sequence[ast.stmt]:
    return next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name), ())
