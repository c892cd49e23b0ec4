"""The transform matches the preprocessing of the model's library."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image

import vitlab
from vitlab.data.augment import normalise
from vitlab.data.device_copy import per_channel
from vitlab.preprocessing import declare, declared, preprocessing_of
from vitlab.preprocessing.declaration import from_hugging_face, from_torchvision

CPU = torch.device("cpu")


def picture(width: int = 301, height: int = 263) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def as_input(how, image: Image.Image) -> torch.Tensor:
    return normalise(how.transform()(image)[None], per_channel(how.mean, CPU), per_channel(how.std, CPU))[0]


@pytest.mark.parametrize("name", ["vit_b_16", "swin_t", "swin_v2_t", "maxvit_t", "resnet50", "efficientnet_b4"])
def test_torchvision_models_get_the_tensor_of_their_weights(name: str) -> None:
    weights = torchvision.models.get_model_weights(name).DEFAULT
    fields = from_torchvision(weights.transforms(), weights.meta["categories"])
    found = vitlab.preprocessing.Preprocessing(**fields)
    assert torch.equal(as_input(found, picture()), weights.transforms()(picture()))
    assert found.classes[0] == "n01440764"


def test_a_torchvision_model_that_is_loaded_declares_it() -> None:
    model = vitlab.load("torchvision/swin_t")
    expected = torchvision.models.Swin_T_Weights.DEFAULT.transforms()(picture())
    assert torch.equal(as_input(preprocessing_of(model), picture()), expected)
    assert preprocessing_of(vitlab.load("torchvision/swin_t(num_classes=7)")).classes == ()


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"])
def test_timm_models_get_the_tensor_of_their_configuration(name: str) -> None:
    model = timm.create_model(name)
    transform = timm.data.create_transform(**timm.data.resolve_data_config(model.pretrained_cfg))
    assert torch.equal(as_input(preprocessing_of(model), picture()), transform(picture()))


def test_the_size_is_the_one_that_the_model_was_built_for() -> None:
    model = timm.create_model("deit_tiny_patch16_224", img_size=(32, 48), patch_size=8, depth=1)
    assert preprocessing_of(model).size == (32, 48) and preprocessing_of(model).crop == 0.9


PROCESSORS = [
    ("ViTImageProcessor", {"size": {"height": 40, "width": 40}, "resample": 2}),
    ("DeiTImageProcessor", {"size": {"height": 48, "width": 48}, "crop_size": {"height": 40, "width": 40}}),
    ("CLIPImageProcessor", {"size": {"shortest_edge": 40}, "crop_size": {"height": 40, "width": 40}}),
    ("ConvNextImageProcessor", {"size": {"shortest_edge": 40}, "crop_pct": 0.875}),
    ("ViTImageProcessor", {"size": {"height": 40, "width": 40}, "do_normalize": False}),
    ("ConvNextImageProcessor", {"size": 40, "crop_pct": 0.875}),  # one number is the shorter side for these
    ("PoolFormerImageProcessor", {"size": 40, "crop_size": 40, "crop_pct": 0.9}),
    ("CLIPImageProcessor", {"size": 40, "crop_size": 40}),
    ("LevitImageProcessor", {"size": 40, "crop_size": 40}),  # resizes to 256 / 224 of the size
    ("MobileViTImageProcessor", {"size": 48, "crop_size": 40, "do_flip_channel_order": False}),  # not normalised
    ("EfficientNetImageProcessor", {"size": {"height": 40, "width": 40}, "resample": 2}),  # divides by std twice
]


@pytest.mark.parametrize(("kind", "settings"), PROCESSORS)
def test_hugging_face_processors_are_read(kind: str, settings: dict) -> None:
    """Hugging Face's torchvision backend resizes tensors, vitlab images; odd margins differ by half a pixel."""
    transformers = pytest.importorskip("transformers")
    smooth = picture(12, 10).resize((84, 70), Image.Resampling.BICUBIC)
    processor = getattr(transformers, kind)(**settings)
    expected = processor(smooth, return_tensors="pt")["pixel_values"][0]
    stored = {**processor.to_dict(), **settings, "image_processor_type": kind}
    found = vitlab.preprocessing.Preprocessing(**from_hugging_face(stored))
    ours = as_input(found, smooth)
    assert ours.shape == expected.shape
    assert float(((ours - expected) * torch.tensor(found.std)[:, None, None]).abs().max()) <= 2.1 / 255


def test_unsupported_steps_of_a_hugging_face_processor_raise() -> None:
    with pytest.raises(vitlab.VitlabError, match="rescales by 0.0078"):
        from_hugging_face({"size": 8, "rescale_factor": 1 / 127.5})
    with pytest.raises(vitlab.VitlabError, match="with an offset"):
        from_hugging_face({"size": 8, "rescale_offset": True})
    with pytest.raises(vitlab.VitlabError, match="unsupported size"):
        from_hugging_face({"size": {"height": 8, "width": 8}, "do_center_crop": True, "crop_size": 16})
    with pytest.warns(UserWarning, match="swaps red and blue"):
        from_hugging_face({"size": 8, "feature_extractor_type": "MobileViTFeatureExtractor"})


def hugging_face_folder(folder: Path, mean: float, std: float) -> str:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    config.id2label = {0: "cat", 1: "dog", 2: "bird"}
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    about = {"size": {"height": 16, "width": 16}, "image_mean": [mean] * 3, "image_std": [std] * 3, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    return f"hf/{folder}(pretrained=True)"


def test_a_hugging_face_model_declares_normalisation_and_names(tmp_path: Path) -> None:
    model = vitlab.load(hugging_face_folder(tmp_path, 0.5, 0.25))
    found = preprocessing_of(model)
    assert (found.mean, found.std, found.interpolation) == ((0.5,) * 3, (0.25,) * 3, "bicubic")
    assert found.classes == ("cat", "dog", "bird") and "Hugging Face" in found.source


def test_a_model_that_declares_nothing_is_assumed_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="Linear does not declare its preprocessing; assuming mean=.*preprocessing="):
        found = preprocessing_of(torch.nn.Linear(1, 1), assume={"mean": (0.1,) * 3, "std": (0.2,) * 3})
    assert found.source == "assumed" and found.mean == (0.1,) * 3
    given = preprocessing_of(torch.nn.Linear(1, 1), {"mean": (0.3,) * 3, "std": (0.2,) * 3})
    assert given.mean == (0.3,) * 3 and "given" in given.source


def test_declarations_are_copied_and_not_in_the_state_dict() -> None:
    model = torch.nn.Linear(1, 1)
    before = set(model.state_dict())
    declare(model, mean=(0.1,) * 3, std=(0.2,) * 3, source="test")
    assert declared(copy.deepcopy(model)) == declared(model) == declared(torch.compile(model))
    assert set(model.state_dict()) == before
    with pytest.raises(vitlab.VitlabError, match="no preprocessing setting 'means'"):
        declare(model, means=1)
