from __future__ import annotations

import numpy as np
import pytest
import torch

import vitlab
from cases.attention import FAMILY
from vitlab.modules.context_broadcast import ScaledContextBroadcast


def fitted(family="vit"):
    """Λ of layer i runs over −1 … 2, times i + 1."""
    case = FAMILY[family]
    model = vitlab.retrofit(case.model(), "ScaledContextBroadcast", input_size=case.size)
    parts = [module for module in model.modules() if isinstance(module, ScaledContextBroadcast)]
    for i, part in enumerate(parts):
        part.scale.data = (i + 1) * torch.linspace(-1, 2, len(part.scale))
    return model, parts


def test_by_definition():
    model, parts = fitted()
    found = vitlab.measure("broadcast_scale", model, [])
    assert found.axes["layer"] == ("blocks.0.mlp", "blocks.1.mlp", "blocks.2.mlp")
    for i, part in enumerate(parts):
        scale = part.scale.detach().numpy()
        low, high = np.quantile(np.abs(scale), [0.1, 0.9])
        assert found.values["ratio"][i] == pytest.approx(low / high, rel=1e-5)
        low, high = np.quantile(scale, [0.1, 0.9])
        assert found.values["ratio_signed"][i] == pytest.approx(abs(low) / abs(high), rel=1e-5)
        assert found.values["mean"][i] == pytest.approx((i + 1) * 0.5, rel=1e-5)
        assert found.values["mean_absolute"][i] == pytest.approx(np.abs(scale).mean(), rel=1e-5)


def test_layers_of_different_width_and_depth():
    model, parts = fitted("pvt_v2")
    assert vitlab.measure("broadcast_scale", model, []).values["ratio"].shape == (len(parts),) == (3,)


def test_an_untrained_scale_has_no_ratio():
    case = FAMILY["vit"]
    model = vitlab.retrofit(case.model(), "ScaledContextBroadcast")
    found = vitlab.measure("broadcast_scale", model, []).values
    assert np.isnan(found["ratio"]).all() and (found["mean"] == 0).all()


def test_mistakes():
    with pytest.raises(vitlab.VitlabError, match="needs a model with CB_S"):
        vitlab.measure("broadcast_scale", FAMILY["vit"].model(), [])
    model, parts = fitted()
    parts[1].scale.data[0] = float("nan")
    with pytest.raises(vitlab.VitlabError, match=r"blocks\.1"):
        vitlab.measure("broadcast_scale", model, [])
