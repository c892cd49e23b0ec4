"""Copies of a model that are made inside `intervene`, and forwards in other threads."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import vitlab
from cases import VIT, redraw, timm_model
from vitlab.core.errors import VitlabError

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def model() -> nn.Module:
    return redraw(timm_model("vit_tiny_patch16_224", **VIT)()).eval()


@pytest.mark.parametrize("where", [{"head": 1}, {"at": "mlp"}, {"at": "block"}, {"at": "attn", "tokens": [0]}])
@torch.no_grad()
def test_a_copy_is_changed_inside_the_block_and_plain_after_it(where: dict[str, object]) -> None:
    original = model()
    plain = original(IMAGES)
    with vitlab.intervene(original, "ablate", block=1, **where):
        changed = original(IMAGES)
        twin = copy.deepcopy(original)
        assert torch.equal(twin(IMAGES), changed) and not torch.equal(changed, plain)
    assert torch.equal(twin(IMAGES), plain) and torch.equal(original(IMAGES), plain)


@torch.no_grad()
def test_heads_in_another_thread_raise_the_reason() -> None:
    original = model()
    plain = original(IMAGES)
    message = "heads are changed only in the thread that entered"
    with ThreadPoolExecutor(1) as pool, vitlab.intervene(original, "ablate", block=1, head=1):
        future = pool.submit(original, IMAGES)
        with pytest.raises(VitlabError, match=message):
            future.result()
    with ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(original, IMAGES).result(), plain)


@torch.no_grad()
def test_branches_are_changed_in_another_thread_too() -> None:
    original = model()
    with ThreadPoolExecutor(1) as pool, vitlab.intervene(original, "ablate", block=1, at="mlp"):
        expected = original(IMAGES)
        assert torch.equal(pool.submit(torch.no_grad()(original), IMAGES).result(), expected)
