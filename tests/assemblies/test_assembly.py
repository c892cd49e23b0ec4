"""Assemblies over the backbones of every family: maps, gradients, copies, compilation, descriptions and parts."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionViT

import vitlab
from cases import Case, redraw
from cases.everything import CASES
from vitlab.assemblies.assembly import Assembly
from vitlab.assemblies.segformer import segformer
from vitlab.assemblies.upernet import upernet
from vitlab.core.errors import VitlabError
from vitlab.models.alternet import alternet50
from vitlab.models.fan import fan_tiny_hybrid
from vitlab.preprocessing.resolution import input_size, normalisation_of

VIT = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=12, num_heads=3)"
SWIN = "timm/swin_tiny_patch4_window7_224(img_size=64, embed_dim=8, depths=(1, 1, 2, 1), num_heads=(1, 2, 2, 2))"


def images(height: int, width: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


def tiny(text: str = VIT, size: tuple[int, int] = (32, 48), **settings: object) -> Assembly:
    settings = {"classes": 5, "width": 16, "auxiliary_width": 8, "size": size, **settings}
    model = upernet(vitlab.load(text, seed=0), **settings)  # type: ignore[arg-type]
    redraw(model)
    return model


@pytest.mark.parametrize("case", [case for case in CASES if case.takes_images], ids=lambda case: case.family)
def test_every_family_can_be_a_backbone(case: Case) -> None:
    """All trained parameters get a gradient (DDP needs it), and the description has the paths of the assembly."""
    model = upernet(case.build(), classes=3, width=8, auxiliary_width=4, size=case.size)
    output = model(images(*case.size))
    assert output["out"].shape == output["aux"].shape == (2, 3, *case.size)
    (output["out"].sum() + output["aux"].sum()).backward()
    assert not [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]
    anatomy = vitlab.describe(model)
    modules = dict(model.named_modules())
    assert anatomy.family == case.family and anatomy.input_size == case.size
    assert all(seam.path in modules for block in anatomy.blocks for seam in (*block.seams, *block.taps))
    assert set(anatomy.tapped) <= {block.name for block in anatomy.blocks}


@pytest.mark.parametrize("case", [case for case in CASES if not case.takes_images], ids=lambda case: case.family)
def test_a_backbone_that_needs_more_than_images_is_an_error(case: Case) -> None:
    with pytest.raises(VitlabError, match="UperNet needs a model that takes images alone") as caught:
        upernet(case.build(), classes=3, width=8, size=case.size)
    assert "\n" not in str(caught.value) and all(name in str(caught.value) for name in case.inputs())


def test_taps_of_a_plain_vit_equal_timm_intermediates() -> None:
    model = tiny().eval()
    batch = images(32, 48)
    expected = model.backbone.forward_intermediates(batch, indices=[3, 5, 7, 11], intermediates_only=True)
    for own, other in zip(model.maps(batch), expected, strict=True):
        assert torch.equal(own, other)


def test_taps_of_a_hierarchical_model_equal_timm_intermediates() -> None:
    model = tiny(SWIN, (64, 64)).eval()
    batch = images(64, 64)
    expected = model.backbone.forward_intermediates(batch, indices=4, intermediates_only=True)
    for own, other in zip(model.maps(batch), expected, strict=True):
        assert torch.equal(own, other)


def test_taps_of_fan_hybrid_are_those_of_tapadl() -> None:
    """Two stem stages, the last block, and the patch tokens after both class attention blocks."""
    backbone = redraw(fan_tiny_hybrid(embed_dim=16, depth=3, num_heads=2, stem_dims=(8, 12), stem_depths=(1, 1)))
    model = segformer(backbone, classes=3, width=8, size=(64, 96)).eval()
    batch = images(64, 96)
    expected = model.backbone.forward_intermediates(batch, indices=[0, 1, 4, 5], intermediates_only=True)
    assert [tuple(each.shape[1:]) for each in expected] == [(8, 16, 24), (12, 8, 12), (16, 4, 6), (16, 4, 6)]
    for own, other in zip(model.maps(batch), expected, strict=True):
        torch.testing.assert_close(own, other)


def test_taps_of_tiny_vit_are_those_of_timm() -> None:
    """The convolutional stage, then the three stages of attention."""
    size = "embed_dims=(8, 16, 24, 32), depths=(1, 1, 2, 1), num_heads=(1, 2, 3, 4), window_sizes=(4, 4, 4, 4)"
    model = upernet(vitlab.load(f"timm/tiny_vit_5m_224({size})", seed=0), classes=3, width=8, size=(64, 96)).eval()
    assert model.strides == (4, 8, 16, 32)
    batch = images(64, 96)
    expected = model.backbone.forward_intermediates(batch, indices=[0, 1, 2, 3], intermediates_only=True)
    for own, other in zip(model.maps(batch), expected, strict=True):
        torch.testing.assert_close(own, other)


def test_taps_of_alternet_are_the_ends_of_its_stages() -> None:
    model = upernet(alternet50(width=8, depths=(2, 2, 2, 2), plan=(0, 1, 1, 1)), classes=3, width=8, size=(64, 64))
    assert model.strides == (4, 8, 16, 32)
    model.eval()
    x = model.backbone.stem(images(64, 64))
    for stage, own in zip(model.backbone.stages, model.maps(images(64, 64)), strict=True):
        x = stage(x)
        assert torch.equal(own, x)


def test_images_whose_sides_are_not_multiples_of_the_patch_are_padded() -> None:
    """The backbone sees zeros at the bottom and right; logits have the size of the images."""
    model = tiny(size=(36, 44)).eval()
    batch = images(36, 44)
    assert model.backbone_size((36, 44)) == (40, 48) and model(batch).shape == (2, 5, 36, 44)
    padded = torch.zeros(2, 3, 40, 48)
    padded[..., :36, :44] = batch
    logits = model.scores(padded)[0]
    enlarged = nn.functional.interpolate(logits, (40, 48), mode="bilinear", align_corners=False)
    torch.testing.assert_close(model(batch), enlarged[..., :36, :44])


def test_position_embeddings_are_interpolated() -> None:
    """A backbone of another size keeps its embeddings where the grid does not change."""
    plain = vitlab.load(VIT, seed=0)
    position = plain.pos_embed.detach().clone()
    same, other = tiny(size=(32, 32)), upernet(vitlab.load(VIT, seed=0), classes=2, size=(64, 48))
    assert same.backbone.pos_embed.shape == position.shape
    assert other.backbone.pos_embed.shape == (1, 1 + 8 * 6, 24)
    torch.testing.assert_close(other.backbone.pos_embed[:, :1], position[:, :1])


def test_a_backbone_of_fixed_size_names_the_setting_for_another() -> None:
    backbone = TorchvisionViT(image_size=32, patch_size=8, num_layers=4, num_heads=3, hidden_dim=24, mlp_dim=48)
    with pytest.raises(VitlabError, match=r"build the backbone with img_size=\(64, 64\)") as caught:
        upernet(backbone, size=(64, 64))
    assert "\n" not in str(caught.value)


def test_copies_have_hooks_of_their_own() -> None:
    model = tiny().eval()
    before = model(images(32, 48))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for parameter in model.parameters():
            parameter.data.zero_()
        torch.testing.assert_close(other(images(32, 48)), before)
        model.load_state_dict(other.state_dict())


def test_checkpointing_gives_the_same_gradients() -> None:
    gradients = []
    for checkpointing in (False, True):
        model = tiny().eval()
        model.backbone.set_grad_checkpointing(checkpointing)
        model(images(32, 48)).square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        assert all(tap.value is None for tap in model.taps)
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.slow
def test_the_model_compiles_as_one_graph() -> None:
    model = tiny().eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images(32, 48)), model(images(32, 48)))


# -- parts and recording -----------------------------------------------------------------------------------------------


def test_parts_go_into_blocks_that_do_not_feed_the_neck() -> None:
    model = tiny().eval()
    vitlab.retrofit(model, "ContextBroadcast", blocks="not-tapped")
    blocks = {part.block for part in vitlab.parts(model)}
    assert blocks == {f"backbone.blocks.{index}" for index in range(12)} - {
        f"backbone.blocks.{index}" for index in (3, 5, 7, 11)
    }


def test_not_tapped_needs_an_assembly() -> None:
    with pytest.raises(VitlabError, match="not an assembly"):
        vitlab.retrofit(vitlab.load(VIT), "ContextBroadcast", blocks="not-tapped")


def test_a_part_at_a_tap_changes_the_map() -> None:
    """The neck reads the output of a part at `block.out`."""
    model = tiny().eval()
    plain = [each.clone() for each in model.maps(images(32, 48))]
    vitlab.retrofit(model, Zero(), at="block.out", blocks=["backbone.blocks.11"])
    maps = model.maps(images(32, 48))
    assert torch.equal(maps[2], plain[2]) and not maps[3].any()
    vitlab.restore(model)
    assert torch.equal(model.maps(images(32, 48))[3], plain[3])


class Zero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def test_parts_in_a_trained_backbone_keep_their_weights_at_another_size() -> None:
    """A part that depends on the grid is rebuilt for the new grid."""
    backbone = vitlab.load(VIT + " | TokenAwarePooling(branches=2) | ScaledContextBroadcast(blocks='upper')", seed=0)
    redraw(backbone)
    before = {name: each.clone() for name, each in backbone.state_dict().items() if "vitlab_" in name}
    model = upernet(backbone, classes=2, width=8, size=(48, 64))
    after = {name: each for name, each in model.backbone.state_dict().items() if "vitlab_" in name}
    assert before.keys() == after.keys() and all(torch.equal(after[name], before[name]) for name in before)
    assert len(vitlab.parts(model)) == 18 and model(images(48, 64))["out"].shape == (2, 2, 48, 64)


def test_attention_of_the_backbone_is_recorded() -> None:
    model = tiny().eval()
    with vitlab.record(model, "attention") as tape:
        model(images(32, 48))
    assert tape["backbone.blocks.0"].shape == (2, 3, 25, 25)


def test_preprocessing_is_that_of_the_backbone() -> None:
    model = tiny().eval()
    assert normalisation_of(model) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)) and input_size(model) == (32, 48)
