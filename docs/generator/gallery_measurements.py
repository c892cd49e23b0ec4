"""Make the measurements of the gallery: those of the demo, and what the demo does not measure, with small models.

    python docs/generator/gallery_measurements.py DEMO OUT --imagenet DIR --weights FILE

DEMO is a folder that `vitlab demo` wrote. Runs and measurements are stored in OUT; a second call makes what is missing.
The stress tests on published files need images of ImageNet with one folder per class, and weights of DeiT-Ti. Without
them these kinds are left out.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageEnhance

import vitlab
from vitlab.core.measurement import Measurement
from vitlab.data.robustness_sets import labels_200
from vitlab.reporting import training_curve

DEMO = {"plain ViT": "plain_ViT", "ViT + CB": "ViT_and_CB", "ViT + TAP + ADL": "ViT_and_TAP_and_ADL"}
#: Runs that the demo does not have: recipes and the names of their models.
RUNS = {
    "scaled": ("quick(part='cb_s', images=480, epochs=4)", "ViT + scaled CB"),
    "trajectory": ("quick(images=480, epochs=4)", "plain ViT"),
    "segmentation": ("quick_segmentation", "UperNet"),
    "detection": ("quick_detection", "Mask R-CNN"),
    "questions": ("quick_vqa", "ViLT"),
}
SETTINGS = {"trajectory": {"snapshots": (1, 2, 3, 4)}}
#: Instruments on two models of the demo, with their number of images.
INSTRUMENTS = {
    "attention_maps": 8,
    "attention_rollout": 8,
    "gradient_attention": 8,
    "causal_trace(images=8, severity=5, cells=4)": 8,
    "gradient_reach": 32,
    "softmax_gradient": 32,
    "train_fit": 256,
}
FRAMES = 8


def demo_measurements(demo: Path) -> Iterator[Measurement]:
    """All measurements of the demo, with the training curves."""
    for folder in DEMO.values():
        stored = {
            path.resolve(): Measurement.load(path) for path in sorted((demo / folder).glob("measurements/*/*.json"))
        }
        curve = training_curve(demo / folder, stored)
        yield from ([curve] if curve else []) + list(stored.values())


def more_measurements(demo: Path, out: Path) -> Iterator[Measurement]:
    """Other instruments and stress tests on two models of the demo."""
    names = list(DEMO)[:2]
    models = [f"file/{(demo / DEMO[name]).resolve()}" for name in names]
    for call, images in INSTRUMENTS.items():
        yield from vitlab.measure_models(models, [call], out / "measurements", images=images, called=names)
    yield from vitlab.stress_models(models, ["patch_shuffle"], out / "measurements", images=128, called=names)


def run_measurements(out: Path) -> Iterator[Measurement]:
    """Train the models of `RUNS` and measure them."""
    for name, (recipe, _) in RUNS.items():
        if not (out / name / "model.safetensors").exists():
            vitlab.train(recipe, out / name, settings=SETTINGS.get(name, {}))
    measured = (
        ("scaled", vitlab.measure_models, "broadcast_scale", {}),
        ("trajectory", vitlab.measure_models, f"trajectory(snapshots={str(out / 'trajectory')!r})", {}),
        ("detection", vitlab.measure_models, "average_precision", {"images": 32}),
        ("segmentation", vitlab.stress_models, "segmentation_corruptions", {"images": 32}),
        ("questions", vitlab.measure_models, "question_answers", {"images": 64}),
    )
    for name, run, call, options in measured:
        called = [RUNS[name][1]]
        yield from run([f"file/{(out / name).resolve()}"], [call], out / "measurements", called=called, **options)


def published_measurements(imagenet: Path, weights: Path, out: Path) -> Iterator[Measurement]:
    """DeiT-Ti, plain and with CB inserted without training, on validation images in the layouts of published sets."""
    plain = f"timm/deit_tiny_patch16_224(weights={str(weights)!r})"
    models, called = [plain, f"{plain} | ContextBroadcast()"], ["DeiT-Ti", "with CB, not fine-tuned"]
    root = out / "published"
    for label in labels_200("a"):
        _copy(imagenet / label, root / "imagenet-a" / label)
    for label in sorted(path.name for path in imagenet.iterdir())[::125]:
        _write_videos(imagenet / label, root / "ImageNet-P", label)
    for call in ("imagenet_a", "imagenet_p"):
        yield from vitlab.stress_models(models, [call], out / "measurements", root=root, called=called)


def _copy(source: Path, target: Path) -> None:
    if not target.exists():
        shutil.copytree(source, target)


def _write_videos(source: Path, root: Path, label: str) -> None:
    """The frames of four perturbations of one image."""
    image = Image.open(next(iter(sorted(source.iterdir())))).convert("RGB").resize((256, 256))
    for name in ("brightness", "translate", "rotate", "scale"):
        folder = root / name / label / "video"
        folder.mkdir(parents=True, exist_ok=True)
        for step in range(FRAMES):
            _frame(image, name, step).save(folder / f"{step:03d}.png")


def _frame(image: Image.Image, name: str, step: int) -> Image.Image:
    if name == "brightness":
        image = ImageEnhance.Brightness(image).enhance(1 + 0.1 * step)
    if name == "rotate":
        image = image.rotate(3 * step, Image.Resampling.BILINEAR)
    edge = 16 - 2 * step if name == "scale" else 16
    left = 2 * step if name == "translate" else edge
    return image.crop((left, edge, left + 256 - 2 * edge, 256 - edge)).resize((224, 224))


def all_measurements(demo: Path, out: Path, imagenet: Path | None, weights: Path | None) -> list[Measurement]:
    """The measurements of every kind of figure."""
    found = [*demo_measurements(demo), *more_measurements(demo, out), *run_measurements(out)]
    if imagenet is not None and weights is not None:
        found += published_measurements(imagenet, weights, out)
    return found


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The folders on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--imagenet", type=Path)
    parser.add_argument("--weights", type=Path)
    return parser.parse_args(given)


if __name__ == "__main__":
    chosen = arguments()
    every = all_measurements(chosen.demo, chosen.out, chosen.imagenet, chosen.weights)
    print(f"{len(every)} measurements of {len({each.kind for each in every})} kinds")
