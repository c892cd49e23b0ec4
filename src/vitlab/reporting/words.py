"""What kinds of measurement and their values are called in sentences and tables; others by their own names."""

from __future__ import annotations

#: Kinds that hold a name.
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

#: Values that mean the same in every kind.
_ANYWHERE = {
    "clean_accuracy": "accuracy on untouched images",
    "mean_accuracy": "mean accuracy over all conditions",
    "mce": "mean corruption error (mCE)",
}

_VALUES = {
    "adversarial": {"accuracy": "mean accuracy under attack", "drop": "mean loss of accuracy"},
    "attention_distance": {
        "distance": "mean distance over all pairs of tokens, deep half of the layers, image sides",
        "attended": "how far a query looks, deep half of the layers, image sides",
    },
    "attention_diversity": {
        "head_similarity": "likeness of two heads, deep half of the layers",
        "row_similarity": "likeness of rows to their mean, deep half of the layers",
        "self_mass": "share of attention on the token itself, deep half of the layers",
        "neighbourhood_mass": "share of attention on the 3×3 tokens around, deep half of the layers",
    },
    "attention_entropy": {
        "mean": "mean over the deep half of the layers, nats",
        "class_row": "that of the class token, deep half of the layers, nats",
        "normalised": "share of its bound, deep half of the layers",
    },
    "attention_stability": {"overall": "likeness on clean and corrupted images"},
    "calibration": {
        "ece": "expected calibration error (ECE)",
        "signed_ece": "confidence above accuracy",
        "nll": "negative log-likelihood, nats",
        "brier": "Brier score",
    },
    "corruptions": {"drop": "mean loss of accuracy"},
    "feature_fourier": {
        "amplitude": "mean Δ log amplitude",
        "high": "Δ log amplitude at the highest frequency, after the last block",
        "change": "change of Δ log amplitude a step",
    },
    "feature_variance": {"variance": "mean over depth", "change": "mean change a step"},
    "frequency_noise": {"accuracy": "mean accuracy under noise", "drop": "mean loss of accuracy"},
    "hessian_spectrum": {
        "negative_proportion": "share of negative eigenvalues (NEP)",
        "positive_average": "mean positive eigenvalue (APE)",
    },
    "lesion": {
        "change": "mean change of accuracy without a unit",
        "nll_change": "mean change of NLL without a unit, nats",
        "baseline": "accuracy of the whole model",
        "accuracy": "mean accuracy without a unit",
    },
    "loss_landscape": {
        "nll": "mean NLL on the plane, nats",
        "l2": "mean ℓ2 term on the plane",
        "total": "mean NLL + ℓ2 on the plane",
    },
    "occlusion": {"accuracy": "mean accuracy behind masks", "drop": "mean loss of accuracy"},
    "representation_cka": {"cka": "mean over pairs of a shallow and a deep layer"},
    "shape_texture": {"shape_accuracy": "decisions that name the shape", "texture_accuracy": "that name the texture"},
    "token_overfocus": {
        "top1": "share of attention on the most attended token, deep half of the layers",
        "top": "share of attention on the most attended tokens, deep half of the layers",
        "gini": "Gini's coefficient of attention, deep half of the layers",
        "top1_of_mean": "share on the most attended token, map averaged over heads, deep half of the layers",
        "gini_of_mean": "Gini's coefficient, map averaged over heads, deep half of the layers",
    },
    "training": {
        "top1": "top-1 accuracy after the last epoch, %",
        "top5": "top-5 accuracy after the last epoch, %",
        "loss": "test loss after the last epoch, nats",
        "train_loss": "training loss after the last epoch, nats",
    },
}


def kind_in_words(kind: str) -> str:
    """A kind as it is called.

    >>> kind_in_words("representation_cka"), kind_in_words("token_overfocus")
    ('representation CKA', 'token overfocus')
    """
    return KINDS.get(kind, kind.replace("_", " "))


def value_in_words(kind: str, name: str) -> str:
    """A value of a kind as it is called.

    >>> value_in_words("calibration", "brier"), value_in_words("mine", "some_value")
    ('Brier score', 'some value')
    """
    return _VALUES.get(kind, {}).get(name) or _ANYWHERE.get(name) or name.replace("_", " ")
