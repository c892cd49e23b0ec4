"""Forms of operators in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitlab.kernels import availability
from vitlab.kernels.availability import transformed, without_kernels


@torch.compiler.assume_constant_result
def disabled() -> bool:
    return "an operator" in availability._DISABLED


def test_compiled_code_follows_without_kernels() -> None:
    """The choice is a constant of compiled code, so code compiled before must not run inside the block, nor after."""

    @torch.compile(backend="eager", fullgraph=True)
    def marked(x: Tensor) -> Tensor:
        return x + 1 if disabled() else x

    zero = torch.zeros(())
    found = [float(marked(zero))]
    with without_kernels("an operator"):
        found.append(float(marked(zero)))
        with without_kernels("an operator"):
            found.append(float(marked(zero)))
        found.append(float(marked(zero)))
    found.append(float(marked(zero)))
    assert found == [0, 1, 1, 1, 0]


class Marked(nn.Module):
    """Adds 1 where plain operations are needed."""

    def forward(self, x: Tensor) -> Tensor:
        return x + float(transformed())


def test_plain_operations_are_for_transforms_and_export_not_for_compiled_code() -> None:
    """Dynamo of torch 2.11 replaces `torch.compiler.is_exporting()` by True in all compiled code."""
    zero, model = torch.zeros(1), Marked()
    assert torch.compile(model, backend="eager", fullgraph=True)(zero) == 0 == model(zero)
    assert torch.vmap(model)(zero[None]) == 1
    for strict in (False, True):
        assert torch.export.export(model, (zero,), strict=strict).module()(zero) == 1
