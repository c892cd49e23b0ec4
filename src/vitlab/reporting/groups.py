"""The order of the sections of a report: groups of kinds, the attention view first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vitlab.reporting.sections import Section

#: The kinds of each group, in the order of the page. Other kinds follow in `OTHER`.
GROUPS = {
    "Attention view": ("attention_view", "attention_maps", "attention_rollout", "gradient_attention"),
    "Accuracy and robustness": (
        *("training", "calibration", "train_fit", "question_answers", "average_precision"),
        *("corruptions", "imagenet_c", "cifar_c", "imagenet_p", "segmentation_corruptions"),
        *("adversarial", "occlusion", "patch_shuffle", "frequency_noise", "shape_texture"),
        *("imagenet_v2", "imagenet_real", "imagenet_a", "imagenet_r", "imagenet_sketch"),
    ),
    "Attention": (
        *("attention_entropy", "token_overfocus", "attention_diversity", "attention_stability"),
        *("attention_distance", "softmax_gradient", "broadcast_scale", "causal_trace"),
    ),
    "Features": ("feature_fourier", "feature_variance", "representation_cka", "lesion"),
    "Loss": ("hessian_spectrum", "loss_landscape", "trajectory", "gradient_reach"),
}

OTHER = "Other measurements"


@dataclass(frozen=True)
class Group:
    """Sections under one heading."""

    title: str
    sections: Sequence[Section]


def group(sections: Sequence[Section]) -> list[Group]:
    """The sections in the order of `GROUPS`; sections of one kind keep their order, and empty groups are left out.

    >>> [(each.title, [one.kind for one in each.sections]) for each in group(
    ...     [Section("mine", "", {}), Section("lesion", "", {}), Section("training", "", {})])]
    [('Accuracy and robustness', ['training']), ('Features', ['lesion']), ('Other measurements', ['mine'])]
    """
    known = [kind for kinds in GROUPS.values() for kind in kinds]
    groups = [
        Group(title, [section for kind in kinds for section in sections if section.kind == kind])
        for title, kinds in GROUPS.items()
    ]
    groups.append(Group(OTHER, [section for section in sections if section.kind not in known]))
    return [each for each in groups if each.sections]
