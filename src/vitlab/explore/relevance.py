"""Relevance of the patches for the output after each layer: rollout and gradient-weighted attention of one image.

Shape legend: L layers, N tokens, P prefix tokens, h w token grid.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from vitlab.eval_mode import eval_mode
from vitlab.explore.ablations import ablated, check
from vitlab.explore.conditions import Condition
from vitlab.explore.shown_model import ShownModel
from vitlab.explore.views import encoded
from vitlab.instruments import attention_rollout, gradient_attention
from vitlab.instruments.shared.predictions import device_of
from vitlab.instruments.shared.token_relevance import of_output, output_tokens, square_blocks

Method = Literal["rollout", "gradient"]


def relevance(shown: ShownModel, condition: Condition, method: Method, target: str | None = None) -> dict[str, Any]:
    """The shares of the patches in the row of R_1 … R_L of the token that the output is computed from.

    Args:
        shown: a plain vision transformer: square maps of the same tokens in all layers.
        condition: the image and the ablations. A layer whose attention is ablated moves no relevance between tokens,
            and ablated heads are left out.
        method: `rollout` or `gradient`.
        target: name of the class whose logit is differentiated; None for the predicted class. For `gradient` only.

    Returns:
        `grid`; `maps` and `peaks` (L, h·w), see `encoded`; `prefix` (L), the share of the prefix tokens.
    """
    check(condition.ablations, shown.places)
    name = {"rollout": "attention rollout", "gradient": "gradient-weighted attention"}[method]
    blocks, layout = square_blocks(shown.anatomy, name)
    image = shown.pixels(condition)[None].to(device_of(shown.model))
    heads = _remaining_heads(shown, condition)
    attending = [block for block in blocks if heads.get(block.name) != []]
    with eval_mode(shown.model), ablated(shown.model, shown.anatomy, condition.ablations):
        read = output_tokens(shown.model, shown.anatomy, blocks[-1], image, layout)
        if not attending:
            found = []
        elif method == "rollout":
            found = attention_rollout.relevance(shown.model, shown.anatomy, attending, image, heads=heads)
        else:
            index = None if target is None else shown.class_index(target)
            found = gradient_attention.relevance(shown.model, shown.anatomy, attending, image, target=index)
    after = dict(zip((block.name for block in attending), found, strict=True))
    last, outputs = torch.eye(layout.tokens, device=image.device)[None], []
    for block in blocks:
        last = after.get(block.name, last)
        outputs.append(of_output(last.detach(), read))
    rows = torch.cat(outputs).cpu().double()  # (L, N)
    shares = rows / rows.sum(1, keepdim=True).clamp_min(1e-300)
    return {
        "grid": layout.grid,
        **encoded(shares[:, layout.prefix :]),
        "prefix": shares[:, : layout.prefix].sum(1).tolist(),
    }


def _remaining_heads(shown: ShownModel, condition: Condition) -> dict[str, list[int]]:
    """The heads that are not ablated, by name of the block, for blocks with ablated attention only."""
    remaining: dict[str, list[int]] = {}
    for ablation in condition.ablations:
        name = shown.anatomy.blocks[ablation.layer].name
        if ablation.at in ("attn", "block"):
            remaining[name] = []
        elif ablation.at == "head":
            heads = remaining.get(name, list(range(shown.places[ablation.layer]["head"])))
            remaining[name] = [head for head in heads if head != ablation.head]
    return remaining
