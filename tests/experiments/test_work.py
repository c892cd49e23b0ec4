"""Keys: equal inputs have equal keys, and every input that changes a result changes the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.small import ENTROPY, TRAINED, VIT
from vitlab.core.errors import VitlabError
from vitlab.core.experiment import Job
from vitlab.experiments.work import Training, all_work, work_of


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
    assert work_of(replace(TRAINED, **change)).runs[0].key != work_of(TRAINED).runs[0].key


def test_settings_are_compared_resolved() -> None:
    """A recipe and the same recipe with its defaults written out are one run."""
    assert Training("quick").key == Training("quick(epochs=8, images=1536)").key == Training("quick", ("epochs=8",)).key
    assert Training("quick").key != Training("quick", ("optimizer.lr=0.1",)).key


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


def test_runs_come_before_the_runs_that_start_from_them() -> None:
    second = Job(
        "b", "training", recipe="quick", changes=(f"model={VIT[:-1]}, weights='{{trained}}')",), trained="quick"
    )
    groups, works = all_work([TRAINED, second, replace(second, arm="c")])
    assert len(works) == 2
    assert [{run.key for run in group} for group in groups] == [
        {work_of(TRAINED).runs[0].key, Training("quick").key},
        {work_of(second).runs[1].key},
    ]


def test_counting_does_not_train() -> None:
    groups, works = all_work([replace(TRAINED, procedure="sizes"), replace(TRAINED, procedure="blocks")])
    assert groups == [] and len(works) == 2


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
