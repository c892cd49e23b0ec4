"""Tiny models without timm's attention: all-MLP, pooling and convolutional ones, torchvision's and Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cases import Case, timm_model

MIXER = {"img_size": (32, 48), "patch_size": 8, "embed_dim": 24, "num_blocks": 3, "num_classes": 7}
META = {"depths": (1, 2), "dims": (16, 32), "num_classes": 7}
RESNET = {"layers": (1, 1, 1, 1), "channels": (32, 32, 64, 64)}  # narrower ones hardly see the image
SWIN = {
    "patch_size": [2, 2],
    "embed_dim": 12,
    "depths": [2, 2],
    "num_heads": [2, 2],
    "window_size": [4, 4],
    "num_classes": 7,
}
VIT = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_labels": 7,
    "image_size": 32,
    "patch_size": 8,
}


class ShuffledCase(Case):
    """ViLT shuffles its patches in every forward; here always in the same order, so that logits can be compared."""

    def logits(self, model: nn.Module, seed: int = 1) -> Tensor:
        torch.manual_seed(0)
        return super().logits(model, seed)


def timm_mixer(block: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of timm's `MlpMixer`, whose entry points fix the size."""

    def build() -> nn.Module:
        from timm.models import mlp_mixer

        return mlp_mixer.MlpMixer(**MIXER, block_layer=getattr(mlp_mixer, block), **settings)

    return build


def gmlp() -> nn.Module:
    from timm.layers import GatedMlp

    return timm_mixer("SpatialGatingBlock", mlp_ratio=2, mlp_layer=GatedMlp)()


def timm_metaformer(*token_mixers: str) -> Callable[[], nn.Module]:
    """A builder of timm's `MetaFormer`, whose entry points fix the depths; one token mixer a stage."""

    def build() -> nn.Module:
        from timm.models import metaformer

        return metaformer.MetaFormer(
            **META,
            token_mixers=[getattr(metaformer, name) for name in token_mixers],
            norm_layers=[
                metaformer.LayerNormNoBias if name == "Attention" else metaformer.LayerNorm2dNoBias
                for name in token_mixers
            ],
        )

    return build


def torchvision_vit() -> nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        image_size=32, patch_size=8, num_layers=3, num_heads=3, hidden_dim=24, mlp_dim=48, num_classes=7
    )


def torchvision_swin() -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer(**SWIN)


def torchvision_swin_v2() -> nn.Module:
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformer, SwinTransformerBlockV2

    return SwinTransformer(**SWIN, block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2)


def hugging_face(model: str, config: str, **settings: object) -> Callable[[], nn.Module]:
    """A builder of a Hugging Face model from a small configuration; nothing is downloaded."""

    def build() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))

    return build


CASES = [
    Case("mixer", timm_mixer("MixerBlock"), (32, 48)),
    Case("resmlp", timm_mixer("ResBlock", mlp_ratio=2), (32, 48)),
    Case("gmlp", gmlp, (32, 48)),
    Case("poolformer", timm_metaformer("Pooling", "Pooling"), (32, 48)),
    Case("convformer", timm_metaformer("SepConv", "SepConv"), (32, 48)),
    Case("caformer", timm_metaformer("SepConv", "Attention"), (32, 48)),
    Case("resnet", timm_model("resnet18", **RESNET), (32, 64)),
    Case("resnext", timm_model("resnext50_32x4d", **RESNET, cardinality=2, base_width=32), (32, 64)),
    Case("preact_resnet", timm_model("resnetv2_18", **RESNET), (32, 64)),
    Case("convnext", timm_model("convnext_tiny", depths=(1, 1, 1, 2), dims=(8, 8, 16, 16)), (64, 96)),
    Case("torchvision_vit", torchvision_vit),
    Case("torchvision_swin", torchvision_swin, (16, 32)),
    Case("torchvision_swin_v2", torchvision_swin_v2, (16, 32)),
    Case("hf_vit", hugging_face("ViTForImageClassification", "ViTConfig", **VIT, intermediate_size=48)),
    Case("hf_dinov2", hugging_face("Dinov2ForImageClassification", "Dinov2Config", **VIT, mlp_ratio=2), (32, 48)),
    Case("hf_clip", hugging_face("CLIPVisionModel", "CLIPVisionConfig", **VIT, intermediate_size=48), classifier=False),
    Case(
        "hf_swin",
        hugging_face(
            "SwinForImageClassification",
            "SwinConfig",
            image_size=(16, 32),
            patch_size=2,
            embed_dim=12,
            depths=[2, 2],
            num_heads=[2, 2],
            window_size=4,
            num_labels=7,
        ),
        (16, 32),
    ),
    ShuffledCase(
        "hf_vilt",
        hugging_face("ViltForQuestionAnswering", "ViltConfig", **VIT, intermediate_size=48, vocab_size=50),
        (32, 48),
        text=True,
    ),
]
