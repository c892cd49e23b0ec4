"""The command line: commands, exit codes, one-line errors."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import warnings
from pathlib import Path

import numpy as np
import pytest

from vitlab.cli.commands import main
from vitlab.core import plugins

ROOT = Path(__file__).resolve().parents[2]
TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3, num_classes=25)"
FEW = ("--data", "scenes(train=1, test=64)", "--images", "4")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def vitlab(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vitlab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=folder or ROOT, check=False)


def on_a_terminal(*arguments: str, folder: Path, stop_at: str = "") -> tuple[int, str, str]:
    """Exit code, stdout (a pipe) and what was drawn on a terminal of 160 columns; Ctrl-C when a word appears there."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    variables = {**environment(), "TERM": "xterm", "COLUMNS": "160"}
    command = [sys.executable, "-m", "vitlab", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=variables,
        cwd=folder,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores Ctrl-C
    )
    os.close(slave)
    drawn = b""
    while block := _read(master):
        drawn += block
        if stop_at and stop_at.encode() in drawn:
            process.send_signal(signal.SIGINT)
            stop_at = ""
    printed, _ = process.communicate()
    return process.returncode, printed, drawn.decode()


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def test_help_names_the_verbs() -> None:
    text = vitlab("--help").stdout
    assert all(verb in text for verb in ("list", "describe", "measure", "stress", "train", "report", "demo"))
    assert "Exit codes: 0 success, 1 internal error or failed job, 2 invalid input" in " ".join(text.split())
    bare = vitlab()
    assert bare.returncode == 0 and bare.stdout == text


@pytest.mark.parametrize("verb", ["list", "describe", "measure", "stress", "train", "report"])
def test_every_command_has_quiet_and_json(verb: str) -> None:
    text = vitlab(verb, "--help").stdout
    assert "--json" in text and "--quiet" in text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("parts", "ContextBroadcast"),
        ("families", "deit"),
        ("instruments", "attention_entropy"),
        ("stress", "corruptions"),
        ("recipes", "quick"),
    ],
)
def test_list_prints_one_name_per_line_when_piped(kind: str, name: str) -> None:
    found = vitlab("list", kind)
    lines = found.stdout.splitlines()
    assert name in lines and all(" " not in line for line in lines)
    assert f"{len(lines)} {kind}" in found.stderr
    assert name in json.loads(vitlab("list", kind, "--json").stdout)


@pytest.mark.parametrize(("kind", "known"), [("instruments", plugins.instruments), ("stress", plugins.stress_tests)])
def test_cards_are_listed(kind: str, known) -> None:
    """Cards read without an import equal those of the imported modules."""
    import importlib
    from dataclasses import asdict

    listed = json.loads(vitlab("list", kind, "--json").stdout)
    for name, module in known().items():
        card = asdict(importlib.import_module(module).CARD)
        assert {**card, **listed[name], "needs": card["needs"]} == card
        assert tuple(listed[name].get("needs", ())) == card["needs"]


