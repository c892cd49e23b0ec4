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
from vitlab.instruments.shared.token_relevance import of_output, square_blocks

Method = Literal["rollout", "gradient"]


def relevance(shown: ShownModel, condition: Condition, method: Method, target: str | None = None) -> dict[str, Any]:
    """The shares of the patches in the class token's row of R_1 … R_L; without a class token, in the mean row.

    Args:
        shown: a plain vision transformer: square maps of the same tokens in all layers.
        condition: the image and the ablations.
        method: `rollout` or `gradient`.
        target: name of the class whose logit is differentiated; None for the predicted class. For `gradient` only.

    Returns:
        `grid`; `maps` and `peaks` (L, h·w), see `encoded`; `prefix` (L), the share of the prefix tokens.
    """
    check(condition.ablations, shown.places)
    name = {"rollout": "attention rollout", "gradient": "gradient-weighted attention"}[method]
    blocks, layout = square_blocks(shown.anatomy, name)
    image = shown.pixels(condition)[None].to(device_of(shown.model))
    with eval_mode(shown.model), ablated(shown.model, shown.anatomy, condition.ablations):
        if method == "rollout":
            found = attention_rollout.relevance(shown.model, shown.anatomy, blocks, image)
        else:
            index = None if target is None else shown.class_index(target)
            found = gradient_attention.relevance(shown.model, shown.anatomy, blocks, image, target=index)
    rows = torch.cat([of_output(each.detach(), layout.prefix) for each in found]).cpu().double()  # (L, N)
    shares = rows / rows.sum(1, keepdim=True).clamp_min(1e-300)
    return {
        "grid": layout.grid,
        **encoded(shares[:, layout.prefix :]),
        "prefix": shares[:, : layout.prefix].sum(1).tolist(),
    }
