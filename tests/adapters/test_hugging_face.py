"""A bare Hugging Face model and its wrappers have the same blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import redraw
from cases.others import VIT, hugging_face
from vitlab.adapters import hf_vilt

SMALL = {**VIT, "intermediate_size": 48}
CLIP = {"vision_config": SMALL, "text_config": {**SMALL, "vocab_size": 50}}
VILT = {**SMALL, "vocab_size": 50}


@pytest.mark.parametrize(
    ("model", "config", "settings", "prefix"),
    [
        ("ViTModel", "ViTConfig", SMALL, ""),
        ("ViTForImageClassification", "ViTConfig", SMALL, "vit."),
        ("Dinov2Model", "Dinov2Config", VIT, ""),
        ("Dinov2ForImageClassification", "Dinov2Config", {**VIT, "use_swiglu_ffn": True}, "dinov2."),
        ("CLIPVisionModel", "CLIPVisionConfig", SMALL, ""),
        ("CLIPVisionModelWithProjection", "CLIPVisionConfig", SMALL, "vision_model."),
        ("CLIPForImageClassification", "CLIPConfig", CLIP, "vision_model."),
        ("CLIPModel", "CLIPConfig", CLIP, "vision_model."),
        ("ViltModel", "ViltConfig", VILT, ""),
        ("ViltForMaskedLM", "ViltConfig", VILT, "vilt."),
        ("ViltForQuestionAnswering", "ViltConfig", VILT, "vilt."),
    ],
)
def test_wrappers(model: str, config: str, settings: dict[str, object], prefix: str) -> None:
    anatomy = vitlab.describe(hugging_face(model, config, **settings)(), 32)
    assert len(anatomy.blocks) == VIT["num_hidden_layers"]
    # Older versions of transformers have one more wrapper around the vision half of CLIP.
    assert all(block.name.startswith((prefix, "vision_model.")) for block in anatomy.blocks)
    assert anatomy.seams == ("attn.in", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")
    layout = anatomy.blocks[0].mixer.queries
    assert layout.tokens - layout.prefix == 16
    assert layout.prefix == (1 + hf_vilt._TEXT if model.startswith("Vilt") else 1)


class Scaling(nn.Module):
    """Scales each channel by a different factor, which a norm does not cancel."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.arange(x.shape[-1])


SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}


def _images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seam", ["block.out", "stage.out"])
def test_parts_reach_hidden_states(seam: str) -> None:
    model = redraw(hugging_face("ViTModel", "ViTConfig", **SMALL)()).eval()
    with torch.no_grad():
        plain = model(_images(), output_hidden_states=True).hidden_states  # transformers hooks its layers here
        last = vitlab.describe(model, 32).blocks[-1]
        vitlab.retrofit(model, Scaling(), at=seam, blocks=[last.name], input_size=32)
        found = model(_images(), output_hidden_states=True).hidden_states
    torch.testing.assert_close(found[-1], Scaling()(plain[-1]))


@pytest.mark.parametrize("seam", ["block.out", "stage.out"])
def test_parts_reach_the_feature_maps_of_a_plain_backbone(seam: str) -> None:
    settings = {**VIT, "out_features": ["stage1", "stage3"], "apply_layernorm": False}
    model = redraw(hugging_face("Dinov2Backbone", "Dinov2Config", **settings)()).eval()
    with torch.no_grad():
        plain = model(_images()).feature_maps[-1]
        last = vitlab.describe(model, 32).blocks[-1]
        vitlab.retrofit(model, Scaling(), at=seam, blocks=[last.name], input_size=32)
        found = model(_images()).feature_maps[-1]
    torch.testing.assert_close(found, plain * torch.arange(plain.shape[1])[:, None, None])
    assert torch.equal(vitlab.restore(model)(_images()).feature_maps[-1], plain)


