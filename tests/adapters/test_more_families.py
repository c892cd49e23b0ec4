"""Families that were added from the scan: windows hold the tokens of their layout, and wrappers are described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import Case
from cases.more import CASES, LEVIT, SWIN, VIT, hugging_face
from vitlab.core.anatomy import Order, TokenLayout
from vitlab.recording.tokens import to_tokens

#: The module with the full map before attention in windows: its path for a block, its side, the axes of the map.
FULL: dict[str, tuple[Callable[[str], str], str, Order]] = {
    "hf_swinv2": (lambda block: block, "in", "BND"),
    "hf_swin": (lambda block: f"{block}.layernorm_before", "out", "BND"),
    "tiny_vit": (lambda block: block, "in", "BHWD"),
    "hieradet": (lambda block: f"{block}.norm1", "out", "BHWD"),
    "mobilevit": (lambda block: f"{block.partition('.transformer')[0]}.conv_1x1", "out", "BCHW"),
    "hf_mobilevit": (lambda block: f"{block.partition('.transformer')[0]}.conv_1x1", "out", "BCHW"),
}
#: The module that takes the windows, for a block.
WINDOWS: dict[str, Callable[[str], str]] = {"mobilevit": lambda block: block, "hf_mobilevit": lambda block: block}


def tensors(model: nn.Module, case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The first input and the output of every module in one forward."""
    entries: dict[str, Tensor] = {}
    ends: dict[str, Tensor] = {}

    def keep(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
            if arguments and isinstance(arguments[0], Tensor):
                entries[path] = arguments[0]
            ends[path] = output[0] if isinstance(output, tuple) else output

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(keep(path))
    with torch.no_grad():
        case.logits(model)
    return entries, ends


@pytest.mark.parametrize("case", [case for case in CASES if case.family in FULL], ids=lambda case: case.family)
def test_windows_hold_the_tokens_of_the_map(case: Case) -> None:
    model = case.model()
    blocks = vitlab.describe(model, case.size).blocks
    entries, ends = tensors(model, case)
    path_of, side, order = FULL[case.family]
    compared = 0
    for block in blocks:
        if "transformer" in block.name and not block.name.endswith(".0"):
            continue  # only the first layer of a transformer takes the map itself
        keys = block.mixer.keys
        full = (entries if side == "in" else ends)[path_of(block.name)]
        given = entries[WINDOWS.get(case.family, lambda _, block=block: block.mixer.path)(block.name)]
        windows = given.flatten(1, -2)  # HieraDet's windows are maps
        tokens = to_tokens(windows, keys)
        torch.testing.assert_close(tokens, to_tokens(full, TokenLayout(keys.grid, order=order)), rtol=0, atol=0)
        compared += keys.windows > 1
    assert compared > 0, "no block has windows"


@pytest.mark.parametrize(
    ("model", "config", "settings", "tokens"),
    [
        ("SiglipForImageClassification", "SiglipConfig", {"vision_config": {**VIT, "intermediate_size": 48}}, 16),
        ("DPTForDepthEstimation", "DPTConfig", {**VIT, "intermediate_size": 48}, 17),
        ("Data2VecVisionModel", "Data2VecVisionConfig", {**VIT, "intermediate_size": 48}, 17),
        ("Swinv2Model", "Swinv2Config", {**SWIN, "image_size": 32}, 256),
        ("DonutSwinForImageClassification", "DonutSwinConfig", {**SWIN, "image_size": 32}, 256),
        ("LevitModel", "LevitConfig", LEVIT, 25),
    ],
)
def test_wrappers(model: str, config: str, settings: dict[str, Any], tokens: int) -> None:
    size = settings.get("image_size", 32)
    if model.startswith("DPT"):
        neck = {"backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 8, 8]}
        settings = {**settings, **neck, "num_hidden_layers": 4}
    anatomy = vitlab.describe(hugging_face(model, config, **settings)(), size)
    assert anatomy.seams == ("attn.in", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")
    assert anatomy.blocks[0].mixer.keys.tokens == tokens


def test_detection_tokens_follow_the_patches_of_yolos() -> None:
    case = next(case for case in CASES if case.family == "hf_yolos")
    model = case.model()
    block = vitlab.describe(model, case.size).blocks[0]
    entries, _ = tensors(model, case)
    x = entries[block.name]  # class token, 4x6 patches, three detection tokens
    tokens = to_tokens(x, block.tap("block.in").layout)
    torch.testing.assert_close(tokens, torch.cat((x[:, :1], x[:, 25:], x[:, 1:25]), dim=1), rtol=0, atol=0)
    with vitlab.record(model, "features", at=("block.in",), input_size=case.size) as tape, torch.no_grad():
        case.logits(model)
    assert tape[block.name, "block.in"].shape == (2, 28, 24)
