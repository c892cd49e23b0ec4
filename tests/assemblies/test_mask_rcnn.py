"""Mask R-CNN against torchvision's own class with the same modules, over plain and hierarchical backbones."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN as Reference
from torchvision.models.detection.roi_heads import paste_masks_in_image

import vitlab
from cases import redraw
from vitlab.assemblies.mask_rcnn import MaskRCNN, in_image
from vitlab.core.errors import VitlabError
from vitlab.data.detection_sets import open_detection

VIT = "timm/vit_tiny_patch16_224(img_size=64, patch_size=8, embed_dim=24, depth=4, num_heads=3)"
SWIN = (
    "timm/swin_tiny_patch4_window7_224(img_size=64, window_size=4, embed_dim=8, depths=(1, 1, 2, 1),"
    " num_heads=(1, 2, 2, 2))"
)
PVT = "timm/pvt_v2_b0(embed_dims=(8, 8, 16, 16), num_heads=(1, 2, 2, 2), depths=(1, 1, 1, 1))"
SETTINGS = "classes=5, width=16, head=32, anchor=16, proposals=40, samples=32, size=(64, 64)"


def detector(backbone: str = VIT, settings: str = SETTINGS, parts: str = "") -> Any:
    return redraw(vitlab.load(f"vitlab/mask_rcnn(backbone={backbone!r}, {settings}){parts}", seed=0))


def scenes(count: int = 2, size: int = 64) -> tuple[Tensor, list[dict[str, Tensor]]]:
    data = open_detection(f"scenes(train={count}, test=1, labels='shape')", image_size=size).to_train_on()
    found = [data[i] for i in range(count)]
    images = torch.stack([each.pixels for each in found if each is not None]).float() / 128 - 1
    names = ("boxes", "labels", "masks")
    return images, [{name: getattr(each, name) for name in names} for each in found]


def losses(model: nn.Module, *arguments: Any) -> dict[str, Tensor]:
    torch.manual_seed(3)  # proposals are sampled
    found: dict[str, Tensor] = model(*arguments)
    return found


class Features(nn.Module):
    """The backbone with neck and pyramid, as torchvision's classes expect it."""

    def __init__(self, model: MaskRCNN) -> None:
        super().__init__()
        self.model, self.out_channels = model, 16

    def forward(self, images: Tensor) -> OrderedDict[str, Tensor]:
        maps = self.model.neck(self.model.maps(images))
        features: OrderedDict[str, Tensor] = self.model.pyramid(OrderedDict(zip("0123", maps, strict=True)))
        return features


def reference(model: MaskRCNN) -> Reference:
    """torchvision's class around the same modules; its transform neither normalises nor resizes."""
    found = Reference(
        Features(model),
        None,
        min_size=64,
        max_size=64,
        image_mean=[0.0] * 3,
        image_std=[1.0] * 3,
        rpn_anchor_generator=model.proposer.anchor_generator,
        rpn_head=model.proposer.head,
        rpn_pre_nms_top_n_train=80,
        rpn_pre_nms_top_n_test=40,
        rpn_post_nms_top_n_train=80,
        rpn_post_nms_top_n_test=40,
        box_roi_pool=model.heads.box_roi_pool,
        box_head=model.heads.box_head,
        box_predictor=model.heads.box_predictor,
        box_batch_size_per_image=32,
        mask_roi_pool=model.heads.mask_roi_pool,
        mask_head=model.heads.mask_head,
        mask_predictor=model.heads.mask_predictor,
    )
    found.train(model.training)
    found.transform.eval()  # in training mode it draws a size at random
    model.neck.eval()
    model.backbone.eval()
    return found


@pytest.mark.parametrize("backbone", [VIT, SWIN, PVT], ids=["plain", "swin", "pvt"])
def test_losses_and_predictions_are_those_of_torchvision(backbone: str) -> None:
    model = detector(backbone)
    images, targets = scenes()
    other = reference(model)  # neck and backbone in evaluation mode: no batch statistics that differ between calls
    own = losses(model, images, targets)
    expected = losses(other, list(images), targets)
    assert own.keys() == expected.keys() and len(own) == 5
    for name, value in own.items():
        torch.testing.assert_close(value, expected[name])
        assert float(value) > 0
    model.eval()
    with torch.no_grad():
        predictions, others = model(images), reference(model)(list(images))
    assert sum(len(each["boxes"]) for each in predictions) > 0
    for prediction, other in zip(predictions, others, strict=True):
        for name in ("boxes", "labels", "scores"):
            torch.testing.assert_close(prediction[name], other[name])
        torch.testing.assert_close(
            paste_masks_in_image(prediction["masks"], prediction["boxes"], (64, 64)), other["masks"]
        )


def test_every_parameter_has_a_gradient_even_without_objects() -> None:
    """DDP waits for the gradient of every parameter that needs one."""
    for backbone in (VIT, SWIN):
        model = detector(backbone)
        images, targets = scenes()
        empty = [{name: value[:0] for name, value in target.items()} for target in targets]
        for given in (targets, empty):
            model.zero_grad(set_to_none=True)
            torch.stack(list(losses(model, images, given).values())).sum().backward()
            assert not [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]


def test_proposals_and_boxes_stay_inside_the_images_without_padding() -> None:
    model = detector(settings=SETTINGS.replace("size=(64, 64)", "size=(64, 96)")).eval()
    images = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(1))
    sizes = torch.tensor([[64, 50], [40, 96]])
    for (height, width), prediction in zip(sizes.tolist(), model(images, sizes=sizes), strict=True):
        assert len(prediction["boxes"]) > 0
        assert prediction["boxes"][:, [0, 2]].max() <= width and prediction["boxes"][:, [1, 3]].max() <= height


