"""Changes of the prediction along the short videos of ImageNet-P: flip probability and mean flip rate (mFR).

Shape legend: T frames, p perturbations, n videos.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import nn

from vitlab import zoo
from vitlab.core.bounds import Choices, ImageCount, Length, Range
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.measurement import Card, Measurement
from vitlab.core.step_cache import step
from vitlab.data.folders import wrong_layout
from vitlab.data.robustness_sets import has_class, labels_1000, locate, under_group
from vitlab.data.sequences import Sequences, open_sequences
from vitlab.eval_mode import eval_mode
from vitlab.identity import identify
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.correctness import Correctness
from vitlab.stress_tests.shared.file_evaluation import (
    STORED,
    BatchSize,
    ClassifierSetup,
    Processes,
    classifier_setup,
    iterate,
    mean_over_sets,
)
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Flips of the answer along the videos of ImageNet-P",
    paper="Hendrycks and Dietterich, ICLR 2019; mFR as TAPADL Table 2",
    cost="about 30 forwards for each video of 10 perturbations; twice that with a reference model",
    inputs="files",
    passes="one",
    higher_is_better=False,
)

#: The ten perturbations of mFR, and the four that the benchmark reserves for validation.
PERTURBATIONS = (
    *("gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow"),
    *("brightness", "translate", "rotate", "tilt", "scale"),
)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "shear")
_Name = Annotated[str, Choices(PERTURBATIONS + EXTRA)]

FOLDERS = ("ImageNet-P", "imagenet-p", "ImageNet_P")  # below the root

TREE = """\
  ROOT/gaussian_noise/n01440764/<video>.mp4             10 perturbations, 1,000 folders each
  ROOT/noise/gaussian_noise/n01440764/<video>.mp4       or in groups
  ROOT/gaussian_noise/n01440764/<video>/<frame>.png     or a folder of frames for each video
or any of these below ROOT/ImageNet-P"""


def flip_probability(predictions: np.ndarray, noise: bool, stride: int = 1) -> float:
    """Returns the fraction of frames whose prediction differs from that of the frame they are compared with.

    FP = 1/(T − 1) Σ_{t>1} 1[f(x_t) ≠ f(x_{t−1})] (Hendrycks and Dietterich, section 4.3). Frames of noise are
    independent of each other and are compared with the first, f(x_1).

    Args:
        predictions: (T,) class indices.
        noise: whether to compare with the first frame instead of the previous one.
        stride: distance in frames of the comparison, the difficulty of the benchmark. Not used for noise.

    >>> flip_probability(np.array([1, 2, 2, 1]), noise=False), flip_probability(np.array([1, 2, 2, 1]), noise=True)
    (0.6666666666666666, 0.6666666666666666)
    >>> flip_probability(np.array([1, 2, 2, 2]), noise=False), flip_probability(np.array([1, 2, 2, 2]), noise=True)
    (0.3333333333333333, 1.0)
    """
    if noise:
        return float((predictions[1:] != predictions[0]).mean())
    return float((predictions[stride:] != predictions[:-stride]).mean())


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    names: _Name | Annotated[Sequence[_Name], Length(distinct=True)] = PERTURBATIONS,
    reference: nn.Module | str | Mapping[str, float] | None = None,
    difficulty: Annotated[int, Range(1, 3)] = 1,
    videos: ImageCount | None = None,
    batch_size: BatchSize = 64,
    processes: Processes = -1,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the flip probability by perturbation, and mFR relative to a reference; resumes at the next perturbation.

    FR_p = FP_p / FP_p^AlexNet, and mFR is its mean over the ten perturbations. The benchmark does not publish AlexNet's
    FP: pass it as numbers, or pass a model to compute it with. Without a reference, FR and mFR are NaN.

    Args:
        model: a classifier of ImageNet-1K; its state is restored on exit. Frames are stored at 224 × 224. They are
            resized if the input size of the model differs, never cropped.
        root: the folder of the perturbations, with or without their groups, or the folder that contains `ImageNet-P`.
        names: perturbations, from the 10 and the 4 extra ones.
        reference: FP of AlexNet as fractions by perturbation; or AlexNet, as a model or as an expression with weights,
            `"torchvision/alexnet(weights='alexnet.safetensors')"`. Its preprocessing is that of its configuration, else
            with the mean and std of ImageNet.
        difficulty: 1, 2 or 3: distance in frames of the comparison. Noise has one folder per difficulty, for example
            `gaussian_noise_2`.
        videos: number of videos per perturbation, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`; the default of `crop` is 1.

    Returns:
        `flip_probability`, `flip_rate`, each with its `…_error`, and `reference_flip_probability` (perturbation), NaN
        for missing perturbations; `mfr`, NaN unless all ten are available, and `mfr_error` (). Standard errors treat
        the reference as exact. Provenance lists broken videos, missing classes and missing perturbations; `partial`
        ignores the number of videos, which the benchmark does not state.
    """
    requested = (names,) if isinstance(names, str) else tuple(names)
    folders = partial(_folders, names=PERTURBATIONS + EXTRA, difficulty=difficulty)
    folder = locate(root, FOLDERS, lambda path: bool(folders(path)), TREE)
    present = _folders(folder, requested, difficulty)
    if not present:
        raise wrong_layout(f"{folder} has none of the requested perturbations; the first is {requested[0]}", TREE)
    setup = classifier_setup(model, "imagenet_p", preprocessing, batch_size, processes, override=STORED)
    baseline = _reference(reference, batch_size, processes)
    steps = len(present) * (2 if isinstance(baseline, ClassifierSetup) else 1)
    by_video = _flips_by_video(setup, present, difficulty, videos, steps, "")
    if isinstance(baseline, ClassifierSetup):
        flips = _flips_by_video(baseline, present, difficulty, videos, steps, " by the reference").table(requested)
        baseline = {name: mean_over_sets(row[None])[0] for name, row in zip(requested, flips, strict=True)}
    known = np.array([baseline.get(name, np.nan) for name in requested])
    values = _values(by_video.table(requested), requested, known)
    incomplete = videos is not None or not set(PERTURBATIONS) <= set(requested)
    before = "with the frame before" if difficulty == 1 else f"with the frame {difficulty} before"
    extra = {"argmax": "1000-way", "noise": "compared with the first frame", "others": before}
    about = by_video.provenance(setup, requested, [*labels_1000()], incomplete, **extra)
    own = {"names": requested, "reference": _describe(reference), "difficulty": difficulty, "videos": videos}
    errors = {name: f"{name}_error" for name in ("flip_probability", "flip_rate", "mfr")}
    axes = {"perturbation": requested}
    return result("imagenet_p", setup.model, values, axes, setup.settings(**own), about, errors, {})


