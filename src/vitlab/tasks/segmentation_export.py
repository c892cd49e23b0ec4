"""Write predictions as label files for a test server, such as ACDC's, whose test labels are not public.

Shape legend: K classes, H W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from vitlab.core.errors import VitlabError
from vitlab.data.acdc import CLASSES, CONDITIONS, unlabelled_paths
from vitlab.data.augment import normalise
from vitlab.data.decoding import open_rgb
from vitlab.data.device_copy import per_channel
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import preprocessing_of
from vitlab.tasks.segmentation import logits_of

_FOLDER = "labelTrainIds"


def export_acdc(
    model: nn.Module, root: str | Path, out: str | Path, conditions: Sequence[str] = CONDITIONS
) -> Iterator[Path]:
    """Segment the test images of ACDC and write PNG files with training labels: 0 is the road, 18 the bicycle.

    The server of ACDC reads training labels, not label ids as that of Cityscapes does, from files of the images' size
    and names in a folder `labelTrainIds`: `OUT/labelTrainIds/<frame>_rgb_anon.png`. Compress that folder and submit it.

    Args:
        model: a segmentation model with the 19 classes of Cityscapes, for example `vitlab.load("file/RUN")`.
        root: the folder that contains `rgb_anon`.
        out: the folder for the files.
        conditions: of `data.acdc.CONDITIONS`.

    Yields:
        The path of each file when it is written.
    """
    how = preprocessing_of(model)
    device = next(model.parameters()).device
    mean, std = per_channel(how.mean, device), per_channel(how.std, device)
    paths = unlabelled_paths(root, conditions)
    _check_names(paths)
    folder = Path(out) / _FOLDER
    with eval_mode(model):
        for path in paths:
            pixels = torch.from_numpy(np.array(open_rgb(path))).permute(2, 0, 1)[None].to(device)
            logits = logits_of(model(normalise(pixels, mean, std)))
            if logits.shape[1] != len(CLASSES):
                raise VitlabError(
                    f"the model has {logits.shape[1]} classes; expected the {len(CLASSES)} classes of Cityscapes"
                )
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(logits[0].argmax(0).cpu().numpy().astype(np.uint8)).save(folder / path.name)
            yield folder / path.name


def _check_names(paths: Sequence[Path]) -> None:
    """Raise if two images have one name, so that one prediction would replace the other."""
    seen: dict[str, Path] = {}
    for path in paths:
        if path.name in seen:
            raise VitlabError(f"{seen[path.name]} and {path} have the same name; expected different ones")
        seen[path.name] = path
