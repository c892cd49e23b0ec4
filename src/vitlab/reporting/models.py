"""Which measurements are of the same model: those of the same weights, whatever the model was called.

Measurements say which weights they are of (`provenance["model"]`). Those of earlier versions do not, and are told apart
by their subject; two of them that differ and do not say that they are repeats are taken for two models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitlab.core.measurement import Measurement
from vitlab.core.repeats import REPEAT_SETTINGS, digest_of, distinct, repeat_of

#: How many digits of a digest tell models of one name apart.
_DIGITS = 6


@dataclass(frozen=True)
class Named:
    """Measurements whose subjects are the names of models, no two models alike.

    Args:
        measurements: in the given order, without those that were measured twice.
        remarks: what a reader should know about names.
        untrained: names of models with random weights.
        origins: where the weights of each model are from, by name, as far as that is known.
    """

    measurements: list[Measurement]
    remarks: list[str]
    untrained: list[str]
    origins: dict[str, str]


def name_models(measurements: Sequence[Measurement]) -> Named:
    """Give every model one name, and different models different names.

    >>> def one(weights):
    ...     return Measurement("k", "ViT", {}, {}, provenance={"model": {"weights": weights, "origin": "random"}})
    >>> [m.subject for m in name_models([one("aa11"), one("bb22")]).measurements]
    ['ViT (aa11)', 'ViT (bb22)']
    """
    found = distinct(measurements)
    models = _identify(found)
    kept, again = _once(found, models)
    names = _names(kept, models)
    renamed = [replace(m, subject=names[models[id(m)]]) for m in kept]
    remarks = _remarks(kept, models, names, again)
    origins = {m.subject: _origin(m) for m in reversed(renamed) if _origin(m)}
    ordered = {name: origins[name] for name in dict.fromkeys(m.subject for m in renamed) if name in origins}
    return Named(renamed, remarks, [name for name, origin in ordered.items() if origin == "random"], ordered)


Key = tuple[str, str, int]  # digest, subject where there is none, and which of the models of that subject


def _identify(measurements: Sequence[Measurement]) -> dict[int, Key]:
    """The model of each measurement, by its id."""
    digests: dict[str, set[str]] = {}
    for m in measurements:
        if digest_of(m):
            digests.setdefault(m.subject, set()).add(digest_of(m))
    models: dict[int, Key] = {}
    for m in measurements:
        same_name = digests.get(m.subject, set())
        digest = digest_of(m) or (next(iter(same_name)) if len(same_name) == 1 else "")
        models[id(m)] = (digest, "" if digest else m.subject, 0)
    unknown = [m for m in measurements if not models[id(m)][0]]
    for m in unknown:
        rivals = [other for other in unknown[: _place(unknown, m)] if _claims_the_same(m, other)]
        models[id(m)] = ("", m.subject, len(rivals))
    return models


def _place(measurements: Sequence[Measurement], one: Measurement) -> int:
    return next(i for i, other in enumerate(measurements) if other is one)


def _claims_the_same(one: Measurement, other: Measurement) -> bool:
    """Whether two measurements say nothing that sets them apart: same kind, subject, settings, seed, part and data."""
    same_name = (one.kind, one.subject) == (other.kind, other.subject)
    return same_name and _settings(one) == _settings(other) and repeat_of(one) == repeat_of(other)


def _settings(measurement: Measurement) -> dict[str, object]:
    return {key: value for key, value in measurement.settings.items() if key not in REPEAT_SETTINGS}


def _once(measurements: Sequence[Measurement], models: dict[int, Key]) -> tuple[list[Measurement], int]:
    """The measurements without those of the same weights on the same images: no repeats, as nothing new was drawn."""
    kept: list[Measurement] = []
    for m in measurements:
        known = models[id(m)][0]
        same = (other for other in kept if models[id(other)] == models[id(m)] and other.kind == m.kind)
        if not (known and any(_settings(o) == _settings(m) and repeat_of(o) == repeat_of(m) for o in same)):
            kept.append(m)
    return kept, len(measurements) - len(kept)


def _names(measurements: Sequence[Measurement], models: dict[int, Key]) -> dict[Key, str]:
    """A name for each model: the first that does not begin with `file/`, with a mark where several share it."""
    subjects: dict[Key, list[str]] = {}
    for m in measurements:
        subjects.setdefault(models[id(m)], []).append(m.subject)
    first = {key: min(said, key=lambda name: name.startswith("file/")) for key, said in subjects.items()}
    names: dict[Key, str] = {}
    for key, name in first.items():
        shared = [other for other in first if first[other] == name]
        mark = key[0][:_DIGITS] or (str(shared.index(key) + 1) if shared.index(key) else "")
        wanted = f"{name} ({mark})" if len(shared) > 1 and mark else name
        while wanted in names.values():  # digests that begin alike, or a subject that looks like a mark
            wanted = f"{wanted}'"
        names[key] = wanted
    return names


def _remarks(
    measurements: Sequence[Measurement], models: dict[int, Key], names: dict[Key, str], again: int
) -> list[str]:
    remarks = []
    shared = dict.fromkeys(m.subject for m in measurements if names[models[id(m)]] != m.subject)
    for subject in shared:
        own = dict.fromkeys(models[id(m)] for m in measurements if m.subject == subject)
        if len(own) > 1:
            which = "different weights" if all(key[0] for key in own) else "nothing says that they are repeats"
            remarks.append(
                f"{len(own)} models are called {subject!r} ({which}): they are shown one by one, not averaged. "
                "Give subject= to name them."
            )
    if again:
        remarks.append(
            f"{again} measurements were left out: the same weights were measured before, on the same images with the "
            "same settings."
        )
    return remarks


def _origin(measurement: Measurement) -> str:
    """Where the weights are from: `random`, `file: PATH`, `hub: TAG`; empty where that is not known."""
    model = measurement.provenance.get("model")
    origin = str(model.get("origin") or "") if isinstance(model, dict) else ""
    return "" if origin == "unknown" else origin
