"""Error on the published files of CIFAR-10-C and CIFAR-100-C: 15 corruptions at 5 severities, 75 sets.

Shape legend: n images.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from torch import nn

from vitlab.core.bounds import ImageCount, Length, Severity
from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions import CORRUPTIONS, EXTRA, CorruptionName
from vitlab.data.cifar import CIFAR10, CIFAR100, open_corrupted
from vitlab.data.folders import wrong_layout
from vitlab.data.images import ImageSet
from vitlab.data.robustness_sets import locate, spread
from vitlab.preprocessing.resolution import Given
from vitlab.stress_tests.shared.correctness import Correctness
from vitlab.stress_tests.shared.corrupted_sets import (
    ERRORS,
    SEVERITIES,
    axes_of,
    is_benchmark,
    select_conditions,
    summarise,
)
from vitlab.stress_tests.shared.file_evaluation import (
    STORED,
    BatchSize,
    ClassifierSetup,
    Processes,
    classifier_setup,
    classify_set,
    is_correct,
)
from vitlab.stress_tests.shared.mce_baselines import BaselineName, choose
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Error on the published files of CIFAR-10-C or CIFAR-100-C",
    paper="Hendrycks and Dietterich, ICLR 2019; mean accuracy as HDVW Fig. 12b",
    cost="75 × 10,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=False,
)

FOLDERS = ("CIFAR-10-C", "CIFAR-100-C")  # below the root

TREE = """\
  ROOT/CIFAR-10-C/{labels.npy, gaussian_noise.npy, fog.npy, …}      each (50000, 32, 32, 3) uint8, severities 1 to 5
  ROOT/CIFAR-100-C/{labels.npy, gaussian_noise.npy, fog.npy, …}
or the files directly in ROOT"""

_OFFICIAL = 10_000


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    names: CorruptionName | Annotated[Sequence[CorruptionName], Length(distinct=True)] = CORRUPTIONS,
    severities: Severity | Annotated[Sequence[Severity], Length(distinct=True)] = SEVERITIES,
    baseline: BaselineName | None = None,
    images: ImageCount | None = None,
    batch_size: BatchSize = 256,
    processes: Processes = 0,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the error by corruption and severity, mean accuracy and mCE; resumes at the next of the 75 sets.

    The images are 32 × 32. They are resized if the input size of the model differs, never cropped.

    Args:
        model: a classifier of 10 classes, for CIFAR-10-C, or of 100 classes, for CIFAR-100-C; its state is restored on
            exit. If it declares no normalisation, the mean and std of CIFAR are used.
        root: the folder `CIFAR-10-C` or `CIFAR-100-C`, or the folder that contains it.
        names: corruptions, from the 15 and the 4 extra ones.
        severities: severities from 1 to 5. Severity s is rows (s − 1) · 10,000 to s · 10,000 of a file.
        baseline: `cifar10` or `cifar100`, the errors of the AlexNets that the authors of HDVW trained, or `none`. The
            default is the one with the classes of the model.
        images: number of images per set, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`; the default of `crop` is 1.

    Returns:
        The values of `imagenet_c`; the argmax is over all classes of the model. Provenance lists missing sets;
        `partial` is True unless all 75 × 10,000 images were classified.
    """
    conditions = select_conditions(names, severities)
    setup = _setup(model, preprocessing, batch_size, processes)
    dataset = _dataset(setup.classes)
    baseline_errors = choose(baseline or dataset)
    folder = locate(root, FOLDERS[:1] if dataset == "cifar10" else FOLDERS[1:], _has_files, TREE)
    present = [condition for condition in conditions if (folder / f"{condition[0]}.npy").is_file()]
    if not present:
        raise wrong_layout(f"{folder} has none of the requested files; the first is {conditions[0][0]}.npy", TREE)
    correctness = Correctness("cifar_c")
    for name, severity in present:
        part = spread(_open(folder, dataset, name, severity), images)
        (predictions,), _ = classify_set(setup, part, f"{name} at {severity}", len(present))
        correct = is_correct(predictions, part.labels)
        correctness.add((name, severity), range(len(part)), correct, fingerprint=part.fingerprint)
    partial = not is_benchmark(conditions) or any(count != _OFFICIAL for count in correctness.counts().values())
    extra = {"official_images": _OFFICIAL, "argmax": f"{setup.classes}-way"}
    about = correctness.provenance(setup, conditions, (), partial, **extra)
    values, axes = summarise(correctness.table(conditions), conditions, baseline_errors), axes_of(conditions)
    settings = setup.settings(names=names, severities=severities, baseline=baseline or dataset, images=images)
    return result("cifar_c", setup.model, values, axes, settings, about, ERRORS, {})


Dataset = Literal["cifar10", "cifar100"]


def _setup(model: nn.Module, *settings: Any) -> ClassifierSetup:
    """Returns the model; if it declares no normalisation, with that of CIFAR-10 or CIFAR-100, by its classes."""
    for dataset in (CIFAR10, CIFAR100):
        fallback = {"size": 32, "mean": dataset.mean, "std": dataset.std}
        # Repeat only the warnings about the normalisation that is used.
        with warnings.catch_warnings(record=True) as recorded:
            setup = classifier_setup(model, "cifar_c", *settings, classes=None, override=STORED, fallback=fallback)
        if _dataset(setup.classes) == dataset.name:
            for warning in recorded:
                warnings.warn(warning.message, stacklevel=3)
            break
    return setup


def _dataset(classes: int) -> Dataset:
    if classes not in (10, 100):
        raise VitlabError(f"cifar_c expects a classifier of 10 or 100 classes; this model has {classes}")
    return "cifar10" if classes == 10 else "cifar100"


def _open(folder: Path, dataset: Dataset, name: str, severity: int) -> ImageSet:
    images = open_corrupted(folder, dataset, name, severity).test
    if dataset == "cifar100" and int(images.labels.max()) < 10:
        raise VitlabError(f"{folder} has labels from 0 to 9 (CIFAR-10-C); this model has the 100 classes of CIFAR-100")
    return images


def _has_files(folder: Path) -> bool:
    return (folder / "labels.npy").is_file() and any((folder / f"{name}.npy").is_file() for name in CORRUPTIONS + EXTRA)
