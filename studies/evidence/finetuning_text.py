"""The sentences of the page on fine-tuning; numbers come from the runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evidence.finetuning_results import Comparison, signed

__all__ = ["HEAD", "LIMITS", "MEASURED", "PROTOCOL", "READING", "RUNS", "findings"]

HEAD = """\
# Parts added at fine-tuning: CIFAR-100 and CamVid

Does a part improve a pretrained model if it is added when the model is fine-tuned? Four variants start from the same
DeiT-Ti weights (ImageNet-1K, trained without parts): plain; CB_S with Λ = 0; TAP with identity initialisation; ADL
with λ = 1. CB_S and TAP are in all 12 blocks and start as the identity. **The papers pretrain with their parts. These
are other experiments than CB Table 6 and TAPADL Table 4.**

"""
PROTOCOL = (
    ("model", "DeiT-Ti at 224×224, new head", "DeiT-Ti, decoder of 256 channels, auxiliary head of 128"),
    ("recipe", "`finetune`", "`camvid_upernet`"),
    ("training", "4 epochs, batch 512, 50,000 images", "40 epochs, batch 8, 367 images of 360×480"),
    ("optimiser", "AdamW 5e-4, layer decay 0.75", "AdamW 1e-4, decoder 5e-4"),
    ("augmentation", "crops, flips, half of the batches mixed", "scale, crops, flips, colour jitter"),
    ("clean test", "10,000 test images", "233 test images, 11 classes"),
    (
        "corrupted",
        "15 corruptions × 5 severities with the strengths of CIFAR-C, on the first 1,000 test images",
        "five perturbations of CB Table 9, mean of 5 random runs; 16 corruptions of Cityscapes-C × severities 1 to 3",
    ),
    ("form of ADL", "released code", "the paper's equation"),
    ("steps", "compiled; ADL eager", "eager"),
)
RUNS = """\
Each variant was trained with the seeds 0, 1 and 2 on one H200 with torch 2.11 and bfloat16: 24 runs. Runs with the same
seed share initial weights of the new head, data order and augmentation. Each network is measured once, after its last
epoch. ADL on CIFAR-100 was trained without `torch.compile` (`--arms adl --set compile=False`), because torch 2.11
could not compile the augmentation while attention was recorded; this is fixed. Compiled and eager runs draw the same
random numbers, but bfloat16 is rounded at other places. Several runs shared the GPU, so the images per second in the
files are no throughputs; see [speed](speed.md).

```
VITLAB_DATA=... python studies/finetune_deit_tiny_cifar100.py --epochs 4 --images 1000 --out runs/cifar
VITLAB_DATA=... python studies/finetune_camvid.py --set compile=False --out runs/camvid
PYTHONPATH=studies python -m evidence.finetuning_tables --scenes runs/camvid
```

The last command writes this page from `data/finetuning/`, which holds the file of each run, and the scenes below from
the predictions in `runs/camvid`.

"""
READING = """\
Differences are paired by seed; intervals are Student's 95 % intervals over three seeds. They are wide: half an interval
is 2.5 standard deviations of a difference. They describe the variation between training runs on fixed test images, not
the choice of the test images. No smallest relevant effect was fixed before the runs, so there are no verdicts.
*Clear*: the interval excludes 0; † marks a difference whose p, adjusted over the 21 comparisons of this table (Holm),
is above 0.05. *Unclear*: the interval includes 0. A clear difference can be too small to matter. The seven metrics of
this table were chosen after the runs.

"""
MEASURED = """\
Means over three seeds, and paired differences with 95 % intervals. Intervals that exclude 0 are bold. These tables have
153 intervals without correction for their number: about 8 would exclude 0 by chance alone.

"""
LIMITS = """\
## Limits

- Three seeds, one small backbone, one schedule per data set. The schedules are short: 388 steps on CIFAR-100 and 1,800
  on CamVid. Longer schedules were not tried.
- Parts train with the learning rate of the table, without the layer decay of their block. A higher rate for the parts
  was not tried, and neither was a start that differs from the identity.
- Pretraining with the parts, as in the papers, was not tried.
- λ = 1 is the paper's weight of ADL for training from random weights. Other weights were not tried. The two experiments
  use different forms of ADL.
- On CIFAR-100 ADL differs from plain also in compilation. The effect of compilation alone was not measured.
- The perturbations of CB Table 9 are defined for segmentation and were not applied to CIFAR-100. Severities 4 and 5 of
  Cityscapes-C were not run. mIoU on CamVid has no published value for this recipe to compare with.
"""

#: The metrics of the first table on corrupted images.
CORRUPTED = ("top-1 under corruptions, %", "mIoU, perturbations of CB Table 9, %", "mIoU, Cityscapes-C, %")


def findings(found: Mapping[tuple[str, str], Comparison], scales: np.ndarray) -> str:
    """Returns the findings.

    Args:
        found: the comparisons of the first table, by title of the metric and arm.
        scales: mean |Λ| of CB_S on CIFAR-100, (seeds, layers).
    """
    small = [each for (title, arm), each in found.items() if arm != "adl" and title != "NLL"]
    widest = max(max(abs(each.difference[1]), abs(each.difference[2])) for each in small)
    largest = max(abs(each.difference[0]) for each in small)
    nll = max(abs(found["NLL", arm].difference[0]) for arm in ("cb_s", "tap"))
    gain = found["top-1 under corruptions, %", "cb_s"].difference[0]
    robust = max(each.difference[0] for (title, _), each in found.items() if title in CORRUPTED)
    low, high = scales.mean(0).min(), scales.mean(0).max()

    def told(title: str, digits: int = 2) -> str:
        return "{} ({} to {})".format(*(signed(value, digits) for value in found[title, "adl"].difference))

    return f"""\
- **CB_S and TAP change almost nothing.** The largest mean difference in accuracy or mIoU is {largest:.2f} points, no
  interval reaches beyond ±{widest:.2f} points, and NLL on CIFAR-100 differs by at most {nll:.4f}. The gain of CB_S
  under the corruptions of CIFAR-100 is clear only because its three differences are nearly equal; it is {gain:.2f}
  points.
- **CB_S stays close to the identity.** It adds Λ times the mean token. After 4 epochs on CIFAR-100 the mean |Λ| is
  between {low:.4f} and {high:.4f} by block.
- **ADL lowers accuracy on CIFAR-100 a little**: top-1 {told("top-1, %")}, NLL {told("NLL", 3)}; neither is clear after
  the correction for 21 comparisons. Under corruptions the difference is unclear: {told("top-1 under corruptions, %")}.
- **ADL on CamVid is mixed.** mIoU on clean images {told("mIoU, %")}, unclear; pixel accuracy
  {told("pixel accuracy, %")}; under CB Table 9's perturbations {told("mIoU, perturbations of CB Table 9, %")}, unclear.
  Under Cityscapes-C ADL is worse: {told("mIoU, Cityscapes-C, %")}, most of it from the four kinds of noise. By class,
  road and pavement gain, cars and buildings lose.
- **No gain in robustness is shown.** The largest mean gain on corrupted images is {robust:.2f} points. The
  papers' models are trained with the parts from the start, so these runs do not contradict them.

"""
