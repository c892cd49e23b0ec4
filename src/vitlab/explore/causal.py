"""Causal trace of the shown image, one layer per call, so that the page can show progress.

Shape legend: R C rows and columns of cells, H heads, P prefix tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from vitlab.core.errors import VitlabError
from vitlab.eval_mode import eval_mode
from vitlab.explore.ablations import ablated, check
from vitlab.explore.conditions import Condition
from vitlab.explore.shown_model import ShownModel
from vitlab.instruments.causal_trace import patched_probabilities
from vitlab.instruments.shared.predictions import device_of

CELLS = 7  # cells per side of the token grid


def causal_layer(shown: ShownModel, condition: Condition, layer: int) -> dict[str, Any]:
    """Effects on the probability of the clean prediction when one layer receives activations of the clean image.

    Args:
        shown: the model.
        condition: a corrupted image or one with hidden patches. Its ablations hold for the clean image too.
        layer: index of the block.

    Returns:
        `class`, the prediction on the clean image; its probability `clean` and `corrupted`; `ablations`, the number of
        ablations, which hold in both runs; the effects `tokens` (R, C), `prefix` (P), `heads` (H), `attention` and
        `mlp`, where the layer has them. Only `why` if the output of the layer cannot be patched.
    """
    blocks = shown.anatomy.blocks
    if not 0 <= layer < len(blocks):
        raise VitlabError(f"invalid layer={layer}; expected 0 to {len(blocks) - 1}")
    if not condition.changes_input:
        raise VitlabError("the causal trace compares clean and changed image; choose a severity or hide patches first")
    check(condition.ablations, shown.places)
    if blocks[layer].seam("block.out") is None:
        return {"why": "the output of this layer cannot be patched"}
    pair = torch.stack([shown.pixels(condition.clean()), shown.pixels(condition)]).to(device_of(shown.model))
    with eval_mode(shown.model), ablated(shown.model, shown.anatomy, condition.ablations):
        with_heads = "head" in shown.places[layer]
        found = patched_probabilities(shown.model, shown.anatomy, blocks[layer], pair, CELLS, with_heads)
    corrupted = float(found["corrupted"][0])
    effects = {name: (values[0] - corrupted).tolist() for name, values in found.items()}
    predicted = int(shown.trace(condition.clean()).logits.argmax())
    about = {"class": shown.classes[predicted], "clean": float(found["clean"][0]), "corrupted": corrupted}
    return effects | about | {"ablations": len(condition.ablations)}
