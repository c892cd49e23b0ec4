"""Error on the published files of ImageNet-C: 15 corruptions at 5 severities, 75 sets.

Shape legend: c corruptions, s severities, n images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from vitlab.core.measurement import Card, Measurement
from vitlab.corruptions import CORRUPTIONS, EXTRA
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
from vitlab.stress_tests.shared.correctness import Correctness
from vitlab.stress_tests.shared.corrupted_sets import ERRORS, SEVERITIES, axes_of, chosen, is_benchmark, summarise
from vitlab.stress_tests.shared.file_evaluation import STORED, classifier_setup, classify_set, right
from vitlab.stress_tests.shared.mce_baselines import choose, resolve
from vitlab.stress_tests.shared.pixel_evaluation import result

CARD = Card(
    title="Error on the published files of ImageNet-C",
    paper="Hendrycks and Dietterich, ICLR 2019; mean accuracy as HDVW Fig. E.1, mCE as TAPADL Tables 2 and 3",
    cost="75 × 50,000 forwards",
    inputs="files",
    passes="one",
    higher_is_better=False,
)

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
    names: str | Sequence[str] = CORRUPTIONS,
    severities: int | Sequence[int] = SEVERITIES,
    baseline: str | None = None,
    images: int | None = None,
    batch_size: int = 64,
    processes: int = -1,
    preprocessing: Mapping[str, Any] | None = None,
) -> Measurement:
    """Error by corruption and severity, mean accuracy and mCE; an interrupted run resumes at the next of the 75 sets.

    The files are stored at 224 × 224: a model of that size is shown them untouched, one of another size resized, never
    cropped. They bring no clean images: for the relative mCE see `corruptions`.

    Args:
        model: a classifier of ImageNet-1K; it is left as it was found.
        root: holds the corruptions, in their groups or not, or `ImageNet-C` with them.
        names: corruptions, of the 15 or the 4 extra ones.
        severities: of 1 to 5.
        baseline: `imagenet`, AlexNet's errors, by default; or `none`.
        images: so many of each set, at even distances; all by default.
        batch_size, processes, preprocessing: as in `imagenet_a`; `crop` is 1 unless given.

    Returns:
        `error`, `accuracy`, `standard_error` (corruption, severity), NaN where a set is missing; `ce`, `ce_error`
        (corruption); `mean_accuracy` over the sets that are there, `mce`, NaN unless all 75 are, each with its
        `…_error` (). The argmax is taken over all 1000 classes.
        Provenance names broken files, missing classes and missing sets, and says `partial: True` unless all 75 × 50,000
        images counted.
    """
    places = chosen(names, severities)
    against = resolve(baseline, 1000)
    errors = choose(against)  # a wrong name is told now, not after hours
    folder = locate(root, ("ImageNet-C", "imagenet-c", "ImageNet_C"), _holds, TREE)
    there = {place: at for place in places if (at := _folder(folder, *place)) is not None}
    if not there:
        raise wrong_layout(f"{folder} has none of the sets that were asked for, {places[0]} first", TREE)
    who = classifier_setup(model, "imagenet_c", preprocessing, batch_size, processes, ours=STORED)
    sheet = Correctness("imagenet_c")
    for place, at in there.items():
        whole = open_classes(at, labels_1000(), TREE)
        part = spread(whole, images)
        (answers,), lost = classify_set(who, part, "{} at {}".format(*place), len(there))
        lacking = missing_classes(whole, labels_1000())
        sheet.enter(place, part.names.tolist(), right(answers, part.labels), lost, lacking, part.fingerprint)
    few = not is_benchmark(places) or any(count != _OFFICIAL for count in sheet.counts().values())
    told = {"names": names, "severities": severities, "baseline": against, "images": images}
    about = sheet.provenance(who, places, wordnet_ids(), few, official_images=_OFFICIAL, argmax="1000-way")
    values = summarise(sheet.table(places), places, errors)
    return result("imagenet_c", who.model, values, axes_of(places), who.settings(**told), about, ERRORS, {})


def _folder(folder: Path, name: str, severity: int) -> Path | None:
    """Where a corruption lies at a severity, if it is there with any class."""
    at = under_group(folder, name)
    place = at / str(severity) if at else None
    return place if place and place.is_dir() and has_class(place, labels_1000()) else None


def _holds(folder: Path) -> bool:
    return any(_folder(folder, name, severity) for name in CORRUPTIONS + EXTRA for severity in SEVERITIES)
