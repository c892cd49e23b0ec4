"""Forms of operators in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor

from vitlab.kernels import availability
from vitlab.kernels.availability import without_kernels


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