def _flips_by_video(
    setup: ClassifierSetup, present: Mapping[str, Path], difficulty: int, videos: int | None, total: int, suffix: str
) -> Correctness:
    """Flip probabilities of each video of each perturbation; each perturbation is one step of the step cache."""
    by_video = Correctness("imagenet_p")
    for name, folder in present.items():
        every = open_sequences(folder, setup.preprocessing.transform())
        part = every.spread(videos)
        compute = partial(_flips, setup, part, "noise" in name, difficulty)
        flips = step(f"{name} at difficulty {difficulty}{suffix} [{part.fingerprint[:8]}]", total, compute)["flips"]
        broken = [str(part.path(i)) for i in np.isnan(flips).nonzero()[0]]
        lacking = set(labels_1000()) - {video.partition("/")[0] for video in every.names}
        stems = [os.path.splitext(video)[0] for video in part.names]
        by_video.add(name, stems, flips, broken, lacking, part.fingerprint)
    return by_video


def _flips(setup: ClassifierSetup, videos: Sequences, noise: bool, difficulty: int) -> dict[str, np.ndarray]:
    """Returns flip probabilities (n,), NaN for videos that are unreadable or too short."""
    stride = 1 if noise else difficulty
    flips = np.full(len(videos), np.nan)
    with eval_mode(setup.model):
        for i, video in enumerate(iterate(setup, videos, None)):
            if len(video) > stride:
                chunks = [chunk.to(setup.device).float() / 255 for chunk in video.split(setup.batch_size)]
                predictions = torch.cat([setup.classify(chunk).argmax(1) for chunk in chunks])
                flips[i] = flip_probability(predictions.cpu().numpy(), noise, stride)
    if np.isnan(flips).all():
        raise VitlabError(f"cannot read any of the {len(videos)} videos of {videos.root}")
    return {"flips": flips}


def _values(flips: np.ndarray, names: Sequence[str], reference: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the values, from flip probabilities (p, n) of the model and (p,) of the reference."""
    rates = flips / np.where(reference > 0, reference, np.nan)[:, None]  # no ratio to a reference that never flips
    ten = [names.index(name) for name in PERTURBATIONS if name in names]
    pairs = {
        "flip_probability": np.array([mean_over_sets(row[None]) for row in flips]),
        "flip_rate": np.array([mean_over_sets(row[None]) for row in rates]),
    }
    complete = len(ten) == len(PERTURBATIONS) and bool((~np.isnan(rates[ten])).any(1).all())
    pairs["mfr"] = np.array(mean_over_sets(rates[ten]) if complete else (np.nan, np.nan))
    values = {"reference_flip_probability": reference}
    for name, both in pairs.items():
        values[name], values[f"{name}_error"] = both[..., 0], both[..., 1]
    return values


def _reference(reference: Any, batch_size: int, processes: int) -> ClassifierSetup | dict[str, float]:
    """Returns the reference model with its preprocessing, or its flip probabilities; empty without a reference."""
    if reference is None:
        return {}
    if isinstance(reference, Mapping):
        for name, value in reference.items():
            if name not in PERTURBATIONS + EXTRA:
                raise unknown("perturbation in reference", name, PERTURBATIONS + EXTRA)
            if not isinstance(value, int | float) or not 0 < value <= 1:
                raise VitlabError(f"invalid reference {name}: {value!r}; expected a flip probability in (0, 1]")
        return dict(reference)
    if isinstance(reference, str):
        text, reference = reference, zoo.load(reference)
        if identify(reference).untrained:
            raise VitlabError(f"reference {text!r} has random weights; set weights='PATH' or pretrained=True")
    return classifier_setup(reference, "imagenet_p", None, batch_size, processes, override=STORED)


def _describe(reference: Any) -> Any:
    """Returns the reference in a form that can be stored."""
    return type(reference).__name__ if isinstance(reference, nn.Module) else reference


def _folders(root: Path, names: Sequence[str], difficulty: int) -> dict[str, Path]:
    """Returns the folder of each perturbation that is present and has a class folder."""
    folders = {}
    for name in names:
        path = under_group(root, f"{name}_{difficulty}" if "noise" in name and difficulty > 1 else name)
        if path is not None and has_class(path, labels_1000()):
            folders[name] = path
    return folders
