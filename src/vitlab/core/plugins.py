"""The parts, recipes, instruments, stress tests, models, families and experiments, read without importing torch.

Parts and recipes are the names in a file's `__all__`. Each instrument and each stress test is one file with a `CARD`.
Families are the keys of an adapter's `FAMILIES`. Each experiment is one file in the folder of its paper.
"""

from __future__ import annotations

import ast
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from vitlab.core.annotations import convert
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import parse_call
from vitlab.core.extensions import KINDS, extensions, resolve
from vitlab.core.recipe import Recipe
from vitlab.core.settings import check_settings
from vitlab.core.signatures import settings_of

_PACKAGE = Path(__file__).resolve().parent.parent

#: The key of each paper, the first word of its experiments' names, and its folder in `experiments/`.
PAPERS = {"cb": "context_broadcasting", "hdvw": "how_vits_work", "tapadl": "robust_token_attention"}


def parts() -> dict[str, str]:
    """Every part and the module that defines it.

    >>> parts()["ContextBroadcast"]
    'vitlab.modules.context_broadcast'
    """
    own = {name: _module(file) for file in _files("modules") for name in _literal(file, "__all__", [])}
    return _with_extensions("parts", own)


def part(name: str) -> Any:
    """Import a part and return its class."""
    return _object("part", name, parts())


def losses() -> dict[str, str]:
    """Every loss and where it is. Those of extensions can be named in `objective.extra` of a recipe."""
    own = {name: _module(file) for file in _files("losses") for name in _literal(file, "__all__", [])}
    return _with_extensions("losses", own)


def loss(name: str) -> Any:
    """Import a loss of an extension and return the function; vitlab's own have settings of their own in a recipe."""
    return _object("loss of an extension", name, {key: each.reference for key, each in extensions("losses").items()})


def instruments() -> dict[str, str]:
    """Every instrument and the module that defines it."""
    return _with_extensions("instruments", _carded("instruments"))


def stress_tests() -> dict[str, str]:
    """Every stress test and the module that defines it.

    >>> stress_tests()["corruptions"]
    'vitlab.stress_tests.corruptions'
    """
    return _with_extensions("stress_tests", _carded("stress_tests"))


def recipes() -> dict[str, str]:
    """Every recipe and the module that defines it.

    >>> recipes()["quick"]
    'vitlab.recipes.quick'
    """
    own = {name: _module(file) for file in _files("recipes") for name in _literal(file, "__all__", [])}
    return _with_extensions("recipes", own)


def recipe(text: str) -> Recipe:
    """Build a recipe from its name and optional settings.

    >>> recipe("quick(epochs=3)").epochs
    3
    """
    name, settings = parse_call(text)
    make = recipe_function(name)
    check_settings(name, make, settings, 0)
    declared = {each.name: each.annotation for each in settings_of(make)}
    made: Recipe = make(**{key: convert(value, declared.get(key, Any)) for key, value in settings.items()})
    return made


def recipe_function(name: str) -> Any:
    """Import a recipe and return the function."""
    return _object("recipe", name, recipes())


def source_tree(reference: str) -> ast.Module | None:
    """The syntax tree of the file of a reference, without importing it; None if the file is not known."""
    file = _source(reference)
    return None if file is None else _tree(file)


def procedure(kind: str, given: Any, known: dict[str, str]) -> tuple[str, Any]:
    """Returns the name and the object of an instrument or stress test: a module or class with `CARD` and `measure`.

    Args:
        kind: `instrument` or `stress test`, for errors.
        given: its name, or the object itself.
        known: where each name is.
    """
    if not isinstance(given, str):
        if not hasattr(given, "CARD") or not callable(getattr(given, "measure", None)):
            raise VitlabError(
                f"invalid {kind} of type {type(given).__name__}; expected a name, or an object with CARD and measure"
            )
        return str(getattr(given, "__name__", type(given).__name__)).rpartition(".")[2], given
    if given not in known:
        raise unknown(kind, given, known)
    found = resolve(known[given])
    if not hasattr(found, "CARD") or not callable(getattr(found, "measure", None)):
        raise VitlabError(f"{kind} {given!r} ({known[given]}) has no CARD or no measure(model, batches, ...)")
    return given, found


def source_digest(reference: str) -> str:
    """Returns a digest of the file of an extension, so that cached results of older code are not reused."""
    file = _source(reference)
    return "" if file is None else blake2b(file.read_bytes(), digest_size=8).hexdigest()


def experiments() -> dict[str, str]:
    """Every experiment and the module that defines it, in the order of the papers; figures come before tables.

    >>> experiments()["cb_table_s16"]
    'vitlab.experiments.context_broadcasting.table_s16'
    """
    own = {
        f"{key}_{file.stem}": f"vitlab.experiments.{folder}.{file.stem}"
        for key, folder in PAPERS.items()
        for file in sorted(_files(f"experiments/{folder}"), key=lambda file: _in_order(file.stem))
    }
    return _with_extensions("experiments", own)


def _in_order(stem: str) -> tuple[str, str, int, str]:
    """Sort key of the name of a table or figure: `fig_9` before `fig_10`, numbered ones before those of an appendix.

    >>> sorted(["fig_10", "table_1", "fig_s11", "fig_9", "fig_c1"], key=_in_order)
    ['fig_9', 'fig_10', 'fig_c1', 'fig_s11', 'table_1']
    """
    kind, _, label = stem.partition("_")
    letters = label.rstrip("0123456789")
    return kind, letters, int(label[len(letters) :] or 0), stem


