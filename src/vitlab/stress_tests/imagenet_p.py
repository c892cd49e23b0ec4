"""How often answers flip along the short videos of ImageNet-P: flip probability and mean flip rate (mFR).

Shape legend: T frames, p perturbations, n videos.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from vitlab import zoo
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.step_cache import step
from vitlab.data.folders import wrong_layout
from vitlab.data.robustness_sets import has_class, labels_1000, locate, under_group
from vitlab.data.sequences import Sequences, open_sequences
from vitlab.eval_mode import eval_mode
from vitlab.identity import identify
from vitlab.stress_tests.shared.correctness import Correctness
from vitlab.stress_tests.shared.file_evaluation import STORED, ClassifierSetup, classifier_setup, mean_over_sets, walk
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Flips of the answer along the videos of ImageNet-P",
    paper="Hendrycks and Dietterich, ICLR 2019; mFR as TAPADL Table 2",
    cost="about 30 forwards for each video of 10 perturbations; twice that with a reference model",
    inputs="files",
    passes="one",
    higher_is_better=False,
)

#: The ten that mFR is a mean of; then those that the benchmark keeps for validation.
PERTURBATIONS = (
    *("gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow"),
    *("brightness", "translate", "rotate", "tilt", "scale"),
)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "shear")

TREE = """\
  ROOT/gaussian_noise/n01440764/<video>.mp4             10 perturbations, 1,000 folders each
  ROOT/noise/gaussian_noise/n01440764/<video>.mp4       or in groups
  ROOT/gaussian_noise/n01440764/<video>/<frame>.png     or a folder of frames for each video
or any of these below ROOT/ImageNet-P"""


def flip_probability(answers: np.ndarray, noise: bool, stride: int = 1) -> float:
    """The share of frames whose answer differs from that to the frame it is compared with.

    FP = 1/(T − 1) Σ_{t>1} 1[f(x_t) ≠ f(x_{t−1})] (Hendrycks and Dietterich, section 4.3). Frames of noise do not follow
    from one another: there the comparison is with the first, f(x_1).

    Args:
        answers: (T,) class indices.
        noise: whether to compare with the first frame, not with the one before.
        stride: compare with so many frames before: the benchmark's difficulty, for all but noise.

    >>> flip_probability(np.array([1, 2, 2, 1]), noise=False), flip_probability(np.array([1, 2, 2, 1]), noise=True)
    (0.6666666666666666, 0.6666666666666666)
    >>> flip_probability(np.array([1, 2, 2, 2]), noise=False), flip_probability(np.array([1, 2, 2, 2]), noise=True)
    (0.3333333333333333, 1.0)
    """
    return float((answers[1:] != answers[0]).mean() if noise else (answers[stride:] != answers[:-stride]).mean())


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    names: str | Sequence[str] = PERTURBATIONS,
    reference: nn.Module | str | Mapping[str, float] | None = None,
    difficulty: int = 1,
    videos: int | None = None,
    batch_size: int = 64,
    processes: int = -1,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Flip probability by perturbation, and mFR against a reference; a run resumes at the next perturbation.

    FR_p = FP_p / FP_p^AlexNet, and mFR is its mean over the ten. AlexNet's FP was never published with the benchmark:
    give it as numbers, or a model that it is computed with. Without either, FR and mFR are NaN.

    Args:
        model: a classifier of ImageNet-1K; it is left as it was found. Frames are stored at 224 × 224: a model of that
            size is shown them untouched, one of another size resized, never cropped.
        root: holds the perturbations, in their groups or not, or `ImageNet-P` with them.
        names: perturbations, of the 10 or the 4 extra ones.
        reference: FP of AlexNet as shares by perturbation; or AlexNet, as a model or as an expression with weights,
            `"torchvision/alexnet(weights='alexnet.safetensors')"`, shown images as its own configuration says, else
            with the mean and std of ImageNet.
        difficulty: 1, 2 or 3: frames so far apart are compared; noise of that difficulty has folders of its own,
            `gaussian_noise_2`.
        videos: so many of each perturbation, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`; `crop` is 1 unless given.

    Returns:
        `flip_probability`, `flip_rate`, each with its `…_error`, and `reference_flip_probability` (perturbation), NaN
        where one is missing; `mfr`, NaN unless all ten are there, and `mfr_error` (): standard errors take the
        reference as known. Provenance names broken videos, missing classes and missing perturbations; `partial` does
        not count videos, of which the benchmark states no number.
    """
    wanted = _checked(names, difficulty)
    holds = partial(_folders, names=PERTURBATIONS + EXTRA, difficulty=difficulty)
    folder = locate(root, ("ImageNet-P", "imagenet-p", "ImageNet_P"), lambda place: bool(holds(place)), TREE)
    there = _folders(folder, wanted, difficulty)
    if not there:
        raise wrong_layout(f"{folder} has none of the perturbations that were asked for, {wanted[0]} first", TREE)
    who = classifier_setup(model, "imagenet_p", preprocessing, batch_size, processes, ours=STORED)
    rival = _rival(reference, batch_size, processes)
    steps = len(there) * (2 if isinstance(rival, ClassifierSetup) else 1)
    sheet = _watch(who, there, difficulty, videos, steps, "")
    if isinstance(rival, ClassifierSetup):
        flips = _watch(rival, there, difficulty, videos, steps, " by the reference").table(wanted)
        rival = {name: mean_over_sets(row[None])[0] for name, row in zip(wanted, flips, strict=True)}
    values = _values(sheet.table(wanted), wanted, np.array([rival.get(name, np.nan) for name in wanted]))
    few = videos is not None or not set(PERTURBATIONS) <= set(wanted)
    before = "with the frame before" if difficulty == 1 else f"with the frame {difficulty} before"
    extra = {"argmax": "1000-way", "noise": "compared with the first frame", "others": before}
    about = sheet.provenance(who, wanted, [*labels_1000()], few, **extra)
    told = {"names": wanted, "reference": _said(reference), "difficulty": difficulty, "videos": videos}
    errors = {name: f"{name}_error" for name in ("flip_probability", "flip_rate", "mfr")}
    axes = {"perturbation": wanted}
    return result("imagenet_p", who.model, values, axes, who.settings(**told), about, errors, {})