def test_a_terminal_shows_cards(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "vitlab", "list", "stress"]
    variables = {**environment(), "COLUMNS": "400", "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env=variables)
    os.close(slave)
    text = b""
    while block := _read(master):
        text += block
    assert process.wait() == 0
    (row,) = (line for line in text.decode().splitlines() if line.strip().startswith("occlusion"))
    printed = " ".join(row.split())
    assert "Accuracy under a centre mask" in printed and "CB Table 8" in printed and "7 by default" in printed
    assert printed.endswith("labelled images several")


def test_the_families_are_counted() -> None:
    count = int(vitlab("list", "families").stderr.split()[0])
    assert count >= 34


@pytest.mark.slow
def test_describe_prints_family_weights_and_seams() -> None:
    text = vitlab("describe", TINY).stdout
    assert "family vit" in text and "weights: random" in text and "mlp.out" in text and "4x4" in text
    plain = json.loads(vitlab("describe", TINY, "--json").stdout)
    assert plain["blocks"][0]["seams"]["mlp.out"]["dim"] == 24
    fitted = json.loads(vitlab("describe", f"{TINY} | ContextBroadcast", "--json").stdout)
    assert plain["model"]["origin"] == "random" == plain["weights"] and plain["model"]["parts"] == []
    assert [part["name"] for part in fitted["model"]["parts"]] == ["ContextBroadcast"]
    assert fitted["model"]["weights"] != plain["model"]["weights"]
    assert plain["output_change"] is None and fitted["output_change"] > 0.01
    unchanged = vitlab("describe", f"{TINY} | ContextBroadcast(identity_init=True)").stdout
    assert "ContextBroadcast: relative change of the outputs 0, on noise images" in " ".join(unchanged.split())


@pytest.mark.slow
def test_describe_prints_the_kernels_that_run() -> None:
    paths = json.loads(vitlab("describe", f"{TINY} | TokenAwarePooling", "--kernels", "--json").stdout)
    of_attention = {"attention", "attention_diversity", "attention_statistics", "twin_products"}
    assert {path["operator"] for path in paths} == {"token_pooling", *of_attention}
    assert all((path["form"] == "triton") == (path["reason"] == "") for path in paths)
    text = vitlab("describe", TINY, "--kernels").stdout
    assert text.count("attention_statistics") == 1 and "token_pooling" not in text
    assert "blocks.0 to blocks.1" in text, "blocks with the same form and reason are one row"


def test_measure_and_report(tmp_path: Path) -> None:
    found = vitlab("measure", TINY, "--with", "attention_entropy,calibration(bins=5)", *FEW, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    paths = found.stdout.split()
    assert len(paths) == 2 and all((tmp_path / path).exists() for path in paths)
    stamp = (tmp_path / paths[0]).stat().st_mtime_ns
    again = vitlab("measure", TINY, "--with", "attention_entropy", *FEW, folder=tmp_path)
    assert again.returncode == 0 and (tmp_path / paths[0]).stat().st_mtime_ns == stamp, "measured again"
    made = vitlab("report", "runs/measure", "-o", "page.html", "--title", "Mine & yours", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "page.html").read_text()
    assert "Attention entropy" in text and "<h1>Mine &amp; yours</h1>" in text
    printed = json.loads(vitlab("report", "runs/measure", "-o", "page.html", "--json", folder=tmp_path).stdout)
    assert printed == {"path": "page.html", "measurements": 2}


@pytest.mark.slow
def test_random_models_are_named(tmp_path: Path) -> None:
    models = (TINY, f"{TINY} | ContextBroadcast")
    asked = ("measure", *models, "--with", "calibration", *FEW, "--json")
    rows = [
        json.loads(vitlab(*asked, *names, folder=tmp_path).stdout) for names in ((), ("--name", "a", "--name", "b"))
    ]
    assert [row["subject"] for row in rows[0]] == list(models) and [row["subject"] for row in rows[1]] == ["a", "b"]
    for before, after, name, text in zip(*rows, ("a", "b"), models, strict=True):
        assert before["path"] == after["path"] and before["values"] == after["values"]
        assert after["model"] == {**before["model"], "name": name} and before["model"]["expression"] == text
    found = vitlab(*asked[:-1], "--name", "a", "--name", "b", folder=tmp_path)
    digests = [row["model"]["weights"][:6] for row in rows[1]]
    assert [line for line in found.stderr.splitlines() if line.startswith(("a:", "b:"))] == [
        f"a: weights random ({digests[0]})",
        f"b: weights random ({digests[1]}), ContextBroadcast at mlp.out",
    ]
    wrong = vitlab(*asked, "--name", "only", folder=tmp_path)
    assert wrong.returncode == 2 and "1 names were given for 2 models" in wrong.stderr


def test_json_and_repeats(tmp_path: Path) -> None:
    asked = ("measure", TINY, "--with", "calibration,attention_entropy", *FEW, "--repeats", "2", "--json", "--quiet")
    found = vitlab(*asked, folder=tmp_path)
    assert found.returncode == 0 and not found.stderr
    rows = json.loads(found.stdout)
    assert [Path(row["path"]).name for row in rows] == [
        f"{kind}.part{part}of2.json" for kind in ("calibration", "attention_entropy") for part in (1, 2)
    ]
    for row in rows:
        stored = np.load((tmp_path / row["path"]).with_suffix(".npz"))
        single = {name: float(stored[name]) for name in stored.files if not stored[name].ndim}
        assert row["values"] == single and row["subject"] == TINY
        assert json.loads((tmp_path / row["path"]).read_text())["kind"] == row["kind"]
    assert "nll" in rows[0]["values"] and rows[0]["values"] != rows[1]["values"]


def test_numbers_that_are_not_finite_are_null_in_json(tmp_path: Path) -> None:
    asked = ("stress", TINY, "--with", "corruptions(names='fog', severities=1)", *FEW, "--json")
    found = vitlab(*asked, folder=tmp_path)
    (row,) = json.loads(found.stdout, parse_constant=pytest.fail)
    assert row["values"]["mce"] is None and 0 <= row["values"]["mean_accuracy"] <= 1


@pytest.mark.slow
def test_progress_is_drawn_on_a_terminal_and_results_are_printed_beside_it(tmp_path: Path) -> None:
    many = ("--data", "scenes(train=1, test=1024)", "--images", "1024")  # corruptions last far longer than one refresh
    asked = ("stress", TINY, "--with", "occlusion,corruptions")
    code, printed, drawn = on_a_terminal(*asked, *many, folder=tmp_path, stop_at="/76")
    assert code == 130 and "vitlab: interrupted" in drawn and "Traceback" not in drawn
    assert [Path(line).name for line in printed.splitlines()] == ["occlusion.json"]
    assert f"corruptions of {TINY[:20]}" in drawn and "/76" in drawn and "0:00:" in drawn and "1/2" in drawn
    code, printed, drawn = on_a_terminal(*asked, *FEW, folder=tmp_path)
    assert code == 0 and [Path(line).stem for line in printed.splitlines()] == ["occlusion", "corruptions"]
    code, printed, drawn = on_a_terminal(*asked, *FEW, "--quiet", folder=tmp_path)
    assert code == 0 and len(printed.splitlines()) == 2 and not drawn


def test_stress(tmp_path: Path) -> None:
    asked = (
        "corruptions(names=('fog', 'snow'), severities=3),patch_shuffle(seed=1, grids=(2, 4)),shape_texture(count=9)"
    )
    found = vitlab("stress", TINY, "--with", asked, *FEW, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    paths = [tmp_path / path for path in found.stdout.split()]
    assert [path.stem.partition("-")[0] for path in paths] == ["corruptions", "patch_shuffle", "shape_texture"]
    assert json.loads(paths[1].read_text())["settings"]["grids"] == [2, 4]
    stamps = [path.stat().st_mtime_ns for path in paths]
    assert "not the full" not in found.stderr, "50,000 is the size of ImageNet's validation set"
    assert found.stderr.count("random weights") == 1 and f"{TINY}: weights random (" in found.stderr
    assert vitlab("stress", TINY, "--with", asked, *FEW, "--quiet", folder=tmp_path).stderr == ""
    assert [path.stat().st_mtime_ns for path in paths] == stamps, "measured again"


def test_train(tmp_path: Path) -> None:
    arguments = ("train", "quick(images=64, epochs=1)", "--out", "run", "--set", "batch_size=32", "--device", "cpu")
    found = vitlab(*arguments, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "top-1 accuracy" in found.stdout and (tmp_path / "run/model.safetensors").exists()
    row = json.loads(vitlab(*arguments, "--json", "--quiet", folder=tmp_path).stdout)
    assert row["top1"] == json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])["top1"]


def test_the_training_bar_is_on_stderr_and_shows_epoch_and_accuracy(tmp_path: Path) -> None:
    arguments = ("train", "quick(images=64, epochs=3)", "--out", "run", "--device", "cpu")
    code, printed, drawn = on_a_terminal(*arguments, folder=tmp_path)
    assert code == 0 and len(printed.splitlines()) == 1 and printed.startswith("step ")
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert "epoch 3/3" in drawn and f"top-1 {rows[1]['top1']:.1f} %" in drawn and "images/s" in drawn


@pytest.mark.slow
def test_only_rank_0_prints(tmp_path: Path) -> None:
    """Two processes, as torchrun starts them, in a folder with a damaged checkpoint, of which each would warn."""
    arguments = (
        "train",
        "quick(images=64, epochs=1)",
        "--out",
        "run",
        "--device",
        "cpu",
        "--set",
        "checkpoint_every=1",
    )
    assert vitlab(*arguments, folder=tmp_path).returncode == 0
    newest = max((tmp_path / "run/checkpoints").glob("*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-9])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(2):
        of_torchrun = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "vitlab", *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment(), **of_torchrun},
                cwd=tmp_path,
            )
        )
    (first, first_said), (second, second_said) = (process.communicate(timeout=180) for process in processes)
    assert "top-1 accuracy" in first and "is damaged" in first_said, first_said
    assert "top-1 accuracy" not in second and "vitlab" not in second_said and "Warning" not in second_said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "partz"), "did you mean 'parts'"),
        (("describe", "timmm/x"), "did you mean 'timm'"),
        (("describe", "timm/vit_tiny_patch16_244"), "vit_tiny_patch16_224"),
        (("describe", "timm/x(__import__('os').system('true'))"), "key=value"),
        (("describe", TINY, "--size", "big"), "224x320"),
        (("measure", TINY, "--with", "entropy"), "attention_entropy"),
        (("measure", TINY, "--data", "cifra100"), "did you mean 'cifar100'"),
        (("stress", TINY, "--with", "corruption"), "did you mean 'corruptions'"),
        (("stress", TINY, "--with", ""), "no stress test was named; give --with"),
        (("measure", TINY, "--with", " , "), "no instrument was named; give --with"),
        (
            ("stress", TINY, "--with", "corruptions(name='fog')"),
            "no setting of corruptions 'name' (did you mean 'names'?)",
        ),
        (("stress", TINY, "--with", "occlusion(x=((1,2),(3,4)), y='p,q'), corruptions"), "no setting of occlusion 'x'"),
        (("stress", TINY, "--with", "occlusion(subject=1)"), "no setting of occlusion 'subject'"),
        (("measure", TINY, "--with", "lesion(model=1)"), "no setting of lesion 'model'"),
        (("measure", TINY, "--with", "calibration(bin=5)"), "did you mean 'bins'"),
        (("train", "qick"), "did you mean 'quick'"),
        (("train", "quick", "--set", "optimizer.lrr=1"), "lr"),
        (("report", "nowhere"), "nowhere"),
        (("measure", TINY, "--imges", "4"), "--images"),
        (("measure", TINY, "--images", "many"), "'--images'"),
        (("measure", TINY, "--images", "2", "--repeats", "3"), "repeats=3"),
        (("measure",), "models"),
        (("measrue", TINY), "Did you mean 'measure'"),
        (("measure", TINY, *FEW, "--out", "/dev/null/x"), "/dev/null/x"),
        (("stress", TINY, "--with", "imagenet_c", "--root", "nowhere"), "--root"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_two(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In this process: the import of torch in a new one takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["vitlab", *arguments])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as exit_of:
        main()
    errors = capsys.readouterr().err
    assert exit_of.value.code == 2, errors
    assert message in errors and "Traceback" not in errors
    assert len(errors.strip().splitlines()) == 1
