"""Attention calls: the map against explicit loops, and statistics over chunks of rows.

Shape legend: B batch, H heads, N query tokens, M key tokens, d head channels.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from torch import Tensor

from vitlab.core.anatomy import TokenLayout
from vitlab.core.errors import VitlabError
from vitlab.kernels import attention_rows
from vitlab.recording.attention_call import AttentionCall, entropy

LAYOUT = TokenLayout((1, 4))


def call(**tensors: object) -> AttentionCall:
    return AttentionCall("blocks.0", LAYOUT, LAYOUT, **tensors)


def by_loops(q: Tensor, k: Tensor, scale: float, bias: Tensor) -> Tensor:
    found = torch.zeros(*q.shape[:3], k.shape[2], dtype=torch.float64)
    bias = bias.expand(found.shape)
    for b, h, n in torch.cartesian_prod(*(torch.arange(side) for side in q.shape[:3])).tolist():
        logits = [scale * float(q[b, h, n] @ k[b, h, m]) + float(bias[b, h, n, m]) for m in range(k.shape[2])]
        weights = [math.exp(value - max(logits)) for value in logits]
        found[b, h, n] = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    return found


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_the_map_by_loops(b: int, h: int, n: int, m: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(b, h, side, 3, generator=generator, dtype=torch.float64) for side in (n, m))
    for shape in ((b, h, n, m), (1, h, n, m), (1, 1, 1, m), (n, m)):
        bias = torch.randn(shape, generator=generator, dtype=torch.float64)
        found = call(q=q, k=k, scale=0.7, bias=bias).map()
        assert torch.allclose(found, by_loops(q, k, 0.7, bias), atol=1e-12)


def test_the_map_times_values_equals_fused_attention() -> None:
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    bias = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    fused = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert torch.allclose(call(q=q, k=k, scale=0.5, bias=bias).map() @ v, fused, atol=1e-6)


def test_grouped_queries_share_a_key_head() -> None:
    q, k, v = torch.randn(2, 6, 5, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    fused = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert torch.allclose(call(q=q, k=k, scale=0.5).map() @ v.repeat_interleave(3, 1), fused, atol=1e-6)


def test_rows_sum_to_one_in_float32_under_autocast_and_from_half_precision() -> None:
    q, k = (4 * torch.randn(1, 2, 64, 8) for _ in range(2))
    with torch.autocast("cpu", torch.bfloat16):
        found = call(q=q.bfloat16(), k=k.bfloat16()).map()
    assert found.dtype == torch.float32
    assert torch.allclose(found.sum(-1), torch.ones(1, 2, 64), atol=1e-5)
    assert torch.allclose(found, call(q=q.bfloat16().float(), k=k.bfloat16().float()).map(), atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 7, 60, 1 << 24])
@pytest.mark.parametrize("kind", ["operands", "weights", "row bias"])
def test_statistics_are_streamed_and_do_not_depend_on_the_pieces(
    chunk: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 7, 4), torch.randn(2, 3, 5, 4)
    given_call = call(q=q, k=k, scale=2.0, bias=torch.randn(2, 1, 1, 5) if kind == "row bias" else torch.randn(3, 7, 5))
    if kind == "weights":
        given_call = call(weights=given_call.map())
    whole = given_call.map()
    monkeypatch.setattr(attention_rows, "CHUNK", chunk)
    pieces = list(given_call.rows())
    assert len(pieces) == -(-7 // max(1, chunk // 30))
    assert torch.allclose(torch.cat([rows.weights for rows in pieces], 2), whole)
    assert [i for rows in pieces for i in range(rows.place.start, rows.place.stop)] == list(range(7))
    assert torch.allclose(sum(rows.received for rows in pieces), whole.sum(2), atol=1e-6)
    found = given_call.statistics(["entropy", "received"])
    assert torch.allclose(
        found["entropy"].double(), torch.from_numpy(scipy_entropy(whole.double().numpy(), axis=-1)), atol=1e-5
    )
    assert torch.allclose(found["received"], whole.mean(2), atol=1e-6)


def test_entropy_is_bounded_by_its_two_extremes() -> None:
    assert torch.allclose(entropy(torch.full((3, 8), 1 / 8)), torch.tensor(math.log(8)))
    assert torch.equal(entropy(torch.eye(4)), torch.zeros(4))  # 0 log 0 is 0


def test_gradients_reach_queries_and_keys() -> None:
    q, k = (torch.randn(1, 1, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda q, k: call(q=q, k=k, scale=0.5).map(), (q, k))


def test_an_unknown_statistic_names_the_known_ones() -> None:
    with pytest.raises(VitlabError, match=r"no attention statistic 'entrpy' .*there are: entropy, received"):
        call(weights=torch.eye(4).reshape(1, 1, 4, 4)).statistics(["entrpy"])
