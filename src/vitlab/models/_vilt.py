"""ViLT for visual question answering: Hugging Face's class, built from its configuration without files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitlab.core.errors import VitlabError
from vitlab.models._library_settings import check_configuration

_HEAD = "classifier."
_BODY = "vilt."


def build_vilt(settings: Mapping[str, Any]) -> nn.Module:
    """Returns `ViltForQuestionAnswering` with random weights.

    Args:
        settings: fields of Hugging Face's `ViltConfig`, such as `hidden_size`, `num_hidden_layers`, `vocab_size`; the
            defaults are those of ViLT-B/32. `num_labels` is the size of the answer vocabulary.

    >>> small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 9, "num_labels": 3}
    >>> build_vilt(small).classifier[-1].out_features
    3
    """
    check_vilt(settings)
    from transformers import ViltConfig, ViltForQuestionAnswering

    make: Any = ViltForQuestionAnswering  # not typed
    model: nn.Module = make(ViltConfig(**settings))
    return model


def check_vilt(settings: Mapping[str, Any]) -> None:
    """Raise an error if a setting is not in the configuration of ViLT, or cannot be meant."""
    check_configuration("vitlab/vilt", vilt_configuration(), settings)


def vilt_configuration() -> Any:
    """The configuration of ViLT-B/32."""
    try:
        from transformers import ViltConfig
    except ImportError:
        raise VitlabError("vitlab/vilt needs the extra 'hf': pip install 'vitlab[hf]'") from None
    return ViltConfig()


def weights_file(path: str) -> str:
    """Returns the file with the weights in a folder of Hugging Face; another path is returned as it is."""
    if not Path(path).is_dir():
        return path
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (Path(path) / name).is_file():
            return str(Path(path) / name)
    raise VitlabError(f"no model.safetensors and no pytorch_model.bin in {path}; give the folder of a ViLT model")


def pretrained_body(tensors: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    """Returns the weights of a ViLT of any task for question answering, and whether the head keeps its random weights.

    The heads of other tasks are dropped. A model pretrained by masked language modelling has no head for answers.

    Args:
        tensors: the weights of the file.
        own: the state dict of the model.
    """
    if not any(name.startswith(_BODY) for name in tensors):
        return dict(tensors), False
    kept = {name: tensor for name, tensor in tensors.items() if name in own}
    dropped_parts = {name: tensor for name, tensor in tensors.items() if ".vitlab_" in name and name not in own}
    new = [name for name in own if name.startswith(_HEAD) and name not in kept]
    return {**kept, **dropped_parts, **{name: own[name] for name in new}}, bool(new)
