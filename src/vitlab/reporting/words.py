"""Names of kinds and values in sentences and tables. Others are shown by their identifiers without underscores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

#: Kinds that contain a proper name.
KINDS = {
    "cifar_c": "CIFAR-C",
    "feature_fourier": "feature Fourier",
    "hessian_spectrum": "Hessian spectrum",
    "imagenet_a": "ImageNet-A",
    "imagenet_c": "ImageNet-C",
    "imagenet_p": "ImageNet-P",
    "imagenet_r": "ImageNet-R",
    "imagenet_real": "ImageNet-ReaL",
    "imagenet_sketch": "ImageNet-Sketch",
    "imagenet_v2": "ImageNetV2",
    "representation_cka": "representation CKA",
}

#: Values with the same meaning in every kind.
_ANYWHERE = {
    "clean_accuracy": "accuracy on clean images",
    "mean_accuracy": "mean accuracy over all conditions",
    "ce": "mean of CE over the measured corruptions",
    "mce": "mean corruption error (mCE)",
    "relative_ce": "mean of relative CE over the measured corruptions",
    "relative_mce": "relative mean corruption error (relative mCE)",
}

_VALUES = {
    "adversarial": {"accuracy": "mean accuracy under attack", "drop": "mean drop of accuracy"},
    "attention_distance": {
        "distance": "mean of attention × distance over all pairs of tokens, deep half of the layers, image sides",
        "attended": "attended distance per query, deep half of the layers, image sides",
    },
    "attention_diversity": {
        "head_similarity": "similarity of two heads, deep half of the layers",
        "row_similarity": "similarity of the attention of a query to the mean over queries, deep half of the layers",
        "self_mass": "share of attention on the token itself, deep half of the layers",
        "neighbourhood_mass": "share of attention on the 3×3 tokens around the query, deep half of the layers",
    },
    "attention_entropy": {
        "mean": "mean entropy, deep half of the layers, nats",
        "class_row": "entropy of the class token, deep half of the layers, nats",
        "normalised": "entropy relative to its bound, deep half of the layers",
    },
    "attention_stability": {"overall": "similarity of attention on clean and corrupted images"},
    "average_precision": {
        "box_ap": "box AP, overlap 0.5 to 0.95",
        "box_ap50": "box AP at an overlap of 0.5",
        "box_ap75": "box AP at an overlap of 0.75",
        "mask_ap": "mask AP, overlap 0.5 to 0.95",
        "mask_ap50": "mask AP at an overlap of 0.5",
        "mask_ap75": "mask AP at an overlap of 0.75",
    },
    "calibration": {
        "ece": "expected calibration error (ECE)",
        "signed_ece": "mean confidence minus accuracy",
        "nll": "negative log-likelihood, nats",
        "brier": "Brier score",
    },
    "corruptions": {"drop": "mean drop of accuracy"},
    "attention_rollout": {
        "entropy": "entropy of attention rollout, nats",
        "prefix_share": "share of the prefix tokens",
    },
    "gradient_attention": {
        "entropy": "entropy of gradient-weighted attention, nats",
        "prefix_share": "share of the prefix tokens",
    },
    "causal_trace": {
        "total_effect": "effect of the corruption on the probability of the clean prediction",
        "tokens": "mean effect of a cell of tokens",
        "prefix": "mean effect of a prefix token",
        "heads": "mean effect of a head",
        "attention": "mean effect of the attention branch",
        "mlp": "mean effect of the MLP branch",
    },
    "feature_fourier": {
        "amplitude": "mean Δ log amplitude",
        "high": "Δ log amplitude at the highest frequency, after the last block",
        "change": "mean change of Δ log amplitude per step",
    },
    "feature_variance": {"variance": "mean variance over depth", "change": "mean change of variance per step"},
    "frequency_noise": {"accuracy": "mean accuracy under noise", "drop": "mean drop of accuracy"},
    "hessian_spectrum": {
        "negative_proportion": "share of negative eigenvalues (NEP)",
        "positive_average": "mean positive eigenvalue (APE)",
    },
    "lesion": {
        "change": "mean change of accuracy without one unit",
        "nll_change": "mean change of NLL without one unit, nats",
        "baseline": "accuracy of the whole model",
        "accuracy": "mean accuracy without one unit",
    },
    "loss_landscape": {
        "nll": "mean NLL on the plane, nats",
        "l2": "mean ℓ2 term (weight decay) on the plane",
        "total": "mean of NLL plus the ℓ2 term (weight decay) on the plane",
    },
    "occlusion": {"accuracy": "mean accuracy over masks", "drop": "mean drop of accuracy"},
    "patch_shuffle": {"accuracy": "mean accuracy over grids", "drop": "mean drop of accuracy"},
    "question_answers": {
        "overall_accuracy": "accuracy of answers, all questions",
        "overall_prior": "accuracy of the most frequent answer of each kind (prior)",
        "accuracy": "accuracy of answers",
    },
    "representation_cka": {"cka": "mean CKA over pairs of a shallow and a deep layer"},
    "shape_texture": {
        "shape_accuracy": "share of decisions by shape",
        "texture_accuracy": "share of decisions by texture",
    },
    "token_overfocus": {
        "top1": "share of attention on the most attended token, deep half of the layers",
        "top": "share of attention on the most attended tokens, deep half of the layers",
        "gini": "Gini coefficient of attention, deep half of the layers",
        "top1_of_mean": "share on the most attended token, map averaged over heads, deep half of the layers",
        "gini_of_mean": "Gini coefficient, map averaged over heads, deep half of the layers",
    },
    "training": {
        "accuracy": "accuracy of answers after the last epoch, %",
        "top1": "top-1 accuracy after the last epoch, %",
        "top5": "top-5 accuracy after the last epoch, %",
        "loss": "test loss after the last epoch, nats",
        "train_loss": "training loss after the last epoch, nats",
    },
}


#: Abbreviations of parts and losses that names of models and titles may have.
ABBREVIATIONS = {
    "CB": "Context Broadcasting",
    "TAP": "token-aware average pooling",
    "ADL": "attention diversification loss",
}

#: Values of the setting `cues` of scenes.
CUES = {"'agree'": "each of five shapes has its own texture", "'conflict'": "the texture of another shape"}

#: Sources that captions compare with.
PAPERS = {
    "CB": "Scratching Visual Transformer's Back with Uniform Attention",
    "HDVW": "How Do Vision Transformers Work?",
    "TAPADL": "Robustifying Token Attention for Vision Transformers",
}


def glossary(texts: Iterable[str], data: str = "") -> str:
    """A line that expands the abbreviations in texts and generated data; empty if they have none.

    >>> glossary(["plain ViT", "ViT + TAP"], "scenes(test=9)")
    'TAP: token-aware average pooling; scenes: generated textured shapes.'
    >>> glossary([], "scenes(cues='agree')")
    "scenes: generated textured shapes, 'agree': each of five shapes has its own texture."
    """
    used = set(re.findall(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z])", " ".join(texts)))
    each = [f"{short}: {words}" for short, words in ABBREVIATIONS.items() if short in used]
    if re.search(r"\bscenes\b", data):
        cues = [f"{name}: {words}" for name, words in CUES.items() if f"cues={name}" in data]
        each.append(", ".join(["scenes: generated textured shapes", *cues]))
    return f"{'; '.join(each)}." if each else ""


def kind_in_words(kind: str) -> str:
    """The name of a kind.

    >>> kind_in_words("representation_cka"), kind_in_words("token_overfocus")
    ('representation CKA', 'token overfocus')
    """
    return KINDS.get(kind, kind.replace("_", " "))


def value_in_words(kind: str, name: str) -> str:
    """The name of a value of a kind; `name[label]` for one of its elements.

    >>> value_in_words("calibration", "brier"), value_in_words("mine", "some_value")
    ('Brier score', 'some value')
    >>> value_in_words("question_answers", "accuracy[colour]")
    'accuracy of answers, colour'
    """
    if name.endswith("]"):
        whole, _, label = name[:-1].partition("[")
        return f"{value_in_words(kind, whole)}, {label}"
    return _VALUES.get(kind, {}).get(name) or _ANYWHERE.get(name) or name.replace("_", " ")


def joined(words: Sequence[str]) -> str:
    """Words separated by commas, the last by "and".

    >>> joined(["ViT", "CB", "TAP"]), joined(["ViT"])
    ('ViT, CB and TAP', 'ViT')
    """
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"
