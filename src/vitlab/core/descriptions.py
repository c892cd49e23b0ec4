"""What is known of a name without an import: its origin, the first line of its docstring, its card."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vitlab.core.code_version import object_version
from vitlab.core.errors import VitlabError
from vitlab.core.extensions import KINDS, extensions, resolve, warn_once
from vitlab.core.source_files import body_of, functions_of, parsed

__all__ = [
    "attribute",
    "built_in_data",
    "card",
    "cards",
    "data_summaries",
    "narrowing_settings",
    "origin",
    "origin_of",
    "origins",
    "source_digest",
    "source_tree",
    "summary",
]

_PACKAGE = Path(__file__).resolve().parent.parent


def origin(kind: str, name: str) -> str:
    """Returns where a name comes from: empty for vitlab itself, else the origin of the extension.

    Args:
        kind: one of `extensions.KINDS`.
        name: of the part, instrument, ….
    """
    found = extensions(kind).get(name)
    return "" if found is None else found.origin


def origins(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The origin of each name that an extension adds, for provenance.

    Args:
        names: pairs of kind and name.
    """
    return {name: origin(kind, name) for kind, name in names if origin(kind, name)}


def origin_of(reference: str) -> str:
    """Returns the origin of the extension at a reference; empty for vitlab itself."""
    found = (each for kind in KINDS for each in extensions(kind).values() if each.reference == reference)
    return next((each.origin for each in found), "")


def summary(reference: str, name: str | None = None) -> str:
    """The first line of a module's docstring, or of a class or function in it, without importing it."""
    file = _source(reference)
    if file is None:
        return ""
    tree = parsed(file)
    name = attribute(reference) or name
    node: Any = tree
    if name is not None:
        node = next((item for item in tree.body if getattr(item, "name", None) == name), tree)
    return (ast.get_docstring(node) or "").partition("\n")[0]


def built_in_data() -> dict[str, tuple[str, str]]:
    """The module and the function of each data set of vitlab, without importing them."""
    return {
        name: (f"vitlab.data.{module}", function)
        for module in ("segmentation_sets", "catalogue", "question_catalogue")
        for name, function in functions_of(_PACKAGE / f"data/{module}.py", "_OPENERS").items()
    }


def narrowing_settings() -> list[str]:
    """The names of the settings that every data set for classification takes, without importing them.

    >>> narrowing_settings()
    ['classes', 'fraction', 'seed']
    """
    return list(functions_of(_PACKAGE / "data/catalogue.py", "_NARROWING"))


def data_summaries() -> dict[str, str]:
    """The data sets, each with its description, without importing them.

    >>> data_summaries()["camvid"]
    'CamVid, 367 + 101 + 233 street scenes of 360×480, 11 classes.'
    """
    found = {name: summary(module, function) for name, (module, function) in built_in_data().items()}
    return found | {name: summary(each.reference, name) for name, each in extensions("data", found).items()}


def card(reference: str) -> dict[str, Any]:
    """The fields of the `CARD` of an instrument or stress test, without importing it.

    >>> card("vitlab.stress_tests.occlusion")["inputs"]
    'labelled images'
    """
    file = _source(reference)
    if file is None:  # registered in Python
        return {key: value for key, value in vars(resolve(reference).CARD).items() if value is not None}
    for node in body_of(file, attribute(reference)):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == "CARD":
            try:
                return {str(item.arg): ast.literal_eval(item.value) for item in node.value.keywords}
            except ValueError:
                raise VitlabError(f"invalid CARD in {file.name}; expected literals only, for `vitlab list`") from None
    raise VitlabError(f"{reference} has no CARD")


def cards(kind: str, known: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The cards of instruments or stress tests by name; an extension without a valid card is reported and left out.

    Args:
        kind: `instruments` or `stress_tests`.
        known: where each name is.
    """
    found = {}
    for name, reference in known.items():
        try:
            found[name] = card(reference)
        except VitlabError as error:
            if not origin(kind, name):
                raise
            warn_once(f"{kind}: {name!r} of {origin(kind, name)} is skipped ({error})")
    return found


def source_digest(reference: str) -> str:
    """Returns a digest of the code of an extension, so that cached results of older code are not reused."""
    if reference.startswith("registered:"):
        return object_version(resolve(reference))
    file = _source(reference)
    return "" if file is None else blake2b(file.read_bytes(), digest_size=8).hexdigest()


def source_tree(reference: str) -> ast.Module | None:
    """The syntax tree of the file of a reference, without importing it; None if the file is not known."""
    file = _source(reference)
    return None if file is None else parsed(file)


def attribute(reference: str) -> str:
    """The attribute of `module:attribute`; empty for a module."""
    return reference.rpartition(":")[2] if ":" in reference else ""


def _source(reference: str) -> Path | None:
    """The file of a module or attribute; None if it is not known without an import."""
    module = reference.partition(":")[0]
    if module.startswith("vitlab."):
        return _PACKAGE.parent / (module.replace(".", "/") + ".py")
    sources = (each.source for kind in KINDS for each in extensions(kind).values() if each.reference == reference)
    return next(sources, None)
