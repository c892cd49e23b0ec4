"""The requests of the page; pydantic checks their types and limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from vitlab.explore.conditions import Ablation, Condition, Place, Query
from vitlab.explore.relevance import Method


class AblationRequest(BaseModel):
    """An ablation: a layer, a place, and the head if the place is a head."""

    layer: Annotated[int, Field(ge=0, le=10_000)]
    at: Place
    head: Annotated[int, Field(ge=0, le=10_000)] = 0


class ViewRequest(BaseModel):
    """A model, an image, a corruption, hidden patches and ablations."""

    model: int
    image: Annotated[str, Field(max_length=20)]
    corruption: Annotated[str, Field(max_length=40)] = ""
    severity: Annotated[int, Field(ge=0, le=5)] = 0
    hidden: Annotated[list[int], Field(max_length=10_000)] = []
    ablations: Annotated[list[AblationRequest], Field(max_length=2_000)] = []

    def condition(self) -> Condition:
        """The condition; it does not depend on the order of hidden patches and ablations."""
        named = self.corruption if self.severity else ""
        ablations = {Ablation(each.layer, each.at, each.head if each.at == "head" else 0) for each in self.ablations}
        hidden = tuple(sorted(set(self.hidden)))
        return Condition(self.image, named, self.severity if named else 0, hidden, tuple(sorted(ablations)))


class RowsRequest(ViewRequest):
    """A request with the query token."""

    y: Annotated[float, Field(ge=0, le=1)] = 0.5
    x: Annotated[float, Field(ge=0, le=1)] = 0.5
    prefix: Annotated[int, Field(ge=0, le=1000)] | None = None

    def query(self) -> Query:
        """The query token."""
        return Query(self.y, self.x, self.prefix)


class RelevanceRequest(ViewRequest):
    """A request for an overlay; `target` is the name of a class, by default the predicted one."""

    method: Method
    target: Annotated[str, Field(max_length=1000)] | None = None


class CausalRequest(ViewRequest):
    """A request for one layer of the causal trace."""

    layer: Annotated[int, Field(ge=0, le=10_000)]
