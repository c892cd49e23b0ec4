"""Keys: equal inputs have equal keys, and every input that changes a result changes the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from experiments.small import ENTROPY, SHORT, TRAINED, VIT
from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job
from vitlab.experiments import work
from vitlab.experiments.plan import Plan
from vitlab.experiments.work import Training, all_work, clear_key_cache, work_of


def key(job: Job, root: str = "") -> str:
    return work_of(job).key(root)


def test_the_arm_and_the_cost_do_not_change_the_key() -> None:
    same = replace(ENTROPY, arm="other", needs=("imagenet",), gpu_minutes=5.0, gigabytes=1.0)
    assert key(same) == key(ENTROPY)


@pytest.mark.parametrize(
    "change",
    [
        {"procedure": "attention_distance"},
        {"procedure": "attention_entropy(base=2)"},
        {"model": VIT.replace("depth=2", "depth=3")},
        {"data": "scenes"},
        {"images": 9},
        {"repeats": 2},
        {"seed": 1},
    ],
)
def test_every_input_of_a_measurement_changes_the_key(change: dict) -> None:
    assert key(replace(ENTROPY, **change)) != key(ENTROPY)


@pytest.mark.parametrize("change", [{"changes": ("epochs=3",)}, {"seed": 1}, {"recipe": "quick(diversification=1.0)"}])
def test_every_setting_of_a_run_changes_its_key(change: dict) -> None:
    assert key(replace(TRAINED, **change)) != key(TRAINED)
    assert work_of(replace(TRAINED, **change)).needs[0].key() != work_of(TRAINED).needs[0].key()


def test_settings_are_compared_resolved() -> None:
    """A recipe and the same recipe with its defaults written out are one run."""
    same = [Training("quick"), Training("quick(epochs=8, images=1536)"), Training("quick", ("epochs=8",))]
    assert len({run.key() for run in same}) == 1
    assert Training("quick").key() != Training("quick", ("optimizer.lr=0.1",)).key()


def test_the_contents_of_a_weights_file_change_the_key(tmp_path: Path) -> None:
    job = replace(ENTROPY, model="timm/vit_tiny_patch16_224(weights='{root}/vit.safetensors')")
    keys = []
    for contents in (b"one", b"two"):
        folder = tmp_path / contents.decode()
        folder.mkdir()
        (folder / "vit.safetensors").write_bytes(contents)
        keys.append(key(job, str(folder)))
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/vit.safetensors").write_bytes(b"one")
    assert keys[0] != keys[1] and key(job, str(tmp_path / "copy")) == keys[0], "the place of a file does not matter"


def weights(folder: Path, contents: bytes, name: str = "vit.safetensors") -> str:
    """A root with a file of these contents."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(contents)
    return str(folder)


@pytest.mark.parametrize(
    "job",
    [
        replace(
            ENTROPY, model="vitlab/upernet(backbone=\"timm/vit_tiny_patch16_224(weights='{root}/vit.safetensors')\")"
        ),
        replace(TRAINED, changes=(*SHORT, f"model={VIT[:-1]}, weights='{{root}}/vit.safetensors')")),
        replace(TRAINED, changes=(*SHORT, "objective.teacher=file/{root}/vit.safetensors")),
        replace(ENTROPY, model="hf/{root}"),
    ],
    ids=["nested", "recipe", "teacher", "folder"],
)
def test_weights_are_found_in_nested_expressions(job: Job, tmp_path: Path) -> None:
    one, two = weights(tmp_path / "one", b"one"), weights(tmp_path / "two", b"two")
    assert key(job, one) != key(job, two)
    assert key(job, one) == key(job, weights(tmp_path / "copy", b"one")), "the place of a file does not matter"


def pictures(root: Path, count: int, color: int = 0) -> str:
    """A root whose folder `photos` has images of two classes."""
    for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (root / "photos" / name).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            Image.new("RGB", (8, 8), (color, 0, 0)).save(root / "photos" / name / f"{index}.png")
    return str(root)


@pytest.mark.parametrize(
    "job",
    [
        replace(ENTROPY, data="folder('photos')"),
        replace(ENTROPY, data="folder('{root}/photos')"),
        replace(TRAINED, changes=(*SHORT, "data=folder('photos')")),
        replace(ENTROPY, model="", recipe="quick", changes=(*SHORT, "data=folder('photos')"), data=None),
    ],
    ids=["relative", "root", "training", "measured"],
)
def test_the_data_below_the_root_change_the_key(job: Job, tmp_path: Path) -> None:
    """A sample and the full set under one expression, and no set at all, have different keys."""
    sample, full = pictures(tmp_path / "sample", 2), pictures(tmp_path / "full", 3)
    keys = {key(job, root) for root in (sample, full, str(tmp_path))}
    assert len(keys) == 3
    assert key(job, pictures(tmp_path / "copy", 2)) == key(job, sample), "the place of the files does not matter"
    runs = {run.key(root) for root in (sample, full) for run in work_of(job).needs}
    assert len(runs) == (2 if job.recipe else 0)


