"""Error on the published files of CIFAR-10-C and CIFAR-100-C: 15 corruptions at 5 severities, 75 sets.

Shape legend: n images.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions import CORRUPTIONS, EXTRA
from vitlab.data.cifar import CIFAR10, CIFAR100, open_corrupted
from vitlab.data.folders import wrong_layout
from vitlab.data.images import ImageSet
from vitlab.data.robustness_sets import locate, spread
from vitlab.stress_tests.shared.correctness import Correctness
from vitlab.stress_tests.shared.corrupted_sets import ERRORS, SEVERITIES, axes_of, chosen, is_benchmark, summarise
from vitlab.stress_tests.shared.file_evaluation import STORED, ClassifierSetup, classifier_setup, classify_set, right
from vitlab.stress_tests.shared.mce_baselines import choose
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Error on the published files of CIFAR-10-C or CIFAR-100-C",
    paper="Hendrycks and Dietterich, ICLR 2019; mean accuracy as HDVW Fig. 12b",
    cost="75 × 10,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=False,
)

TREE = """\
  ROOT/CIFAR-10-C/{labels.npy, gaussian_noise.npy, fog.npy, …}      each (50000, 32, 32, 3) uint8, severities 1 to 5
  ROOT/CIFAR-100-C/{labels.npy, gaussian_noise.npy, fog.npy, …}
or the files directly in ROOT"""

_OFFICIAL = 10_000


def measure(
    model: nn.Module,
    root: str | Path,
    *,
    names: str | Sequence[str] = CORRUPTIONS,
    severities: int | Sequence[int] = SEVERITIES,
    baseline: str | None = None,
    images: int | None = None,
    batch_size: int = 256,
    processes: int = 0,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Error by corruption and severity, mean accuracy and mCE; an interrupted run resumes at the next of the 75 sets.

    The files are 32 × 32: a model of that size is shown them untouched, one of another size resized, never cropped.

    Args:
        model: a classifier of 10 classes, for CIFAR-10-C, or of 100; it is left as it was found. Without a pretrained
            configuration it gets images with mean and std of CIFAR's own.
        root: holds `CIFAR-10-C` or `CIFAR-100-C`, or is it.
        names: corruptions, of the 15 or the 4 extra ones.
        severities: of 1 to 5: severity s is rows (s − 1) · 10,000 to s · 10,000 of a file.
        baseline: `cifar10` or `cifar100`, the errors of the AlexNets that the authors of HDVW trained, by default the
            one of the model's classes; or `none`.
        images: so many of each set, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`; `crop` is 1 unless given.

    Returns:
        As `imagenet_c`; the argmax is taken over all classes of the model. Provenance names missing sets, and says
        `partial: True` unless all 75 × 10,000 images counted.
    """
    places = chosen(names, severities)
    who = _examinee(model, preprocessing, batch_size, processes)
    which = _which(who.classes)
    errors = choose(baseline or which)
    folder = locate(root, ("CIFAR-10-C" if which == "cifar10" else "CIFAR-100-C",), _holds, TREE)
    there = [place for place in places if (folder / f"{place[0]}.npy").is_file()]
    if not there:
        raise wrong_layout(f"{folder} has none of the files that were asked for, {places[0][0]}.npy first", TREE)
    sheet = Correctness("cifar_c")
    for name, severity in there:
        part = spread(_open(folder, which, name, severity), images)
        (answers,), _ = classify_set(who, part, f"{name} at {severity}", len(there))
        marks = right(answers, part.labels)
        sheet.enter((name, severity), range(len(part)), marks, fingerprint=part.fingerprint)
    few = not is_benchmark(places) or any(count != _OFFICIAL for count in sheet.counts().values())
    told = {"names": names, "severities": severities, "baseline": baseline or which, "images": images}
    argmax = {"official_images": _OFFICIAL, "argmax": f"{who.classes}-way"}
    values = summarise(sheet.table(places), places, errors)
    about = sheet.provenance(who, places, (), few, **argmax)
    return result("cifar_c", who.model, values, axes_of(places), who.settings(**told), about, ERRORS, {})


Which = Literal["cifar10", "cifar100"]


def _examinee(model: nn.Module, *settings: Any) -> ClassifierSetup:
    """The model; where it does not say how it sees images, as CIFAR's own are: which, its classes tell."""
    for own in (CIFAR10, CIFAR100):
        fallback = {"size": 32, "mean": own.mean, "std": own.std}
        with warnings.catch_warnings(record=True) as said:  # of the normalisation that is used, not of the other one
            who = classifier_setup(model, "cifar_c", *settings, classes=None, ours=STORED, fallback=fallback)
        if _which(who.classes) == own.name:
            for warning in said:
                warnings.warn(warning.message, stacklevel=3)
            break
    return who


def _which(classes: int) -> Which:
    if classes not in (10, 100):
        raise VitlabError(f"cifar_c needs a classifier of 10 or 100 classes; this one has {classes}")
    return "cifar10" if classes == 10 else "cifar100"


def _open(folder: Path, which: Which, name: str, severity: int) -> ImageSet:
    found = open_corrupted(folder, which, name, severity).test
    if which == "cifar100" and int(found.labels.max()) < 10:
        raise VitlabError(f"{folder} has labels of 0 to 9, CIFAR-10-C's; this model has the 100 classes of CIFAR-100")
    return found


def _holds(folder: Path) -> bool:
    return (folder / "labels.npy").is_file() and any((folder / f"{name}.npy").is_file() for name in CORRUPTIONS + EXTRA)
