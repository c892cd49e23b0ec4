"""Error on the published files of ImageNet-C: 15 corruptions at 5 severities, 75 sets.

Shape legend: c corruptions, s severities, n images.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from torch import nn

from vitlab.core.bounds import ImageCount, Length, Severity
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions import CORRUPTIONS, EXTRA, CorruptionName
from vitlab.data.folders import wrong_layout
from vitlab.data.imagenet import wordnet_ids
from vitlab.data.robustness_sets import (
    has_class,
    labels_1000,
    locate,
    missing_classes,
    open_classes,
    spread,
    under_group,
)
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
    Processes,
    classifier_setup,
    classify_set,
    is_correct,
)
from vitlab.stress_tests.shared.mce_baselines import BaselineName, choose, resolve
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Error on the published files of ImageNet-C",
    paper="Hendrycks and Dietterich, ICLR 2019; mean accuracy as HDVW Fig. E.1, mCE as TAPADL Tables 2 and 3",
    cost="75 × 50,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=False,
)

FOLDERS = ("ImageNet-C", "imagenet-c", "ImageNet_C")  # below the root

TREE = """\
  ROOT/gaussian_noise/1/n01440764/ILSVRC2012_val_00000293.JPEG     15 corruptions × 5 severities × 50,000 images
or, in their groups,
  ROOT/noise/gaussian_noise/1/n01440764/ILSVRC2012_val_00000293.JPEG
or either below ROOT/ImageNet-C"""

_OFFICIAL = 50_000


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    names: CorruptionName | Annotated[Sequence[CorruptionName], Length(distinct=True)] = CORRUPTIONS,
    severities: Severity | Annotated[Sequence[Severity], Length(distinct=True)] = SEVERITIES,
    baseline: BaselineName | None = None,
    images: ImageCount | None = None,
    batch_size: BatchSize = 64,
    processes: Processes = -1,
    preprocessing: Given = None,
) -> Measurement:
    """Measure the error by corruption and severity, mean accuracy and mCE; resumes at the next of the 75 sets.

    The files are stored at 224 × 224. They are resized if the input size of the model differs, never cropped. The set
    has no clean images; for the relative mCE see `corruptions`.

    Args:
        model: a classifier of ImageNet-1K; its state is restored on exit.
        root: the folder of the corruptions, with or without their groups, or the folder that contains `ImageNet-C`.
        names: corruptions, from the 15 and the 4 extra ones.
        severities: severities from 1 to 5.
        baseline: `imagenet`, AlexNet's errors (default), or `none`.
        images: number of images per set, evenly spaced; default all.
        batch_size, processes, preprocessing: see `imagenet_a`; the default of `crop` is 1.

    Returns:
        `error`, `accuracy`, `standard_error` (corruption, severity), NaN where a set is missing; `ce`, `ce_error`
        (corruption); `mean_accuracy` over the available sets, `mce`, NaN unless all 75 are available, each with its
        `…_error` (). The argmax is over all 1000 classes.
        Provenance lists broken files, missing classes and missing sets; `partial` is True unless all 75 × 50,000 images
        were classified.
    """
    conditions = select_conditions(names, severities)
    baseline_name = resolve(baseline, 1000)
    baseline_errors = choose(baseline_name)  # fail early for a wrong name
    folder = locate(root, FOLDERS, _has_sets, TREE)
    present = {condition: path for condition in conditions if (path := _folder(folder, *condition)) is not None}
    if not present:
        raise wrong_layout(f"{folder} has none of the requested sets; the first is {conditions[0]}", TREE)
    setup = classifier_setup(model, "imagenet_c", preprocessing, batch_size, processes, override=STORED)
    correctness = Correctness("imagenet_c")
    for condition, path in present.items():
        every = open_classes(path, labels_1000(), TREE)
        part = spread(every, images)
        (predictions,), broken = classify_set(setup, part, "{} at {}".format(*condition), len(present))
        correct, lacking = is_correct(predictions, part.labels), missing_classes(every, labels_1000())
        correctness.add(condition, part.names.tolist(), correct, broken, lacking, part.fingerprint)
    partial = not is_benchmark(conditions) or any(count != _OFFICIAL for count in correctness.counts().values())
    extra = {"official_images": _OFFICIAL, "argmax": "1000-way"}
    about = correctness.provenance(setup, conditions, wordnet_ids(), partial, **extra)
    values, axes = summarise(correctness.table(conditions), conditions, baseline_errors), axes_of(conditions)
    settings = setup.settings(names=names, severities=severities, baseline=baseline_name, images=images)
    return result("imagenet_c", setup.model, values, axes, settings, about, ERRORS, {})


def _folder(folder: Path, name: str, severity: int) -> Path | None:
    """Returns the folder of a corruption at a severity; None if it is missing or has no class folder."""
    parent = under_group(folder, name)
    path = parent / str(severity) if parent else None
    return path if path and path.is_dir() and has_class(path, labels_1000()) else None


def _has_sets(folder: Path) -> bool:
    return any(_folder(folder, name, severity) for name in CORRUPTIONS + EXTRA for severity in SEVERITIES)
