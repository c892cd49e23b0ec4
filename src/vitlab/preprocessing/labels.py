"""Match the classes of a data set with the outputs of a model, by name.

Labels index the classes of the data set; outputs index the classes that the model was trained on. The two orders may
differ, so that classes are matched by name, by WordNet id or by the words of a WordNet id.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from timm.data import ImageNetInfo

from vitlab.core.annotations import shown
from vitlab.core.errors import VitlabError
from vitlab.core.user_path import user_path
from vitlab.data.folders import natural


@dataclass(frozen=True)
class LabelMatch:
    """The model output of each class of a data set.

    Args:
        outputs: for each class of the data, the index of the model's output; empty if there is no match.
        of: number of outputs of the model.
        how: method of the match, for provenance.
        why_not: reason why there is no match, and what to do; empty if there is one.
        names: names of the outputs; names of the data's classes where the model has none or a mapping was given.
    """

    outputs: tuple[int, ...]
    of: int
    how: str = ""
    why_not: str = ""
    names: tuple[str, ...] = field(default=(), repr=False)


def match_labels(
    classes: Sequence[str],
    outputs: int,
    names: Sequence[str] = (),
    given: Mapping[str, Any] | Sequence[str] | None = None,
) -> LabelMatch:
    """Match the classes of a data set with the outputs of a model.

    Args:
        classes: names of the data's classes, in the order of its labels; empty for images without labels.
        outputs: number of outputs of the model.
        names: names of the outputs, if known.
        given: given by the user: a mapping from the data's class names to outputs (index or name), or the names of the
            outputs in order.

    >>> match_labels(("dog", "cat"), 3, ("bird", "cat", "dog"))
    LabelMatch(outputs=(2, 1), of=3, how='by name, 2 of 3 outputs', why_not='')
    >>> match_labels(("tabby", "n01440764"), 1000, tuple(ImageNetInfo("imagenet-1k").label_names())).outputs
    (281, 0)
    """
    match = _match(classes, outputs, names, given)
    if given is not None:
        names = () if isinstance(given, Mapping) else tuple(given)
    return replace(match, names=_output_names(match, classes, names))


def _match(
    classes: Sequence[str], outputs: int, names: Sequence[str], given: Mapping[str, Any] | Sequence[str] | None
) -> LabelMatch:
    """`match_labels` without the names of the outputs."""
    if not classes:
        return LabelMatch((), outputs, why_not="the images have no labels; expected one folder per class")
    if isinstance(given, Mapping):
        result = _from_mapping(classes, outputs, names, given)
        return LabelMatch(result, outputs, f"given, {len(classes)} of {outputs} outputs")
    if given is not None:
        names = tuple(given)
        if len(names) != outputs:
            raise VitlabError(
                f"invalid classes: {len(names)} names of outputs; expected {outputs}, the number of the model's outputs"
            )
    if names and len(names) == outputs:
        return _by_name(classes, names)
    if len(classes) == outputs:
        if list(classes) != sorted(classes) and list(classes) == sorted(classes, key=natural):
            warnings.warn(
                f"the model does not name its outputs; classes are matched by position in natural order ({classes[0]}, "
                f"{classes[1]}, …), as timm does; torchvision's ImageFolder sorts them as text ({sorted(classes)[0]}, "
                f"{sorted(classes)[1]}, …): if the model was trained with that order, {_WHAT_TO_DO}",
                stacklevel=3,
            )
        return LabelMatch(tuple(range(outputs)), outputs, "by position: the model does not name its outputs")
    return LabelMatch(
        (),
        outputs,
        why_not=f"the data has {len(classes)} classes and the model {outputs} outputs without names; {_WHAT_TO_DO}",
    )


def same_order(names: Sequence[str], classes: Sequence[str]) -> bool:
    """Whether the outputs of a model, by their names, are classes in the order of a published set.

    Libraries word some names differently, so that half of the names have to agree. Outputs without names pass.

    >>> imagenet = ImageNetInfo("imagenet-1k").label_names()
    >>> same_order(["tench", "goldfish"], imagenet[:2]), same_order(["goldfish", "tench"], imagenet[:2])
    (True, False)
    """
    pairs = zip(names, classes, strict=True) if len(names) == len(classes) else ()
    agree = [_first_term(name) == _first_term(each) for name, each in pairs]
    return 2 * sum(agree) >= len(agree)


def _output_names(match: LabelMatch, classes: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The names of all outputs, else the names of the classes that they are matched with."""
    if len(names) == match.of:
        return tuple(names)
    known = dict(zip(match.outputs, classes, strict=False))
    return tuple(known.get(output, f"class {output}") for output in range(match.of if match.outputs else 0))