def _watch(
    who: ClassifierSetup, there: Mapping[str, Path], difficulty: int, videos: int | None, total: int, suffix: str
) -> Correctness:
    """Flip probabilities of each video of each perturbation, each perturbation a step of the step cache."""
    sheet = Correctness("imagenet_p")
    for name, folder in there.items():
        whole = open_sequences(folder, who.preprocessing.transform())
        part = whole.spread(videos)
        find = partial(_flips, who, part, "noise" in name, difficulty)
        flips = step(f"{name} at difficulty {difficulty}{suffix} [{part.fingerprint[:8]}]", total, find)["flips"]
        broken = [str(part.path(i)) for i in np.isnan(flips).nonzero()[0]]
        lacking = set(labels_1000()) - {video.partition("/")[0] for video in whole.names}
        stems = [os.path.splitext(video)[0] for video in part.names]
        sheet.enter(name, stems, flips, broken, lacking, part.fingerprint)
    return sheet


def _flips(who: ClassifierSetup, videos: Sequences, noise: bool, difficulty: int) -> dict[str, np.ndarray]:
    """(n,) flip probabilities, NaN for videos that cannot be read or are too short."""
    stride = 1 if noise else difficulty
    found = np.full(len(videos), np.nan)
    with eval_mode(who.model):
        for i, video in enumerate(walk(who, videos, None)):
            if len(video) > stride:
                chunks = [chunk.to(who.device).float() / 255 for chunk in video.split(who.batch_size)]
                answers = torch.cat([who.classify(chunk).argmax(1) for chunk in chunks])
                found[i] = flip_probability(answers.cpu().numpy(), noise, stride)
    if np.isnan(found).all():
        raise VitlabError(f"none of the {len(videos)} videos of {videos.root} can be read")
    return {"flips": found}


def _values(flips: np.ndarray, names: Sequence[str], reference: np.ndarray) -> dict[str, np.ndarray]:
    """From flip probabilities (p, n) of the model and (p,) of the reference."""
    rates = flips / np.where(reference > 0, reference, np.nan)[:, None]  # to one that never flips there is no ratio
    ten = [names.index(name) for name in PERTURBATIONS if name in names]
    pairs = {
        "flip_probability": np.array([mean_over_sets(row[None]) for row in flips]),
        "flip_rate": np.array([mean_over_sets(row[None]) for row in rates]),
    }
    whole = len(ten) == len(PERTURBATIONS) and bool((~np.isnan(rates[ten])).any(1).all())
    pairs["mfr"] = np.array(mean_over_sets(rates[ten]) if whole else (np.nan, np.nan))
    values = {"reference_flip_probability": reference}
    for name, both in pairs.items():
        values[name], values[f"{name}_error"] = both[..., 0], both[..., 1]
    return values


def _rival(reference: Any, batch_size: int, processes: int) -> ClassifierSetup | dict[str, float]:
    """The reference, ready to be examined, or its numbers; none where none was given."""
    if reference is None:
        return {}
    if isinstance(reference, Mapping):
        for name, value in reference.items():
            if name not in PERTURBATIONS + EXTRA:
                raise unknown("perturbation in reference", name, PERTURBATIONS + EXTRA)
            if not isinstance(value, int | float) or not 0 < value <= 1:
                raise VitlabError(f"reference has {name}: {value!r}; give flip probabilities as shares in (0, 1]")
        return dict(reference)
    if isinstance(reference, str):
        text, reference = reference, zoo.load(reference)
        if identify(reference).untrained:
            raise VitlabError(f"reference {text!r} has random weights; give weights='PATH' or pretrained=True")
    return classifier_setup(reference, "imagenet_p", None, batch_size, processes, ours=STORED)


def _said(reference: Any) -> Any:
    """The reference in words: settings are stored."""
    return type(reference).__name__ if isinstance(reference, nn.Module) else reference


def _folders(root: Path, names: Sequence[str], difficulty: int) -> dict[str, Path]:
    """Where each perturbation lies, of those that are there with any class."""
    found = {}
    for name in names:
        at = under_group(root, f"{name}_{difficulty}" if "noise" in name and difficulty > 1 else name)
        if at is not None and has_class(at, labels_1000()):
            found[name] = at
    return found


def _checked(names: str | Sequence[str], difficulty: int) -> tuple[str, ...]:
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in PERTURBATIONS + EXTRA:
            raise unknown("perturbation", name, PERTURBATIONS + EXTRA)
    if not wanted or len({*wanted}) < len(wanted) or difficulty not in (1, 2, 3):
        raise VitlabError(f"perturbations {wanted} at difficulty {difficulty!r}: give each once, difficulty 1, 2 or 3")
    return wanted
