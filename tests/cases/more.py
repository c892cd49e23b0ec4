"""Tiny models of the families that were added from the scan of timm's and Hugging Face's models."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cases import Case, timm_model
from cases.others import VIT, hugging_face

SWIN = {
    "image_size": (16, 32),
    "patch_size": 2,
    "embed_dim": 12,
    "depths": [2, 2],
    "num_heads": [2, 2],
    "window_size": 4,
    "num_labels": 7,
}
LEVIT = {
    "image_size": 80,
    "hidden_sizes": [160, 176, 192],
    "num_attention_heads": [4, 4, 4],
    "depths": [2, 1, 1],
    "key_dim": [16, 16, 16],
    "num_labels": 7,
}
MOBILE = {"hidden_sizes": [12, 16, 24], "neck_hidden_sizes": [8, 8, 8, 12, 16, 24, 32], "num_labels": 7}


class GainCase(Case):
    """Weights of unit gain: in convolutional networks the image hardly reaches the logits with the usual small ones."""

    def model(self, seed: int = 0) -> nn.Module:
        model = super().model(seed)
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    module.weight.mul_(1.4 / 0.05 / module.weight[0].numel() ** 0.5)
        return model


class PatchCase(Case):
    """SigLIP 2 takes the patches of an image, their mask and the grid."""

    def inputs(self, seed: int = 1, batch: int = 2) -> dict[str, Tensor]:
        h, w = self.size[0] // 8, self.size[1] // 8
        images = super().inputs(seed, batch)[""]
        patches = images.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 4, 5, 1).reshape(batch, h * w, -1)
        mask = torch.ones(batch, h * w, dtype=torch.long)
        return {"pixel_values": patches, "pixel_attention_mask": mask, "spatial_shapes": torch.tensor([[h, w]] * batch)}


def constructed(module: str, name: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of a class of timm's, whose entry points fix the sizes."""

    def build() -> nn.Module:
        import importlib

        return getattr(importlib.import_module(f"timm.models.{module}"), name)(num_classes=7, **settings)

    return build


def naflexvit() -> nn.Module:
    from timm.models.naflexvit import NaFlexVit, NaFlexVitCfg

    cfg = NaFlexVitCfg(patch_size=8, embed_dim=24, depth=3, num_heads=3, reg_tokens=2, pos_embed_grid_size=(4, 6))
    return NaFlexVit(cfg, num_classes=7)


def mobilevit() -> nn.Module:
    from timm.models.byobnet import ByobNet
    from timm.models.mobilevit import model_cfgs

    return ByobNet(model_cfgs["mobilevit_xxs"], num_classes=7)


TINY_VIT = {"embed_dims": (8, 16, 24), "depths": (1, 2, 2), "num_heads": (1, 2, 3), "window_sizes": (4, 4, 2)}
HIERADET = {
    "embed_dim": 16,
    "num_heads": 1,
    "patch_kernel": (7, 7),
    "patch_stride": (4, 4),
    "patch_padding": (3, 3),
    "stages": (1, 2, 1),
    "q_pool": 2,
    "q_stride": (2, 2),
    "window_spec": (4, 4, 2),
    "global_att_blocks": (2,),
    "global_pos_size": (4, 4),
}
FOCALNET = {"embed_dim": 16, "depths": (1, 2), "focal_levels": (2, 2), "focal_windows": (3, 3)}
EDGENEXT = {
    "dims": (16, 24, 32, 48),
    "depths": (1, 2, 2, 2),
    "global_block_counts": (0, 1, 1, 1),
    "kernel_sizes": (3, 5, 7, 9),
    "d2_scales": (2, 2, 3, 4),
    "heads": (4, 4, 4, 4),
}

CASES = [
    Case("hf_swinv2", hugging_face("Swinv2ForImageClassification", "Swinv2Config", **SWIN), (16, 32)),
    Case(
        "hf_swin",
        hugging_face("DonutSwinModel", "DonutSwinConfig", **{k: v for k, v in SWIN.items() if k != "num_labels"}),
        (16, 32),
        classifier=False,
    ),
    Case(
        "hf_siglip",
        hugging_face("SiglipVisionModel", "SiglipVisionConfig", **VIT, intermediate_size=48),
        classifier=False,
    ),
    PatchCase(
        "hf_siglip2",
        hugging_face(
            "Siglip2VisionModel",
            "Siglip2VisionConfig",
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=48,
            patch_size=8,
            num_patches=16,
        ),
        (32, 48),
        classifier=False,
    ),
    Case(
        "hf_dpt",
        hugging_face("DPTModel", "DPTConfig", **VIT, intermediate_size=48, backbone_out_indices=[0, 1, 2]),
        classifier=False,
    ),
    Case(
        "hf_data2vec",
        hugging_face(
            "Data2VecVisionForImageClassification",
            "Data2VecVisionConfig",
            **VIT,
            intermediate_size=48,
            layer_scale_init_value=1.0,
        ),
    ),
    Case(
        "hf_yolos",
        hugging_face(
            "YolosForObjectDetection",
            "YolosConfig",
            **{**VIT, "image_size": [32, 48]},
            intermediate_size=48,
            num_detection_tokens=3,
        ),
        (32, 48),
        classifier=False,
    ),
    Case("hf_levit", hugging_face("LevitForImageClassification", "LevitConfig", **LEVIT), (80, 80)),
    GainCase("hf_mobilevit", hugging_face("MobileViTForImageClassification", "MobileViTConfig", **MOBILE), (64, 128)),
    GainCase("mobilevit", mobilevit, (64, 128)),
    GainCase("tiny_vit", constructed("tiny_vit", "TinyVit", **TINY_VIT), (64, 32)),
    Case("hieradet", constructed("hieradet_sam2", "HieraDet", **HIERADET), (64, 32)),
    Case("focalnet", constructed("focalnet", "FocalNet", **FOCALNET), (32, 48)),
    GainCase("edgenext", constructed("edgenext", "EdgeNeXt", **EDGENEXT), (64, 96)),
    GainCase("efficientvit", timm_model("efficientvit_b0", widths=(8, 16, 16, 32, 32), depths=(1, 1, 1, 1)), (64, 96)),
    GainCase("efficientvit_msra", timm_model("efficientvit_m0"), (224, 224)),
    Case("naflexvit", naflexvit, (32, 48)),
    Case("vit", timm_model("vitamin_small_224", img_size=64, depth=2, fc_norm=False), (64, 64)),
    GainCase("resnet", timm_model("res2net50_14w_8s", layers=(1, 1, 1, 1)), (32, 64)),
]
