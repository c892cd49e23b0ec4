"""Mask R-CNN (He et al. 2017) with a feature pyramid over a backbone, from torchvision's parts.

Images come normalised and in one tensor. torchvision's `GeneralizedRCNNTransform`, which would normalise and resize
them again, is not used: `vitlab.data.detection_transform` alone resizes. Boxes are in pixels of the given images;
`in_image` converts predictions to pixels of the original image.

Shape legend: B batch, H W pixels of a padded image, n predictions, M side of a predicted mask.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool
from torchvision.ops.poolers import initLevelMapper

from vitlab.assemblies.assembly import Assembly, Sides, Taps, Width
from vitlab.assemblies.neck import SCALES, Neck
from vitlab.core.bounds import Range, Share
from vitlab.core.errors import VitlabError

__all__ = ["mask_rcnn"]

Prediction = dict[str, Tensor]

_LEVELS = tuple(str(level) for level in range(len(SCALES)))
_RATIOS = (0.5, 1.0, 2.0)


class MaskRCNN(Assembly):
    """Mask R-CNN over a backbone. See `mask_rcnn`."""

    def __init__(
        self,
        backbone: nn.Module,
        classes: int,
        width: int,
        head: int,
        anchor: int,
        proposals: int,
        samples: int,
        score: float,
        predictions: int,
        size: tuple[int, int] | None,
        taps: Sequence[int] | None,
    ) -> None:
        super().__init__(backbone, size, taps)
        if any(side % SCALES[-1] for side in self.img_size):
            raise VitlabError(f"invalid size={self.img_size}; expected multiples of {SCALES[-1]}, the coarsest scale")
        self.classes = classes
        self.multiple = max(self.multiple, SCALES[-1])
        self.neck = Neck(self.channels, self.strides)
        self.pyramid = FeaturePyramidNetwork(list(self.channels), width, LastLevelMaxPool())
        self.proposer = _proposer(width, anchor, proposals)
        self.heads = RoIHeads(
            _pool(7, anchor),
            TwoMLPHead(width * 7 * 7, head),
            FastRCNNPredictor(head, classes + 1),
            fg_iou_thresh=0.5,
            bg_iou_thresh=0.5,
            batch_size_per_image=samples,
            positive_fraction=0.25,
            bbox_reg_weights=None,
            score_thresh=score,
            nms_thresh=0.5,
            detections_per_img=predictions,
            mask_roi_pool=_pool(14, anchor),
            mask_head=MaskRCNNHeads(width, (width,) * 4, 1),
            mask_predictor=MaskRCNNPredictor(width, width, classes + 1),
        )

    def forward(
        self, images: Tensor, targets: list[dict[str, Tensor]] | None = None, sizes: Tensor | None = None
    ) -> dict[str, Tensor] | list[Prediction]:
        """Losses by name in training mode, predictions otherwise.

        Args:
            images: (B, 3, H, W), normalised.
            targets: the objects of each image in torchvision's format: boxes, labels (1 + class), masks.
            sizes: (B, 2) height and width of each image without padding; default (H, W).

        Returns:
            In training mode torchvision's five losses. In evaluation mode, for each image: boxes (n, 4), labels (n,),
            scores (n,) in descending order, masks (n, 1, M, M), each of which spans its box.
        """
        if self.training and targets is None:
            raise VitlabError("a Mask R-CNN in training mode needs targets; call model.eval() for predictions")
        limits = [tuple(images.shape[-2:])] * len(images) if sizes is None else [tuple(row) for row in sizes.tolist()]
        images = self.padded(images)
        maps = self.neck(self.maps(images))
        features = self.pyramid(OrderedDict(zip(_LEVELS, maps, strict=True)))
        # In bfloat16 a coordinate of a box above 256 would be rounded to more than a pixel.
        with torch.autocast(images.device.type, enabled=False):
            features = OrderedDict((name, each.float()) for name, each in features.items())
            boxes, losses = self.proposer(ImageList(images, limits), features, targets)
            predictions, more = self.heads(features, boxes, limits, targets)
        return {**losses, **more} if self.training else list(predictions)


def mask_rcnn(
    backbone: nn.Module,
    *,
    classes: Annotated[int, Range(1, 20_000)] = 80,
    width: Width = 256,
    head: Width = 1024,
    anchor: Annotated[int, Range(1, 4096)] = 32,
    proposals: Annotated[int, Range(1, 100_000)] = 1000,
    samples: Annotated[int, Range(1, 100_000)] = 512,
    score: Share = 0.05,
    predictions: Annotated[int, Range(1, 100_000)] = 100,
    size: Sides | None = None,
    taps: Taps | None = None,
) -> MaskRCNN:
    """Mask R-CNN with a feature pyramid over the four scales of a plain or hierarchical backbone.

    Args:
        backbone: a model that `describe` supports; it is changed.
        classes: number of classes, without the background.
        width: channels of the feature pyramid and of the mask head.
        head: channels of the box head.
        anchor: side of the smallest anchors in pixels; it doubles from each scale to the next.
        proposals: largest number of proposals per image; twice as many in training.
        samples: proposals per image that the heads are trained on.
        score: smallest score of a prediction.
        predictions: largest number of predictions per image.
        size: (H, W) of the images, multiples of 32; default the backbone's own.
        taps: indices of the four blocks to read; default see `vitlab.assemblies.taps`.
    """
    return MaskRCNN(backbone, classes, width, head, anchor, proposals, samples, score, predictions, size, taps)


def in_image(prediction: Mapping[str, Tensor], resized: Sequence[int], original: Sequence[int]) -> Prediction:
    """Convert a prediction to the original image.

    Args:
        prediction: of `MaskRCNN` for an image.
        resized: height and width of the image that the model saw, without padding.
        original: height and width of the image before it was resized.

    Returns:
        boxes (n, 4) in pixels of the original image, labels, scores, masks (n, height, width) bool.
    """
    height, width = (int(side) for side in original)
    boxes = prediction["boxes"]
    boxes = boxes * boxes.new_tensor([width / int(resized[1]), height / int(resized[0])] * 2)
    masks = torch.zeros(len(boxes), height, width, dtype=torch.bool, device=boxes.device)
    for mask, whole, box in zip(prediction["masks"], masks, boxes.tolist(), strict=True):
        x, columns = _inside(box[0], box[2], width, boxes.device)
        y, rows = _inside(box[1], box[3], height, boxes.device)
        if len(x) and len(y):
            grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
            values = F.grid_sample(mask[None], grid[None], padding_mode="border", align_corners=False)
            whole[rows, columns] = values[0, 0] >= 0.5
    return {**prediction, "boxes": boxes, "masks": masks}


def _inside(low: float, high: float, length: int, device: torch.device) -> tuple[Tensor, slice]:
    """Returns the pixels whose centres are inside a box, along one axis: positions from −1 to 1, and a slice.

    torchvision's `paste_masks_in_image` makes masks a pixel wider than their boxes, which matters in small images.
    """
    first, last = max(0, math.ceil(low - 0.5)), min(length, math.floor(high - 0.5) + 1)
    centres = torch.arange(first, max(first, last), device=device) + 0.5
    return 2 * (centres - low) / max(high - low, 1e-6) - 1, slice(first, max(first, last))


def _proposer(width: int, anchor: int, proposals: int) -> RegionProposalNetwork:
    sides = tuple((anchor << level,) for level in range(len(SCALES) + 1))
    most = {"training": 2 * proposals, "testing": proposals}
    return RegionProposalNetwork(
        AnchorGenerator(sides, (_RATIOS,) * len(sides)),
        RPNHead(width, len(_RATIOS)),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=256,
        positive_fraction=0.5,
        pre_nms_top_n=most,
        post_nms_top_n=most,
        nms_thresh=0.7,
    )


def _pool(side: int, anchor: int) -> MultiScaleRoIAlign:
    """RoI pooling at fixed scales; torchvision would guess them from the first image, which padding may mislead."""
    canonical = 7 * anchor  # 224 pixels for anchors from 32: a box of this side is read at the third scale
    pool: Any = MultiScaleRoIAlign(list(_LEVELS), side, sampling_ratio=2, canonical_scale=canonical)
    pool.scales = [1 / scale for scale in SCALES]
    pool.map_levels = initLevelMapper(2, 1 + len(SCALES), canonical_scale=canonical)
    return pool
