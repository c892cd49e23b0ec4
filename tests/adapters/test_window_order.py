"""The tokens in each attention window are those of the description, also for shifted windows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

import vitlab
from cases.others import CASES
from vitlab.recording.tokens import to_tokens

WINDOWED = [case for case in CASES if case.family in ("torchvision_swin", "torchvision_swin_v2", "hf_swin")]


class FirstLinear(TorchFunctionMode):
    """Stores the input of the first linear layer in every forward of a module: the windows before q, k and v."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.seen = False, []

    def start(self, *_: object) -> None:
        self.open = True

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is F.linear and self.open and args[0].ndim == 3:
            self.open = False
            self.seen.append(args[0])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("case", WINDOWED, ids=lambda case: case.family)
def test_the_order_of_tokens_in_windows(case) -> None:  # type: ignore[no-untyped-def]
    model = case.model()
    blocks = vitlab.describe(model, case.size).blocks
    assert len({block.mixer.queries.permutation for block in blocks}) > len({block.stage for block in blocks})  # shifts
    full: dict[str, Tensor] = {}
    mode = FirstLinear()
    for block in blocks:
        seam = block.seam("attn.in")
        norm = model.get_submodule(seam.path)
        post_norm = seam.path == block.mixer.path  # Swin-V2: the input of attention is the residual stream

        def keep(module, arguments, output, block=block, post_norm=post_norm) -> None:  # type: ignore[no-untyped-def]
            full[block.name] = arguments[0] if post_norm else output

        norm.register_forward_hook(keep)
        model.get_submodule(block.mixer.path).register_forward_pre_hook(mode.start)
    with mode, torch.no_grad():
        case.logits(model)
    assert len(mode.seen) == len(blocks)
    for block, windows in zip(blocks, mode.seen, strict=True):
        expected = to_tokens(full[block.name], block.seam("attn.in").layout)
        torch.testing.assert_close(to_tokens(windows, block.mixer.queries), expected, rtol=0, atol=0)