def test_images_of_any_size_with_a_backbone_that_takes_them() -> None:
    """Multi-scale training: position embeddings are interpolated; sides are padded to multiples of 32."""
    model = detector(VIT.replace("num_heads=3", "num_heads=3, dynamic_img_size=True"))
    for size in ((96, 64), (64, 128), (70, 90)):
        images = torch.randn(1, 3, *size)
        _, targets = scenes(1)
        masks = torch.zeros(len(targets[0]["labels"]), *size, dtype=torch.uint8)
        masks[:, :64, :64] = targets[0]["masks"]
        found = losses(model, images, [{**targets[0], "masks": masks}])
        assert all(bool(torch.isfinite(value)) for value in found.values())


def test_a_prediction_in_its_original_image() -> None:
    """A full mask of a box in an image that was enlarged twice in height and not in width."""
    prediction = {
        "boxes": torch.tensor([[4.0, 8.0, 12.0, 24.0]]),
        "labels": torch.tensor([3]),
        "scores": torch.tensor([0.7]),
        "masks": torch.ones(1, 1, 28, 28),
    }
    found = in_image(prediction, (64, 32), (32, 32))
    assert found["boxes"].tolist() == [[4.0, 4.0, 12.0, 12.0]]
    expected = torch.zeros(1, 32, 32, dtype=torch.bool)
    expected[0, 4:12, 4:12] = True
    assert torch.equal(found["masks"], expected)


def test_a_half_mask_fills_half_of_its_box() -> None:
    """Boxes between pixels, and outside of the image: pixels whose centre is inside belong to the mask."""
    masks = torch.zeros(2, 1, 28, 28)
    masks[0, 0, :, :14] = 1
    masks[1] = 1
    boxes = torch.tensor([[3.6, 2.0, 11.6, 6.0], [-5.0, -5.0, 2.4, 40.0]])
    prediction = {"boxes": boxes, "labels": torch.ones(2), "scores": torch.ones(2), "masks": masks}
    found = in_image(prediction, (16, 16), (16, 16))["masks"]
    assert found[0].nonzero().tolist() == [[y, x] for y in range(2, 6) for x in range(4, 8)]
    assert found[1].nonzero().tolist() == [[y, x] for y in range(16) for x in range(2)]


def test_heads_compute_in_float32_under_autocast() -> None:
    """A box at x = 500.4 is not representable in bfloat16."""
    model = detector(settings=SETTINGS.replace("size=(64, 64)", "size=(64, 512)")).eval()
    images = torch.randn(1, 3, 64, 512, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        (prediction,) = model(images)
    right = prediction["boxes"][prediction["boxes"][:, 0] > 256]
    assert prediction["boxes"].dtype == torch.float32 and len(right) > 0
    assert (right != right.bfloat16().float()).any()


# -- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["ContextBroadcast(blocks='not-tapped')", "TokenAwarePooling(blocks='not-tapped')"])
def test_parts_go_into_the_backbone_and_out_again(part: str) -> None:
    deep = VIT.replace("depth=4", "depth=8")
    model = detector(deep).eval()
    images, _ = scenes()
    with torch.no_grad():
        before = model(images)
        vitlab.retrofit(model, part)
        fitted = vitlab.parts(model)
        changed = model(images)
        vitlab.restore(model)
        after = model(images)
    tapped = set(vitlab.describe(model).tapped)
    assert len(tapped) == 4 and len(fitted) == 4
    assert not {each.block for each in fitted} & tapped
    for one, two, three in zip(before, after, changed, strict=True):
        assert all(torch.equal(one[name], two[name]) for name in one)
        assert len(one["scores"]) != len(three["scores"]) or not torch.equal(one["scores"], three["scores"])


def test_a_part_with_a_grid_refuses_images_of_another_shape() -> None:
    """32x128 images have as many tokens as 64x64, in another arrangement: the numbers would be wrong silently."""
    deep = VIT.replace("depth=4", "depth=8").replace("num_heads=3", "num_heads=3, dynamic_img_size=True")
    model = detector(deep, parts=" | TokenAwarePooling(blocks='not-tapped')").eval()
    assert len(model(torch.zeros(1, 3, 64, 64))) == 1
    with pytest.raises(
        VitlabError, match=r"was inserted for a grid of 8x8 tokens, which 32x128 images do not have"
    ) as error:
        model(torch.zeros(1, 3, 32, 128))
    assert "\n" not in str(error.value)
    model = detector(deep, parts=" | ContextBroadcast(blocks='not-tapped')").eval()
    assert len(model(torch.zeros(1, 3, 32, 128))) == 1


def test_attention_of_the_backbone_is_recorded() -> None:
    model = detector().eval()
    with vitlab.record(model, "attention") as tape:
        model(scenes()[0])
    assert all(tape[f"backbone.blocks.{i}"].shape == (2, 3, 65, 65) for i in range(4))


# -- errors -----------------------------------------------------------------------------------------------------------


def test_errors_are_one_line() -> None:
    with pytest.raises(VitlabError, match="in training mode needs targets; call model.eval"):
        detector()(torch.zeros(1, 3, 64, 64))
    with pytest.raises(VitlabError, match=r"invalid size=\(40, 64\); expected multiples of 32"):
        detector(settings=SETTINGS.replace("size=(64, 64)", "size=(40, 64)"))
    with pytest.raises(VitlabError, match="did you mean 'classes'"):
        detector(settings="clases=4")


def test_the_losses_of_one_image_fall_by_half_in_25_steps() -> None:
    model = detector(settings=SETTINGS.replace("samples=32", "samples=64"))
    images, targets = scenes(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    totals = []
    for _ in range(25):
        total = torch.stack(list(losses(model, images, targets).values())).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        totals.append(total.item())
    assert totals[-1] < 0.5 * totals[0]