def read_classes(path: str | Path) -> Mapping[str, Any] | tuple[str, ...]:
    """Read class names: JSON (an object from data classes to outputs, or a list of outputs), or one name per line."""
    path = user_path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VitlabError(f"cannot read the class names in {path} ({error})") from error
    if path.suffix.lower() != ".json":
        return _lines(path, text)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VitlabError(f"{path} is not valid JSON ({error})") from error
    if isinstance(content, dict):
        return content
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return tuple(content)
    raise VitlabError(f"{path} contains {type(content).__name__}; expected a JSON object or a list of names")


def _lines(path: Path, text: str) -> tuple[str, ...]:
    """The names in a text file; a line that is not a name shows that it is another kind of file."""
    names = tuple(line.strip() for line in text.split("\n") if line.strip())
    if not names:
        raise VitlabError(f"{path} is empty; expected the names of the model's outputs, one per line")
    for name in names:
        if len(name) > _LONGEST_NAME or not name.replace("\t", " ").isprintable():
            raise VitlabError(
                f"{path} is not a list of class names (it has the line {shown(name)}); expected one name per line, or "
                "JSON in a file with the suffix .json"
            )
    if names[0][0] in "{[" and names[-1][-1] in "}]":
        raise VitlabError(f"{path} looks like JSON; rename it to {path.with_suffix('.json').name}")
    return names


_LONGEST_NAME = 500  # characters; the longest description of an ImageNet class has 131
_WHAT_TO_DO = (
    "give --classes FILE (Python: classes=) with the names of the model's outputs, one per line, or JSON from the "
    "data's class names to outputs"
)


def _from_mapping(
    classes: Sequence[str], outputs: int, names: Sequence[str], given: Mapping[str, Any]
) -> tuple[int, ...]:
    position = {name: index for index, name in enumerate(names)}
    result = []
    for name in classes:
        if name not in given:
            raise VitlabError(f"invalid classes: no output for class {name!r}; add it to the mapping")
        output = given[name]
        index = position.get(output) if isinstance(output, str) else output
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < outputs:
            raise VitlabError(
                f"invalid output {output!r} for class {name!r}; expected 0 to {outputs - 1}, or the name of an output"
            )
        result.append(index)
    return tuple(result)


def _by_name(classes: Sequence[str], names: Sequence[str]) -> LabelMatch:
    """Match each class by its exact name, else by its full description, else by the first term of the description."""
    if tuple(classes) == tuple(names):
        return LabelMatch(tuple(range(len(names))), len(names), f"by name, {len(classes)} of {len(names)} outputs")
    result: list[int | None] = [None] * len(classes)
    for key in (_normalised, _description, _first_term):
        index = _unique(names, key)
        for i, name in enumerate(classes):
            if result[i] is None:
                result[i] = index.get(key(name))
    if all(output is None for output in result) and all(_is_number(name, len(names)) for name in classes):
        return LabelMatch(tuple(map(int, classes)), len(names), "by number: the class names are numbers of outputs")
    missing = [name for name, output in zip(classes, result, strict=True) if output is None]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        return LabelMatch(
            (),
            len(names),
            why_not=f"{len(missing)} of the data's {len(classes)} classes ({shown}) are not among the names of the "
            f"model's {len(names)} outputs ({names[0]}, …); {_WHAT_TO_DO}",
        )
    outputs = tuple(output for output in result if output is not None)
    if len(set(outputs)) < len(outputs):
        duplicate = next(name for name, output in zip(classes, outputs, strict=True) if outputs.count(output) > 1)
        why = f"two of the data's classes match the same output as {duplicate!r}; {_WHAT_TO_DO}"
        return LabelMatch((), len(names), why_not=why)
    return LabelMatch(outputs, len(names), f"by name, {len(classes)} of {len(names)} outputs")


def _unique(names: Sequence[str], key: Callable[[str], str]) -> dict[str, int]:
    """Output by key, without keys that several outputs share."""
    result: dict[str, int] = {}
    shared = set()
    for index, name in enumerate(names):
        if key(name) in result:
            shared.add(key(name))
        result[key(name)] = index
    return {name: index for name, index in result.items() if name not in shared}


def _normalised(name: str) -> str:
    return " ".join(name.replace("_", " ").lower().split())


def _description(name: str) -> str:
    return _normalised(_descriptions().get(name, name))


def _first_term(name: str) -> str:
    return _description(name).partition(",")[0]


def _is_number(name: str, outputs: int) -> bool:
    return name.isascii() and name.isdecimal() and int(name) < outputs


@cache
def _descriptions() -> dict[str, str]:
    """The words of each WordNet id of ImageNet-1K."""
    info = ImageNetInfo("imagenet-1k")
    return {name: info.label_name_to_description(name) for name in info.label_names()}
