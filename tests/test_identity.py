"""Model identity: names, digests and origins of weights."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from pathlib import Path

import pytest
import timm
import torch
from timm.utils import ModelEmaV3
from torch import nn

import vitlab
from vitlab import zoo
from vitlab.core.batches import Batches
from vitlab.core.measurement import Measurement
from vitlab.identity import identify
from vitlab.instruments import measure_together

SIZE = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 7}
TINY = f"timm/vit_tiny_patch16_224({', '.join(f'{key}={value}' for key, value in SIZE.items())})"
IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
BATCHES = Batches([(IMAGES, torch.tensor([0, 1, 2, 3]))], (0.0,) * 3, (1.0,) * 3)


def built(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model("vit_tiny_patch16_224", **SIZE)


def test_two_models_of_one_class_have_two_names() -> None:
    first, second = (vitlab.measure("attention_entropy", built(seed), BATCHES) for seed in (0, 1))
    again = vitlab.measure("attention_entropy", built(0), BATCHES)
    assert first.subject != second.subject and first.subject == again.subject
    digest = first.provenance["model"]["weights"]
    assert first.subject == f"VisionTransformer ({digest[:6]})" and int(digest, 16) >= 0
    assert first.provenance["model"]["origin"] == "unknown" and first.provenance["model"]["expression"] is None


@pytest.mark.parametrize("name", ["attention_entropy", "calibration"])
def test_parts_are_in_the_name_and_listed(name: str) -> None:
    model = vitlab.retrofit(built(), "ContextBroadcast(tokens=(1, 17))", blocks="upper")
    found = vitlab.measure(name, model, BATCHES)
    about = found.provenance["model"]
    assert found.subject == f"VisionTransformer + ContextBroadcast ({about['weights'][:6]})" == about["name"]
    part = {"name": "ContextBroadcast", "seam": "mlp.out", "settings": {"tokens": [1, 17]}, "blocks": ["blocks.1"]}
    assert about["parts"] == [part]


def test_a_stress_test_has_the_same_identity_and_a_given_name(tmp_path: Path) -> None:
    model = built()
    about = vitlab.measure("attention_entropy", model, BATCHES).provenance["model"]
    hidden = vitlab.stress("occlusion", model, BATCHES, ratios=(0.5,), grid=4)
    assert hidden.provenance["model"] == about
    named = vitlab.stress("occlusion", model, BATCHES, name="mine", ratios=(0.5,), grid=4)
    assert named.subject == "mine" and named.provenance["model"] == {**about, "name": "mine"}
    together = measure_together(["attention_entropy", "attention_distance"], model, BATCHES, name="both")
    assert [each.subject for each in together.values()] == ["both", "both"]
    with pytest.warns(DeprecationWarning, match="name="):
        assert vitlab.measure("attention_entropy", model, BATCHES, subject="old").subject == "old"
    assert Measurement.load(named.save(tmp_path / "named")).provenance["model"] == named.provenance["model"]


# -- the digest --------------------------------------------------------------------------------------------------------


def test_every_element_name_dtype_and_shape_counts() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    seen = {identify(model).weights}
    for name, tensor in model.state_dict().items():
        other = copy.deepcopy(model)
        other.state_dict()[name].view(-1)[-1:].add_(1)
        seen.add(identify(other).weights)
        assert tensor.numel()
    assert len(seen) == 1 + len(model.state_dict())
    seen.add(identify(copy.deepcopy(model).half()).weights)
    seen.add(identify(nn.ModuleDict({"0": model[0], "2": model[1]})).weights)
    flat = nn.ParameterDict({"a": torch.zeros(6)}), nn.ParameterDict({"a": torch.zeros(2, 3)})
    assert len(seen) == 3 + len(model.state_dict()) and len({identify(each).weights for each in flat}) == 2


def test_copies_wrappers_and_layouts_of_memory_do_not_count() -> None:
    model = vitlab.retrofit(built(), "ContextBroadcast")
    expected = identify(model)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), ModelEmaV3(model).module]
    copies += [torch.compile(model, backend="eager"), nn.DataParallel(model)]
    strided = copy.deepcopy(model)
    strided.blocks[0].attn.qkv.weight = nn.Parameter(model.blocks[0].attn.qkv.weight.detach().t().contiguous().t())
    assert not strided.blocks[0].attn.qkv.weight.is_contiguous()
    assert [identify(each) for each in [*copies, strided]] == [expected] * 6


@pytest.mark.gpu
def test_devices_do_not_count() -> None:
    model = built()
    expected = identify(model)
    assert identify(model.cuda()) == expected


def test_what_a_part_without_tensors_computes_counts() -> None:
    parts = ["ContextBroadcast", "ContextBroadcast(tokens=(1, 17))", "GatedContextBroadcast", "SpatialSmoothing"]
    parts += ["AveragePooling(kernel=3)", "AveragePooling(kernel=5)", "LocalAttention(kernel=3)"]
    parts += ["ContextBroadcast(blocks=[0])", "ContextBroadcast(at='mlp.mid')"]
    models = [built(), *(vitlab.retrofit(built(), part) for part in parts)]
    assert len({identify(model).weights for model in models}) == 1 + len(parts)
    by_class = vitlab.retrofit(built(), vitlab.parts(models[1])[0].kind)
    assert identify(by_class).weights == identify(models[1]).weights
    assert identify(vitlab.restore(models[1])) == identify(models[0])


# -- origin of weights -------------------------------------------------------------------------------------------------


def test_a_loaded_model_knows_its_expression_and_origin(tmp_path: Path) -> None:
    model, path = vitlab.load(TINY, seed=0), tmp_path / "model.safetensors"
    found = identify(model)
    assert (found.expression, found.origin, found.untrained) == (TINY, "random", True)
    zoo.save(model, TINY, str(path))
    loaded = identify(vitlab.load(f"file/{path}"))
    assert loaded.weights == found.weights and loaded.origin == f"file: {path}" and not loaded.untrained
    vitlab.retrofit(model, "ContextBroadcast")
    fitted = identify(model)
    assert fitted.origin == "random" and fitted.expression is None and fitted.weights != found.weights
    assert [part["name"] for part in fitted.parts] == ["ContextBroadcast"]
    assert identify(vitlab.restore(model)) == found


def test_training_ends_what_was_loaded() -> None:
    model = vitlab.load(TINY, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(IMAGES).square().mean().backward()
    optimizer.step()
    found = identify(model)
    assert found.origin == "random, changed after loading" and not found.untrained


def test_the_origin_goes_with_copies_and_into_no_file() -> None:
    model = vitlab.load(f"{TINY} | ContextBroadcast", seed=0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), ModelEmaV3(model).module):
        assert identify(other) == identify(model) and identify(other).origin == "random"
    assert not any("origin" in name for name in model.state_dict())
    scripted = torch.jit.script(vitlab.load("torchvision/squeezenet1_1"))
    assert "vitlab" not in scripted._c._type().annotation_str and not hasattr(scripted, "vitlab_origin")
    stream = io.BytesIO()
    torch.jit.save(scripted, stream)
    assert b"origin" not in stream.getvalue()


def test_an_untrained_model_is_named_where_a_trained_one_is_needed(tmp_path: Path) -> None:
    model, path = vitlab.load(TINY, seed=0), tmp_path / "model.safetensors"
    zoo.save(model, TINY, str(path))
    trained = vitlab.load(f"file/{path}")

    def calls(measured: nn.Module) -> list[object]:
        return [
            lambda: vitlab.measure("calibration", measured, BATCHES, name="m"),
            lambda: vitlab.stress("occlusion", measured, BATCHES, name="m", ratios=(0.5,), grid=4),
        ]

    for call in calls(model):
        with pytest.warns(UserWarning, match="m has random weights"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vitlab.measure("attention_entropy", model, BATCHES)
        for call in [*calls(trained), *calls(built())]:
            call()


def test_a_text_is_no_model() -> None:
    with pytest.raises(vitlab.VitlabError, match=r"of type str; expected a torch.nn.Module; use vitlab\.load"):
        vitlab.measure("calibration", TINY, BATCHES)
