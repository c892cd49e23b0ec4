"""The experiments by name, without importing torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitlab.core import descriptions, plugins
from vitlab.core.errors import ExtensionError, VitlabError, reason_of, unknown
from vitlab.core.experiment import SCALES, Claim, Job, Published, Results, Scale
from vitlab.core.extensions import resolve, warn_once
from vitlab.core.verdicts import Verdict

__all__ = ["Experiment", "check_scale", "experiment", "select"]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper; its module is imported on first use.

    Args:
        name: for example `cb_table_s16`.
        path: the name of its module.
    """

    name: str
    path: str

    @cached_property
    def module(self) -> Any:
        """The module of the experiment, or the object of an extension."""
        return resolve(self.path)

    @property
    def paper(self) -> str:
        """The key of its paper."""
        return self.name.partition("_")[0]

    @property
    def title(self) -> str:
        """The table or figure and its subject."""
        return str(self.module.TITLE)

    @property
    def published(self) -> Sequence[Published]:
        """The published numbers."""
        found: Sequence[Published] = self.module.PAPER
        return found

    @property
    def claims(self) -> Sequence[Claim]:
        """The claims."""
        found: Sequence[Claim] = self.module.CLAIMS
        return found

    def differences(self, scale: Scale) -> list[str]:
        """What differs from the paper at a scale, a sentence each."""
        return list(getattr(self.module, "DIFFERENCES", {}).get(scale, ()))

    @property
    def file(self) -> Path:
        """The path of its file below `src`, for an experiment of vitlab."""
        return Path("src", *self.path.split(".")).with_suffix(".py")

    @property
    def origin(self) -> str:
        """The origin of an experiment of an extension; empty for one of vitlab."""
        return descriptions.origin("experiments", self.name)

    def plan(self, scale: Scale) -> list[Job]:
        """The jobs of a scale, each once."""
        return list(dict.fromkeys(self.module.plan(scale)))

    def check(self, results: Results) -> list[Verdict]:
        """One verdict per claim."""
        verdicts = list(self.module.check(results))
        sentences = [claim.sentence for claim in self.claims]
        if [each.claim for each in verdicts] != sentences:
            raise VitlabError(f"{self.name}: check() must return one verdict per claim, in the order of CLAIMS")
        return verdicts


def experiment(name: str) -> Experiment:
    """Returns the experiment of a name.

    >>> experiment("cb_table_s16").paper
    'cb'
    """
    known = plugins.experiments()
    if name not in known:
        raise unknown("experiment", name, known)
    return Experiment(name, known[name])


def select(names: Sequence[str] = (), paper: str = "", all_: bool = False) -> list[Experiment]:
    """Returns the experiments that are named, those of a paper, or all, in the order of the papers.

    Args:
        names: of experiments.
        paper: a key of `plugins.PAPERS`.
        all_: whether to return all of them.
    """
    if paper and paper not in plugins.PAPERS:
        raise unknown("paper", paper, plugins.PAPERS)
    if not (names or paper or all_):
        raise VitlabError("no experiment was named; give names, --paper or --all; `vitlab reproduce --list` lists them")
    for name in names:
        experiment(name)
    chosen = [
        Experiment(name, path)
        for name, path in plugins.experiments().items()
        if all_ or name in names or (paper and name.startswith(f"{paper}_"))
    ]
    return [each for each in chosen if not each.origin or _works(each, named=each.name in names)]


def _works(added: Experiment, *, named: bool) -> bool:
    """Whether the experiment of an extension has all attributes and plans; if not, an error if it was named."""
    try:
        _ = added.title, added.claims, added.published, [added.plan(scale) for scale in SCALES]
    except Exception as error:  # code of others
        line = f"experiment {added.name!r} of {added.origin} failed: {reason_of(error)}"
        if named:
            raise ExtensionError(line) from error
        warn_once(f"{line}; it is skipped")
        return False
    return True


def check_scale(scale: str) -> Scale:
    """Returns the scale of that name.

    >>> check_scale("small")
    'small'
    """
    for known in SCALES:
        if scale == known:
            return known
    raise unknown("scale", scale, SCALES)