def models() -> list[str]:
    """The modules of vitlab's own architectures, and of those that extensions register with timm."""
    return [*map(_module, _files("models")), *(each.reference for each in extensions("models").values())]


def assemblies() -> dict[str, str]:
    """Every assembly that a model expression can name, and the module that defines it.

    >>> assemblies()["upernet"]
    'vitlab.assemblies.upernet'
    """
    return {name: _module(file) for file in _files("assemblies") for name in _literal(file, "__all__", [])}


def published_sizes() -> dict[str, dict[str, Any]]:
    """The published sizes of vitlab's models: the `PAPER` of each file.

    >>> published_sizes()["rvt_tiny_plus"]["exact_params"]
    10951336
    """
    return {name: entry for file in _files("models") for name, entry in _literal(file, "PAPER", {}).items()}


def families() -> dict[str, str]:
    """Every family that an adapter supports, with an example model."""
    examples: dict[str, str] = {}
    for file in _files("adapters"):
        examples.update(_literal(file, "FAMILIES", {}))
    for each in extensions("adapters").values():
        if each.source is not None:
            examples.update(_literal(each.source, "FAMILIES", {}, each.reference.rpartition(":")[2]))
    return dict(sorted(examples.items()))


def adapter_modules() -> list[str]:
    """The modules of all adapters."""
    own = [_module(file) for file in _files("adapters") if _literal(file, "FAMILIES", {})]
    return [*(each.reference for each in extensions("adapters").values()), *own]


def data_sets() -> dict[str, str]:
    """Every data set that an extension adds, and where it is."""
    return {name: each.reference for name, each in extensions("data").items()}


def figures() -> dict[str, str]:
    """Every drawing of a kind of measurement that an extension adds, and where it is."""
    return {name: each.reference for name, each in extensions("figures").items()}


def origin(kind: str, name: str) -> str:
    """Returns where a name comes from: empty for vitlab itself, else the origin of the extension.

    Args:
        kind: one of `extensions.KINDS`.
        name: of the part, instrument, ….
    """
    found = extensions(kind).get(name)
    return "" if found is None else found.origin


def summary(reference: str, name: str | None = None) -> str:
    """The first line of a module's docstring, or of a class or function in it, without importing it."""
    file = _source(reference)
    if file is None:
        return ""
    tree = _tree(file)
    name = _attribute(reference) or name
    node: Any = tree
    if name is not None:
        node = next((item for item in tree.body if getattr(item, "name", None) == name), tree)
    return (ast.get_docstring(node) or "").partition("\n")[0]


def card(reference: str) -> dict[str, Any]:
    """The fields of the `CARD` of an instrument or stress test, without importing it.

    >>> card("vitlab.stress_tests.occlusion")["inputs"]
    'labelled images'
    """
    file = _source(reference)
    if file is None:  # registered in Python
        return {key: value for key, value in vars(resolve(reference).CARD).items() if value is not None}
    body: list[ast.stmt] = _tree(file).body
    attribute = _attribute(reference)
    for inner in body:
        if isinstance(inner, ast.ClassDef) and inner.name == attribute:
            body = inner.body
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CARD" and isinstance(node.value, ast.Call):
            try:
                return {str(item.arg): ast.literal_eval(item.value) for item in node.value.keywords}
            except ValueError:
                raise VitlabError(f"invalid CARD in {file.name}; expected literals only, for `vitlab list`") from None
    raise VitlabError(f"{reference} has no CARD")


def _with_extensions(kind: str, own: dict[str, str]) -> dict[str, str]:
    """The names of vitlab, and those of extensions."""
    return {**own, **{name: each.reference for name, each in extensions(kind, own).items()}}


def _object(kind: str, name: str, known: dict[str, str]) -> Any:
    """Import a class or function by name: an attribute of the module that the name is found in."""
    if name not in known:
        raise unknown(kind, name, sorted(known))
    found = resolve(known[name])
    return getattr(found, name) if isinstance(found, ModuleType) else found


def _attribute(reference: str) -> str:
    """The attribute of `module:attribute`; empty for a module."""
    return reference.rpartition(":")[2] if ":" in reference else ""


def _source(reference: str) -> Path | None:
    """The file of a module or attribute; None if it is not known without an import."""
    module = reference.partition(":")[0]
    if module.startswith("vitlab."):
        return _PACKAGE.parent / (module.replace(".", "/") + ".py")
    sources = (each.source for kind in KINDS for each in extensions(kind).values() if each.reference == reference)
    return next(sources, None)


def _carded(folder: str) -> dict[str, str]:
    """The modules of a folder that have a `CARD`, by name."""
    return {file.stem: _module(file) for file in _files(folder) if _assigns(file, "CARD")}


def _files(folder: str) -> list[Path]:
    return sorted(file for file in (_PACKAGE / folder).glob("*.py") if not file.name.startswith("_"))


def _module(file: Path) -> str:
    return f"vitlab.{file.parent.name}.{file.stem}"


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


def _assigns(file: Path, name: str) -> bool:
    return any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name for node in _tree(file).body)


def _literal(file: Path, name: str, default: Any, inside: str = "") -> Any:
    """The literal assigned to a name at the top level of a file, or of the class `inside` if the file has it."""
    body: list[ast.stmt] = _tree(file).body
    owner = next((node for node in body if isinstance(node, ast.ClassDef) and node.name == inside), None)
    for node in body if owner is None else owner.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                return ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                raise VitlabError(f"invalid {name} in {file.name}; expected a literal, for `vitlab list`") from None
    return default
