"""`Batches` can be iterated more than once, and `reiterable` makes other batches so."""

from __future__ import annotations

import pytest
import torch

from vitlab.core.batches import Batches, reiterable
from vitlab.core.errors import VitlabError


def test_batches_can_be_iterated_repeatedly() -> None:
    items = [(torch.zeros(2, 3, 4, 4), torch.tensor([0, 1])), (torch.ones(1, 3, 4, 4), torch.tensor([1]))]
    batches = Batches(items, (0.5,) * 3, (0.25,) * 3, ("cat", "dog"), "abc")
    assert len(batches) == 2
    for _ in range(2):
        assert [len(targets) for _, targets in batches] == [2, 1]
    with pytest.raises(AttributeError):
        batches.fingerprint = "other"


def test_a_stream_has_no_length() -> None:
    with pytest.raises(TypeError):
        len(Batches(iter([]), (0.5,), (0.5,)))


def pairs(seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(2, 3, 4, 4, generator=generator), torch.tensor([i, i])) for i in range(3)]


def labels(iterate: object) -> list[int]:
    return [int(targets[0]) for _, targets in iterate()]  # type: ignore[operator]


@pytest.mark.parametrize("make", [iter, lambda items: Batches(iter(items), (0.5,), (0.5,)), lambda items: items])
def test_one_shot_iterables_can_be_iterated_again(make) -> None:
    iterate = reiterable(make(pairs()), iter)
    assert labels(iterate) == labels(iterate) == [0, 1, 2]


def test_only_batches_that_are_read_are_collected() -> None:
    """An infinite stream is accepted if only its start is read."""

    def endless():
        while True:
            yield from pairs()

    iterate = reiterable(endless(), lambda batches: (batch for _, batch in zip(range(2), batches, strict=False)))
    assert labels(iterate) == labels(iterate) == [0, 1]


class Loader:
    """Batches that are created at each iteration."""

    def __init__(self, make) -> None:
        self.make, self.iterations = make, 0

    def __iter__(self):
        self.iterations += 1
        return iter(self.make(self.iterations))


def test_a_loader_is_iterated_each_time_and_not_cached() -> None:
    loader = Loader(lambda iterate: pairs())
    iterate = reiterable(loader, iter)
    assert labels(iterate) == labels(iterate) == [0, 1, 2] and loader.iterations == 2
    assert next(iter(iterate()))[1][0] == 0 and labels(iterate) == [0, 1, 2]


@pytest.mark.parametrize(
    "make",
    [lambda number: pairs()[:: (-1) ** number], lambda number: pairs(seed=number)],
    ids=["shuffled", "augmented"],
)
def test_a_loader_that_changes_raises(make) -> None:
    iterate = reiterable(Loader(make), iter)
    labels(iterate)
    with pytest.raises(VitlabError, match="differ between two iterations .*give list"):
        labels(iterate)
