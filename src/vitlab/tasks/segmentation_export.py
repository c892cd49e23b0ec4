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
from vitlab.data.acdc import CONDITIONS, unlabelled_paths
from vitlab.data.augment import normalise
from vitlab.data.decoding import open_rgb
from vitlab.data.device_copy import per_channel
from vitlab.data.segmentation_sets import CITYSCAPES_IDS
from vitlab.eval_mode import eval_mode
from vitlab.preprocessing import preprocessing_of
from vitlab.tasks.segmentation import logits_of

_IMAGE, _LABELS = "_rgb_anon.png", "_gt_labelIds.png"


def export_acdc(
    model: nn.Module, root: str | Path, out: str | Path, conditions: Sequence[str] = CONDITIONS
) -> Iterator[Path]:
    """Segment the test images of ACDC and write PNG files with Cityscapes label ids.

    The files have the layout of the ground truth, `OUT/<condition>/test/<sequence>/<frame>_gt_labelIds.png`.

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
    ids = np.array(CITYSCAPES_IDS, dtype=np.uint8)
    with eval_mode(model):
        for path in unlabelled_paths(root, conditions):
            pixels = torch.from_numpy(np.array(open_rgb(path))).permute(2, 0, 1)[None].to(device)
            logits = logits_of(model(normalise(pixels, mean, std)))
            if logits.shape[1] != len(ids):
                raise VitlabError(
                    f"the model has {logits.shape[1]} classes; expected the {len(ids)} classes of Cityscapes"
                )
            target = Path(out, *path.parts[-4:-1], path.name.replace(_IMAGE, _LABELS))
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(ids[logits[0].argmax(0).cpu().numpy()]).save(target)
            yield target