@pytest.mark.parametrize(
    "kind", ["folder('{path}')", "{path}", "pairs(images='{path}/val/cat', labels='{path}/val/dog', classes=2)"]
)
def test_data_by_an_absolute_path_needs_no_root(kind: str, tmp_path: Path) -> None:
    job = replace(ENTROPY, data=kind.replace("{path}", str(tmp_path / "photos")))
    missing = key(job)
    pictures(tmp_path, 2)
    clear_key_cache()
    found = key(job)
    pictures(tmp_path, 3)
    clear_key_cache()
    assert len({missing, found, key(job)}) == 3


def test_a_plan_detects_changed_files(tmp_path: Path) -> None:
    """The same root with more images: what is stored of the sample is not used."""
    job, root = replace(ENTROPY, data="folder('photos')"), pictures(tmp_path, 2)
    before = key(job, root)
    pictures(tmp_path, 3)
    Plan([], "small", tmp_path, root)
    assert key(job, root) != before


@pytest.mark.parametrize(
    "data", ["folder('photos')", "pairs(images='{root}/photos/val/dog', labels='{root}/photos/val/cat', classes=2)"]
)
def test_an_image_of_equal_size_with_another_content_changes_the_key(data: str, tmp_path: Path) -> None:
    job = replace(ENTROPY, data=data)
    red, dark = pictures(tmp_path / "red", 2, color=200), pictures(tmp_path / "dark", 2, color=100)
    name = "photos/val/dog/1.png"
    assert Path(red, name).stat().st_size == Path(dark, name).stat().st_size
    assert key(job, red) != key(job, dark)


def test_the_end_of_a_long_file_counts(tmp_path: Path) -> None:
    """Two pictures without compression that differ in their last row only; their first 100 kB are equal."""
    keys = []
    for name, color in (("one", 1), ("two", 2)):
        root = pictures(tmp_path / name, 1)
        image = Image.new("RGB", (200, 200))
        image.paste((color, 0, 0), (0, 0, 200, 1))  # bmp stores the last row first
        image.save(Path(root, "photos/val/dog/long.bmp"))
        keys.append(key(replace(ENTROPY, data="folder('photos')"), root))
    assert keys[0] != keys[1]


def test_files_of_a_stress_test_change_the_key(tmp_path: Path) -> None:
    job = replace(ENTROPY, procedure="imagenet_a", data=None)
    one, more = tmp_path / "one", tmp_path / "more"
    for root, count in ((one, 1), (more, 2)):
        for index in range(count):
            weights(root, b"image", f"imagenet-a/n01498041/{index}.jpg")
    before = key(job, str(one))
    assert before != key(job, str(more))
    weights(one, b"another set", "imagenet-r/n01498041/0.jpg")
    clear_key_cache()
    assert key(job, str(one)) == before, "sets that the test does not read"


def test_code_changes_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the training, of the preprocessing and of the instrument."""
    jobs, real = [ENTROPY, TRAINED], work.code_version
    for module, changed in (
        ("vitlab.tasks.classification", [False, True]),
        ("vitlab.preprocessing", [True, False]),
        ("vitlab.instruments.attention_entropy", [True, False]),
        ("vitlab.experiments.training_curve", [False, True]),
    ):
        before = [key(job) for job in jobs]
        with monkeypatch.context() as patch:
            patch.setattr(work, "code_version", lambda name, m=module: "new" if name == m else real(name))
            clear_key_cache()
            assert [key(job) != old for job, old in zip(jobs, before, strict=True)] == changed, module
        clear_key_cache()


def test_runs_come_before_the_runs_that_start_from_them() -> None:
    second = Job(
        "b", "training", recipe="quick", changes=(f"model={VIT[:-1]}, weights='{{trained}}')",), trained="quick"
    )
    runs, works = all_work([second, TRAINED, replace(second, arm="c")])
    assert len(works) == 2
    assert [run.key() for run in runs] == [
        Training("quick").key(),
        work_of(second).needs[1].key(),
        work_of(TRAINED).needs[0].key(),
    ]


def test_counting_does_not_train() -> None:
    runs, works = all_work([replace(TRAINED, procedure="sizes"), replace(TRAINED, procedure="blocks")])
    assert runs == [] and len(works) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": VIT, "trained": "quick"}, "trained"),
        ({"model": "file/{trained}"}, "trained"),
        ({"model": VIT, "recipe": "quick"}, "one of model= and recipe="),
    ],
)
def test_contradictory_jobs_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(VitlabError, match=message):
        Job("a", "attention_entropy", **fields)


def test_an_unknown_procedure_is_named() -> None:
    with pytest.raises(VitlabError, match="attention_entropi"):
        key(replace(ENTROPY, procedure="attention_entropi"))
