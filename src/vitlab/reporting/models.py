"""Identify the model of each measurement by its weights and architecture, and give every model a unique name.

The digest of the weights is in `provenance["model"]`. Measurements of earlier versions have none and are identified by
their subject; two of them that differ without being repeats are treated as two models. Where the architecture is not
known, a measurement is of the model with its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import chosen, conditions, digest_of, distinct, repeat_of

#: The number of digits of a digest in the name of a model.
_DIGITS = 6


@dataclass(frozen=True)
class NamedModels:
    """Measurements whose subjects are unique names of models.

    Args:
        measurements: in the given order, without duplicates.
        remarks: notes about renamed models and duplicates.
        untrained: names of models with random weights.
        origins: the origin of the weights of each model, by name, if known.
    """

    measurements: list[Measurement]
    remarks: list[str]
    untrained: list[str]
    origins: dict[str, str]


def name_models(measurements: Sequence[Measurement]) -> NamedModels:
    """Give every model one name, and different models different names.

    >>> def one(weights):
    ...     return Measurement("k", "ViT", {}, {}, provenance={"model": {"weights": weights, "origin": "random"}})
    >>> [m.subject for m in name_models([one("aa11"), one("bb22")]).measurements]
    ['ViT (aa11)', 'ViT (bb22)']
    """
    given = distinct(measurements)
    models = _identify(given)
    unique = _without_duplicates(given, models)
    kept = _without_overlap(unique, models)
    names = _names(kept, models)
    renamed = [replace(m, subject=names[models[id(m)]]) for m in kept]
    left_out = {id(m) for m in given} - {id(m) for m in unique}
    remarks = [
        *_remarks(kept, models, names),
        *_omissions([m for m in given if id(m) in left_out], len(unique) - len(kept)),
    ]
    origins = {m.subject: _origin(m) for m in reversed(renamed) if _origin(m)}
    ordered = {name: origins[name] for name in dict.fromkeys(m.subject for m in renamed) if name in origins}
    return NamedModels(renamed, remarks, [name for name, origin in ordered.items() if origin == "random"], ordered)


Key = tuple[str, str, int]  # digest; architecture, or subject if there is no digest; index among models of that subject


def _identify(measurements: Sequence[Measurement]) -> dict[int, Key]:
    """The model of each measurement, by the id of the object."""
    digests: dict[str, set[str]] = {}
    for m in measurements:
        if digest_of(m):
            digests.setdefault(m.subject, set()).add(digest_of(m))
    architectures: dict[str, set[str]] = {}
    for m in measurements:
        if _of_model(m, "architecture"):
            architectures.setdefault(digest_of(m), set()).add(_of_model(m, "architecture"))
    models: dict[int, Key] = {}
    for m in measurements:
        same_name = digests.get(m.subject, set())
        digest = digest_of(m) or (next(iter(same_name)) if len(same_name) == 1 else "")
        several = len(architectures.get(digest, ())) > 1
        models[id(m)] = (digest, (_of_model(m, "architecture") if several else "") if digest else m.subject, 0)
    unknown = [m for m in measurements if not models[id(m)][0]]
    for m in unknown:
        earlier = [other for other in unknown[: _position(unknown, m)] if _same_description(m, other)]
        models[id(m)] = ("", m.subject, len(earlier))
    return models


def _position(measurements: Sequence[Measurement], one: Measurement) -> int:
    return next(i for i, other in enumerate(measurements) if other is one)


def _same_description(one: Measurement, other: Measurement) -> bool:
    """Whether two measurements have the same kind, subject, conditions, seed, part and data."""
    same_name = (one.kind, one.subject) == (other.kind, other.subject)
    return same_name and conditions(one) == conditions(other) and repeat_of(one) == repeat_of(other)


def _without_duplicates(measurements: Sequence[Measurement], models: dict[int, Key]) -> list[Measurement]:
    """The measurements without those of the same weights, images and conditions as an earlier one."""
    kept: list[Measurement] = []
    for m in measurements:
        known = models[id(m)][0]
        same = (other for other in kept if models[id(other)] == models[id(m)] and other.kind == m.kind)
        if not (known and any(conditions(o) == conditions(m) and repeat_of(o) == repeat_of(m) for o in same)):
            kept.append(m)
    return kept


def _without_overlap(measurements: Sequence[Measurement], models: dict[int, Key]) -> list[Measurement]:
    """The measurements without those of images that others show split into another number of parts.

    The split with the most images is kept, and the one with more parts if these are equal: it has error bars.
    """
    splits: dict[str, dict[str, list[Measurement]]] = {}
    for m in measurements:
        data, selection, _, parts = chosen(m)
        if data:
            same = repr((models[id(m)], m.kind, conditions(m), repeat_of(m)[:-2], data, selection))
            splits.setdefault(same, {}).setdefault(parts, []).append(m)
    omitted = set()
    for by_parts in splits.values():
        best = max(by_parts.values(), key=lambda each: (sum(m.provenance.get("images") or 0 for m in each), len(each)))
        omitted |= {id(m) for each in by_parts.values() if each is not best for m in each}
    return [m for m in measurements if id(m) not in omitted]


def _names(measurements: Sequence[Measurement], models: dict[int, Key]) -> dict[Key, str]:
    """A name for each model: the first subject that does not begin with `file/`, with a suffix if several share it."""
    subjects: dict[Key, list[str]] = {}
    for m in measurements:
        subjects.setdefault(models[id(m)], []).append(m.subject)
    first = {key: min(own, key=lambda name: name.startswith("file/")) for key, own in subjects.items()}
    names: dict[Key, str] = {}
    for key, name in first.items():
        shared = [other for other in first if first[other] == name]
        suffix = key[0][:_DIGITS] or (str(shared.index(key) + 1) if shared.index(key) else "")
        unique = f"{name} ({suffix})" if len(shared) > 1 and suffix else name
        while unique in names.values():  # digests with a common start, or a subject that ends like a suffix
            unique = f"{unique}'"
        names[key] = unique
    return names


def _remarks(measurements: Sequence[Measurement], models: dict[int, Key], names: dict[Key, str]) -> list[str]:
    remarks = []
    shared = dict.fromkeys(m.subject for m in measurements if names[models[id(m)]] != m.subject)
    for subject in shared:
        own = dict.fromkeys(models[id(m)] for m in measurements if m.subject == subject)
        if len(own) > 1:
            which = "different weights or settings" if all(key[0] for key in own) else "not marked as repeats"
            remarks.append(
                f"{len(own)} models are called {subject!r} ({which}); they are shown separately and not averaged. "
                "Name them with name= or --name."
            )
    return remarks


def _omissions(duplicates: Sequence[Measurement], overlapping: int) -> list[str]:
    """Notes about measurements that are left out."""
    unknown = sum(not m.provenance.get("data") and m.provenance.get("images") != 0 for m in duplicates)
    notes = {
        "omitted: same weights, images and settings.": len(duplicates) - unknown,
        "omitted: same weights and settings, on images that are not known; name the images with "
        "Batches(…, fingerprint='NAME').": unknown,
        "omitted: the same images are shown split into another number of parts.": overlapping,
    }
    return [f"{count} {'measurement' if count == 1 else 'measurements'} {why}" for why, count in notes.items() if count]


def _origin(measurement: Measurement) -> str:
    """The origin of the weights: `random`, `file: PATH`, `hub: TAG`; empty if unknown."""
    origin = _of_model(measurement, "origin")
    return "" if origin == "unknown" else origin


def _of_model(measurement: Measurement, entry: str) -> str:
    """An entry of the model's provenance as text; empty if unknown."""
    model = measurement.provenance.get("model")
    return str(model.get(entry) or "") if isinstance(model, dict) else ""
