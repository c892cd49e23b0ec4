"""Atomic writes, and run folders after crashes and with damaged files."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitlab.core.errors import VitlabError
from vitlab.core.store import Run, read_tensors, write_atomically, write_tensors


@pytest.mark.parametrize("raised", [RuntimeError("x"), OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(raised: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with write_atomically(path) as file:
        file.write(b"old")
    with pytest.raises(VitlabError if isinstance(raised, OSError) else type(raised)), write_atomically(path) as file:
        file.write(b"half")
        raise raised
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.bin"]


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with write_atomically(path) as file:
        file.write(b"new")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"


def test_a_missing_folder_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="could not be written .No such file"), write_atomically(tmp_path / "no/a"):
        pass


def test_tensors_are_read_bit_for_bit_also_by_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.safetensors"
    tensors = {
        "float": torch.randn(3, 4),
        "nan": torch.tensor([float("nan"), -0.0]),
        "half": torch.randn(2).bfloat16(),
        "int": torch.tensor(7),
        "bool": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "view": torch.arange(6.0).reshape(2, 3).T,
        "leaf": torch.nn.Parameter(torch.ones(2)),
    }
    write_tensors(path, tensors, {"model": "timm/x", "list": [1, None]})
    found, about = read_tensors(path)
    assert about == {"model": "timm/x", "list": [1, None]}
    for other in (found, load_file(path)):
        assert other.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert other[name].dtype == tensor.dtype
            assert torch.equal(other[name].nan_to_num(9.0), tensor.detach().nan_to_num(9.0)), name


def test_tensors_that_share_memory_are_written_separately(tmp_path: Path) -> None:
    base = torch.arange(10.0)
    tensors = {"a": base, "tied": base, "overlap": base[2:7], "later": base[5:]}
    write_tensors(tmp_path / "t", tensors, {})
    found, _ = read_tensors(tmp_path / "t")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())
    assert torch.equal(base, torch.arange(10.0))


def test_foreign_files_are_read_or_raise_a_one_line_error(tmp_path: Path) -> None:
    save_file({"x": torch.ones(2)}, tmp_path / "plain")
    tensors, about = read_tensors(tmp_path / "plain")
    assert about == {} and tensors["x"].sum() == 2
    torch.save({"x": torch.ones(2)}, tmp_path / "pickled.pt")
    (tmp_path / "raw.pkl").write_bytes(pickle.dumps([1]))
    (tmp_path / "empty").write_bytes(b"")
    for metadata in ("[]", "3", "{"):
        save_file(
            {"x": torch.ones(2)}, tmp_path / f"odd{len(metadata)}{ord(metadata[0])}", metadata={"vitlab": metadata}
        )
    bad = [path for path in tmp_path.iterdir() if path.name != "plain"]
    assert len(bad) == 6
    for path in bad:
        with pytest.raises(VitlabError, match="is not a safetensors file") as caught:
            read_tensors(path)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(VitlabError, match="there is no file"):
        read_tensors(tmp_path / "missing")
    with pytest.raises(VitlabError, match="there is no file"):
        read_tensors(tmp_path)


# -- run folders ------------------------------------------------------------------------------------------------------


def save(run: Run, *steps: int) -> None:
    for step in steps:
        run.save_checkpoint(step, {"x": torch.full((50,), float(step))}, {"epoch": step * 10})


def newest(run: Run) -> int:
    tensors, about = run.newest_checkpoint()
    assert about["epoch"] == 10 * about["step"] and (tensors["x"] == about["step"]).all()
    return about["step"]


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.newest_checkpoint() is None
    save(run, 9, 10, 200, 1000)
    stems = {"step-000000200", "step-000001000"}
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {f"{stem}.safetensors" for stem in stems}
    assert newest(run) == 1000


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def checksum_file(text: str) -> Callable[[Path], object]:
    """Write a checksum beside a checkpoint, as earlier versions did."""
    return lambda path: path.with_suffix(".json").write_text(text)


DAMAGE = {
    "a flipped bit": flip,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_bytes(b""),
    "another checksum": checksum_file(json.dumps({"sha256": "0" * 64})),
    "a cut checksum": checksum_file('{"sha'),
    "no such key": checksum_file("{}"),
    "another kind of checksum": checksum_file("[]"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_renamed_and_the_previous_one_used(damage: object, tmp_path: Path) -> None:
    run = Run(tmp_path)
    save(run, 1, 2)
    path = tmp_path / "checkpoints/step-000000002.safetensors"
    damage(path)
    left = path.read_bytes()
    with pytest.warns(UserWarning, match=r"step-000000002.safetensors is damaged .* renamed to step-000000002.damaged"):
        assert newest(run) == 1
    assert path.with_suffix(".damaged").read_bytes() == left and not path.exists()
    save(run, 2)
    assert newest(run) == 2
    save(run, 3)
    assert newest(run) == 3


def test_a_checkpoint_of_an_earlier_version_is_compared_with_the_checksum_beside_it(tmp_path: Path) -> None:
    run, path = Run(tmp_path), tmp_path / "checkpoints/step-000000002.safetensors"
    save(run, 1)
    metadata = {"vitlab": json.dumps({"step": 2, "epoch": 20})}
    save_file({"x": torch.full((50,), 2.0)}, path, metadata=metadata)
    path.with_suffix(".json").write_text(json.dumps({"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}))
    assert newest(run) == 2
    flip(path)
    with pytest.warns(UserWarning, match=r"step-000000002.safetensors is damaged .its checksum does not match"):
        assert newest(run) == 1
    save(run, 2)
    assert newest(run) == 2


def test_without_a_valid_checkpoint_the_result_is_none(tmp_path: Path) -> None:
    run = Run(tmp_path)
    save(run, 1, 2)
    for path in (tmp_path / "checkpoints").glob("*.safetensors"):
        flip(path)
    with pytest.warns(UserWarning, match="damaged"):
        assert run.newest_checkpoint() is None


def test_another_process_may_rename_a_damaged_checkpoint_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, replace = Run(tmp_path), Path.replace
    save(run, 1, 2)
    flip(tmp_path / "checkpoints/step-000000002.safetensors")

    def replace_late(path: Path, target: Path) -> Path:
        replace(path, target)  # by the other process
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace_late)
    with pytest.warns(UserWarning, match="damaged"):
        assert newest(run) == 1


def test_settings_that_a_stored_recipe_lacks_have_their_defaults(tmp_path: Path) -> None:
    stored = {"epochs": 3, "optimizer": {"lr": 0.1}}
    Run(tmp_path / "run").claim(stored)
    defaults = {"epochs": 1, "task": "a", "optimizer": {"lr": 1.0, "power": 2.0}}
    now = {"epochs": 3, "task": "a", "optimizer": {"lr": 0.1, "power": 2.0}}
    Run(tmp_path / "run").claim(now, defaults)
    with pytest.raises(VitlabError, match="differ in optimizer"):
        Run(tmp_path / "run").claim({**now, "optimizer": {"lr": 0.1, "power": 3.0}}, defaults)
    with pytest.raises(VitlabError, match="differ in task"):
        Run(tmp_path / "run").claim({**now, "task": "b"}, defaults)


def test_a_folder_belongs_to_one_recipe(tmp_path: Path) -> None:
    run = Run(tmp_path / "new" / "run")
    recipe = {"epochs": 3, "size": (32, 32), "optimizer": {"lr": 0.1, "clip": 0.0}}
    run.claim(recipe)
    run.claim(recipe)  # tuples are lists in the file, and yet the same
    assert json.loads((run.folder / "recipe.json").read_text()) == {**recipe, "size": [32, 32]}
    with pytest.raises(VitlabError, match=r"another recipe \(they differ in epochs, optimizer\); give another --out"):
        run.claim({**recipe, "epochs": 4, "optimizer": {"lr": 0.2, "clip": 0.0}})
    with pytest.raises(VitlabError, match=r"differ in extra"):
        run.claim({**recipe, "extra": 1})
    assert json.loads((run.folder / "recipe.json").read_text())["epochs"] == 3


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_recipe_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(VitlabError, match=r"recipe.json is damaged .* remove it"):
        Run(tmp_path).claim({"epochs": 1})


def test_metrics_with_a_truncated_line_are_read(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.metrics() == []
    rows = [{"step": step, "loss": 1 / step} for step in (1, 2, 3)]
    run.log(rows[0])
    run.log(rows[1])
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 3, "lo')
    assert run.metrics() == rows[:2]
    run.log(rows[2])  # the same step again, after a crash
    assert run.metrics() == rows


def test_a_resumed_run_removes_rows_that_it_will_repeat(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for step in (1, 2, 3, 4):
        run.log({"step": step})
    run.remove_rows_after(2)
    assert run.metrics() == [{"step": 1}, {"step": 2}]
    run.remove_rows_after(0)
    assert run.metrics() == []


@pytest.mark.parametrize("bad", [b"\xff", b"\x00", b"\x85", b'"', b"\n"])
def test_one_bad_byte_loses_one_line_of_the_metrics(bad: bytes, tmp_path: Path) -> None:
    run = Run(tmp_path)
    rows = [{"step": step, "note": "x" * 20} for step in (1, 2, 3)]
    for row in rows:
        run.log(row)
    path = tmp_path / "metrics.jsonl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 - 3 : len(data) // 2 - 2] = bad
    path.write_bytes(bytes(data))
    assert run.metrics() == [rows[0], rows[2]]
    with pytest.warns(UserWarning, match=r"metrics.jsonl: \d damaged lines are removed"):
        run.remove_rows_after(3)
    assert run.metrics() == [rows[0], rows[2]] and path.read_bytes().count(b"\n") == 2


def test_a_row_without_a_numeric_step_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": "two"}\n{"step": null}\n{"epoch": 3}\n')
    run = Run(tmp_path)
    with pytest.warns(UserWarning, match=r"metrics.jsonl: 2 damaged lines are removed"):
        run.remove_rows_after(3)
    assert run.metrics() == [{"step": 1}, {"epoch": 3}]


def test_a_folder_in_place_of_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    (tmp_path / "recipe.json").mkdir()
    run = Run(tmp_path)
    for use in (run.metrics, lambda: run.remove_rows_after(1), lambda: run.log({"step": 1})):
        with pytest.raises(VitlabError, match=r"metrics.jsonl (cannot be read|could not be written) .Is a directory."):
            use()
    with pytest.raises(VitlabError, match=r"recipe.json"):
        run.claim({"epochs": 1})


def test_a_path_below_a_file_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path / "file" / "page.html"
    with pytest.raises(VitlabError, match=r"/page.html could not be written"), write_atomically(path) as file:
        file.write(b"x")


def test_lines_that_are_not_rows_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('3\n[1]\n\n{"step": 1}\nnull\n')
    assert Run(tmp_path).metrics() == [{"step": 1}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device that is always full is one of Linux")
def test_a_full_disk_while_metrics_are_appended_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(VitlabError, match=r"metrics.jsonl could not be written \(No space left on device\)") as caught:
        Run(tmp_path).log({"step": 1})
    assert "\n" not in str(caught.value)


def test_unfinished_files_of_a_killed_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    gone = ["checkpoints/.step-000000002.safetensors.77.partial", "snapshots/.epoch-0001.safetensors.77.partial"]
    gone += [".metrics.jsonl.77.partial", ".model_ema.safetensors.77.partial", ".recipe.json.77.partial"]
    stay = ["measurements/.x.json.77.partial", ".report.html.77.partial", "checkpoints/step-000000002.safetensors"]
    for name in (*gone, *stay):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    with Run(tmp_path).locked():
        assert not any((tmp_path / name).exists() for name in gone)
        assert all((tmp_path / name).exists() for name in stay)
