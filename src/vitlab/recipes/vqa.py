"""Visual question answering with ViLT: fine-tuning on VQAv2, and a small model on generated scenes."""

from __future__ import annotations

from typing import Annotated, Any

from vitlab.core.bounds import Choices, Seed
from vitlab.core.expressions import PartCall
from vitlab.core.recipe import Augment, Optimizer, Recipe
from vitlab.recipes._parts import Epochs, Scenes, choose, model, parts

__all__ = ["quick_vqa", "vqa_vilt"]

#: The rows of CB's Table 10 -> the setting `tokens` of context broadcast. "Both" is one joint mean over text and image
#: tokens, our choice; `each` is the other reading, a mean of each.
TOKENS: dict[str, str | None] = {"image": "image", "text": "text", "both": None, "each": "each"}

_ON_SUBSETS = ("cb", "cb_s")

#: Kinds of questions that are learned in minutes; `relation` is not.
_QUICK_KINDS = ["exists", "count", "colour", "texture", "shape", "extreme", "side"]

VqaPart = Annotated[str, Choices(("", *_ON_SUBSETS))]
Tokens = Annotated[str, Choices(tuple(TOKENS))]


def vqa_vilt(
    part: VqaPart = "", tokens: Tokens = "both", weights: str = "", path: str = "vqav2", seed: Seed = 0
) -> Recipe:
    """ViLT-B/32 fine-tuned on VQAv2, plain or with CB_S on image tokens, text tokens or both.

    Source: CB, Table 10: ViLT's own fine-tuning with CB_S. Of ViLT (Kim et al. 2021): AdamW with learning rate 1e-4,
    10 times that for the head, weight decay 0.01, linear warm-up over 10 % of the steps and linear decay to 0, batch
    256, 10 epochs, shorter side 384 and longer side at most 640, 3,129 answers, binary cross entropy with an answer's
    accuracy as its target. Our choices: CB_S in all blocks, Λ = 0 at first, "both" as one joint mean, no augmentation
    (ViLT uses RandAugment), no dropout, and training on train2014 with val2014 as test set, because the answers of
    test-dev are not public: accuracies are not comparable with the paper's, differences are.
    Hardware: not published; 64 V100 for ViLT's pretraining.
    Runtime: not published.
    Expected: accuracy of 71.28 plain, 71.44 (image), 71.46 (text), 71.42 (both), of the paper's evaluation.
    Command: vitlab train "vqa_vilt(part='cb_s', tokens='text', weights='vilt-b32-mlm')" --root DATA

    Args:
        part: short name of a part: `cb_s` or `cb`; '' for the plain model.
        tokens: which tokens are averaged and receive the mean: `image`, `text`, `both` (one joint mean) or `each` (text
            and image tokens separately).
        weights: folder or file of pretrained weights of ViLT; '' for random weights.
        path: folder of VQAv2, with the vocabulary of BERT in its subfolder `bert-base-uncased`.
        seed: seed of weights and batches.

    >>> vqa_vilt("cb_s", "image").model
    "vitlab/vilt | ScaledContextBroadcast(tokens='image', blocks='all')"
    """
    return Recipe(
        model=model("vitlab", "vilt", {"weights": weights}, *_parts(part, tokens)),
        data=f"vqav2(path={path!r}, tokenizer={path + '/bert-base-uncased'!r})",
        task="vqa",
        image_size=(384, 640),
        epochs=10,
        batch_size=256,
        augment=Augment(crop="none", flip=0.0),
        optimizer=Optimizer(
            lr=1e-4,
            betas=(0.9, 0.98),
            weight_decay=0.01,
            warmup_epochs=1,
            warmup_lr=0.0,
            min_lr=0.0,
            schedule="poly",
            head_lr=10.0,
        ),
        precision="bfloat16",
        seed=seed,
    )


def quick_vqa(
    part: VqaPart = "", tokens: Tokens = "both", scenes: Scenes = 40000, epochs: Epochs = 2, seed: Seed = 0
) -> Recipe:
    """A ViLT of 0.4 M parameters that answers questions about small scenes.

    Source: vitlab's own; scenes of one or two objects, 24×24 pixels, patches of 12×12, questions of seven kinds, no
    download. With patches of 4×4 or 8×8 fewer kinds are learned in this time.
    Hardware: a laptop's CPU.
    Runtime: 3.3 minutes on two cores.
    Expected: with seed 0 on a CPU accuracies of 80.3 % (colour), 79.0 % (shape), 71.3 % (exists), 60.8 % (count),
        49.9 % (side), 47.8 % (extreme) and 36.6 % (texture); the priors are 11.5, 20.3, 53.9, 48.6, 20.3, 19.5 and
        17.7 %.
    Command: vitlab train quick_vqa

    Args:
        part: short name of a part: `cb_s` or `cb`; '' for the plain model.
        tokens: as in `vqa_vilt`.
        scenes: number of training scenes, each with up to eight questions.
        epochs: number of epochs.
        seed: seed of weights and batches.

    >>> quick_vqa(scenes=8).data.split(", kinds")[0]
    'scene_questions(train=8, test=1000, objects=2'
    """
    settings = {
        "hidden_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 384,
        "image_size": 24,
        "patch_size": 12,
        "max_position_embeddings": 8,
        "initializer_range": 0.1,
    }
    return Recipe(
        model=model("vitlab", "vilt", settings, *_parts(part, tokens)),
        data=f"scene_questions(train={scenes}, test=1000, objects=2, kinds={_QUICK_KINDS})",
        task="vqa",
        image_size=(24, 24),
        epochs=epochs,
        batch_size=128,
        augment=Augment(crop="none", flip=0.0),
        optimizer=Optimizer(lr=8e-4, betas=(0.9, 0.98), warmup_epochs=0.1),
        seed=seed,
    )


def _parts(part: str, tokens: str) -> tuple[PartCall, ...]:
    """Returns the part calls with the subset of the tokens."""
    subset = choose("tokens", tokens, TOKENS)
    if part:
        choose("part on text and image tokens", part, dict.fromkeys(_ON_SUBSETS))
    extra: dict[str, Any] = {} if subset is None else {"tokens": subset}
    return tuple(PartCall(call.name, {**call.settings, **extra}, call.at, call.blocks) for call in parts(part))