def test_parts_reach_the_feature_maps_of_swin() -> None:
    model = redraw(hugging_face("SwinBackbone", "SwinConfig", **SWIN, out_features=["stage1", "stage2"])()).eval()
    before: list[Tensor] = []
    with torch.no_grad():
        model(_images())  # transformers hooks its stages here
        ends = [block for block in vitlab.describe(model, 32).blocks if block.seam("stage.out")]
        vitlab.retrofit(model, Scaling(), at="stage.out", input_size=32)
        for block in ends:  # the end of a stage, before the part that is applied last
            module = model.get_submodule(block.seam("stage.out").path)
            module.register_forward_hook(lambda module, given, output: before.append(_first(output)), prepend=True)
        maps = model(_images()).feature_maps
        expected = [norm(Scaling()(x)) for norm, x in zip(model.hidden_states_norms.values(), before, strict=True)]
    for found, tokens in zip(maps, expected, strict=True):
        torch.testing.assert_close(found, tokens.mT.reshape(found.shape))


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("settings", [{"image_size": 32}, {"image_size": 8}], ids=["larger", "smaller than a window"])
def test_maps_of_a_swin_backbone_equal_those_of_transformers(settings: dict[str, object]) -> None:
    """A backbone splits every map into windows, also one that is smaller than a window."""
    model = hugging_face(
        "SwinBackbone", "SwinConfig", **{**SWIN, **settings}, out_features=["stage2"], attn_implementation="eager"
    )()
    model = redraw(model).eval()
    images = _images()[..., : settings["image_size"], : settings["image_size"]]
    with torch.no_grad(), vitlab.record(model, input_size=settings["image_size"]) as tape:
        returned: list[Tensor] = []
        for block in tape.anatomy.blocks:  # eager attention returns its softmax
            attention = model.get_submodule(block.mixer.path)
            attention.register_forward_hook(lambda module, given, output: returned.append(output[1]))
        model(images)
    for block, expected in zip(tape.anatomy.blocks, returned, strict=True):
        weights, layout = tape[block.name], block.mixer.queries
        torch.testing.assert_close(weights, expected)
        assert weights.shape[0] == 2 * layout.windows
        assert layout.permutation == () or weights.shape[-1] * layout.windows == layout.tokens


def test_the_pooling_head_of_siglip_is_not_counted() -> None:
    model = redraw(
        hugging_face("SiglipVisionModel", "SiglipVisionConfig", **{**SMALL, "num_hidden_layers": 4})()
    ).eval()
    vitlab.retrofit(model, Scaling(), at="block.out", blocks="upper", input_size=32)
    names = [name for name, module in model.named_modules() if isinstance(module, Scaling)]
    assert names == [f"encoder.layers.{i}.vitlab_scaling" for i in (2, 3)]
    with torch.no_grad(), vitlab.record(model, input_size=32) as tape:
        model(_images())
    assert len(tape) == 4 and all((tape[name].sum(-1) - 1).abs().max() < 1e-5 for name in tape)
    with pytest.raises(vitlab.VitlabError, match="one learned query"):
        tape["head"]


def _vitmae() -> nn.Module:
    return redraw(hugging_face("ViTMAEModel", "ViTMAEConfig", **SMALL, mask_ratio=0.0)()).eval()


def test_the_shuffled_patches_of_vitmae_have_no_known_order() -> None:
    model = _vitmae()
    assert all(block.mixer.queries.shuffled for block in vitlab.describe(model, 32).blocks)
    with pytest.raises(vitlab.VitlabError, match="shuffles its patches"):
        vitlab.measure("attention_distance", model, [_images()])
    with pytest.raises(vitlab.VitlabError, match="feature maps"):
        vitlab.measure("feature_fourier", model, [_images()])
    with pytest.raises(vitlab.VitlabError, match="shuffles its patches"):
        vitlab.retrofit(model, "TokenAwarePooling(branches=2)", at="attn.in", input_size=32)
    vitlab.retrofit(model, "ContextBroadcast()", at="mlp.out", input_size=32)  # no order is needed
    assert vitlab.measure("attention_entropy", model, [_images()]).values["mean"].shape == (3, 3)


def test_layers_without_shuffling_keep_their_order() -> None:
    """ViTMAE's decoder restores the order of the patches."""
    decoder = {"decoder_hidden_size": 24, "decoder_num_attention_heads": 3, "decoder_num_hidden_layers": 2}
    model = hugging_face("ViTMAEForPreTraining", "ViTMAEConfig", **SMALL, **decoder, mask_ratio=0.0)()
    layouts = [block.mixer.queries for block in vitlab.describe(redraw(model).eval(), 32).blocks]
    assert [layout.permutation for layout in layouts] == [()] * 3 + [None] * 2


@pytest.mark.parametrize(
    ("model", "config", "settings", "message"),
    [
        ("VideoMAEModel", "VideoMAEConfig", SMALL, "takes videos, not images"),
        ("ImageGPTModel", "ImageGPTConfig", {"n_embd": 24, "n_layer": 1, "n_head": 3}, "takes input_ids, not images"),
    ],
)
def test_models_that_do_not_take_images_raise_with_that_reason(
    model: str, config: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(vitlab.VitlabError, match=message) as refused:
        vitlab.describe(hugging_face(model, config, **settings)())
    assert "input_size" not in str(refused.value)
