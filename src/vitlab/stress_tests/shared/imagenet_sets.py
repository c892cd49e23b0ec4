"""The published ImageNet sets that are stored in class folders: ImageNet-A, -R, -Sketch and -V2, as data."""

from __future__ import annotations

from functools import partial

from vitlab.data.robustness_sets import labels_200, labels_1000, labels_by_number
from vitlab.stress_tests.shared.class_folders import ClassFolderTest

IMAGENET_A = ClassFolderTest(
    name="imagenet_a",
    folders=("imagenet-a", "ImageNet-A"),
    subsets={"imagenet-a": ""},
    labels=partial(labels_200, "a"),
    official_images=7_500,
    forms={"accuracy_200": "classes of the set", "accuracy_1000": "all classes"},
    tree="""\
  ROOT/imagenet-a/n01498041/<any name>.jpg     200 folders, 7,500 images (imagenet-a.tar)
or the same without imagenet-a/""",
    paper="Hendrycks et al., CVPR 2021",
)

IMAGENET_R = ClassFolderTest(
    name="imagenet_r",
    folders=("imagenet-r", "ImageNet-R"),
    subsets={"imagenet-r": ""},
    labels=partial(labels_200, "r"),
    official_images=30_000,
    forms={"accuracy_200": "classes of the set", "accuracy_1000": "all classes"},
    tree="""\
  ROOT/imagenet-r/n01443537/<any name>.jpg     200 folders, 30,000 images (imagenet-r.tar)
or the same without imagenet-r/""",
    paper="Hendrycks et al., ICCV 2021",
)

IMAGENET_SKETCH = ClassFolderTest(
    name="imagenet_sketch",
    folders=("sketch", "ImageNet-Sketch/sketch", "imagenet-sketch", "ImageNet-Sketch"),
    subsets={"sketch": ""},
    labels=labels_1000,
    official_images=50_889,
    forms={"accuracy": "all classes"},
    tree="""\
  ROOT/sketch/n01440764/sketch_0.JPEG     1,000 folders, 50,889 images (ImageNet-Sketch.zip)
or the same without sketch/""",
    paper="Wang et al., NeurIPS 2019",
)

IMAGENET_V2 = ClassFolderTest(
    name="imagenet_v2",
    folders=("imagenet-v2", "ImageNetV2", "imagenetv2"),
    subsets={
        "matched-frequency": "imagenetv2-matched-frequency-format-val",
        "threshold-0.7": "imagenetv2-threshold0.7-format-val",
        "top-images": "imagenetv2-top-images-format-val",
    },
    labels=labels_by_number,
    official_images=10_000,
    forms={"accuracy": "all classes"},
    tree="""\
  ROOT/imagenetv2-matched-frequency-format-val/0/<any name>.jpeg     1,000 folders, 0 to 999, 10,000 images
  ROOT/imagenetv2-threshold0.7-format-val/0/<any name>.jpeg
  ROOT/imagenetv2-top-images-format-val/0/<any name>.jpeg""",
    paper="Recht et al., ICML 2019",
)
