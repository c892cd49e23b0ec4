"""Files that are there whole or not at all, tensors without pickle, and run folders that survive a crash.

RUN/recipe.json                      what was asked for
RUN/metrics.jsonl                    one line for each epoch, and for each step that log_every asks for, appended
RUN/checkpoints/step-*.safetensors   everything needed to go on, the newest few; a .json beside each has its checksum
RUN/snapshots/epoch-*.safetensors    weights kept for good, each a model that `file/PATH` loads; 0000: initial ones
RUN/model.safetensors                the last weights, likewise
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vitlab.core.errors import VitlabError
from vitlab.core.lock import locked

#: Files that `write_atomically` did not finish in a run folder; other commands may be writing other files there.
_UNFINISHED = tuple(
    f"{name}.*.partial"
    for name in (".recipe.json", ".metrics.jsonl", ".model*.safetensors", "checkpoints/.step-*", "snapshots/.epoch-*")
)


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that takes its name only when it is complete: a crash leaves the old one or none."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise VitlabError(
            f"{path} could not be written ({error.strerror}); what was there before is untouched"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: str | Path, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> str:
    """Write torch tensors and what they are as one safetensors file; returns its SHA-256."""
    from safetensors.torch import save

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    seen: set[int] = set()
    for name, tensor in plain.items():  # safetensors refuses two names for one memory, also where views overlap
        memory = tensor.untyped_storage().data_ptr()
        if memory in seen:
            plain[name] = tensor.clone()
        seen.add(memory)
    data = save(plain, metadata={"vitlab": json.dumps(dict(about))})
    with write_atomically(path) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


def read_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a safetensors file: its tensors, and what `write_tensors` said of them (empty for files of others)."""
    with _open_tensors(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, _about(file)  # noqa: SIM118 (no mapping)


def read_about(path: str | Path) -> dict[str, Any]:
    """What `write_tensors` said of a safetensors file, without reading its tensors (and without torch)."""
    with _open_tensors(path, "numpy") as file:
        return _about(file)


@contextmanager
def _open_tensors(path: str | Path, framework: str) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise VitlabError(f"there is no file {path}")
    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except (SafetensorError, ValueError) as error:
        raise VitlabError(
            f"{path} is no safetensors file ({error}); pickled checkpoints are not read: convert it"
        ) from error


def _about(file: Any) -> dict[str, Any]:
    return _mapping(json.loads((file.metadata() or {}).get("vitlab", "{}")))


@dataclass(frozen=True)
class Run:
    """A run folder."""

    folder: Path
    keep: int = 2

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process, and remove the unfinished files of a killed one."""
        with locked(self.folder):
            for pattern in _UNFINISHED:
                for file in self.folder.glob(pattern):
                    file.unlink(missing_ok=True)
            yield

    def claim(self, recipe: Mapping[str, Any]) -> None:
        """Make the folder this recipe's own, or find that it already is; another recipe's folder is refused."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "recipe.json"
        wanted = json.loads(json.dumps(recipe))
        if path.exists():
            found = _read_json(path)
            if found != wanted:
                changed = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
                raise VitlabError(
                    f"{self.folder} holds a run of another recipe (they differ in {', '.join(sorted(changed))}); "
                    "give another --out, or the same settings to go on with it"
                )
            return
        with write_atomically(path) as file:
            file.write(json.dumps(wanted, indent=1).encode())

    def save_checkpoint(self, step: int, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> Path:
        """Write a checkpoint with its checksum, then drop those older than the newest few."""
        path = self.folder / "checkpoints" / f"step-{step:09d}.safetensors"
        checksum = write_tensors(path, tensors, {**about, "step": step})
        with write_atomically(path.with_suffix(".json")) as file:
            file.write(json.dumps({"sha256": checksum, "step": step}).encode())
        for old in self._checkpoints()[self.keep :]:
            old.with_suffix(".json").unlink(missing_ok=True)
            old.unlink(missing_ok=True)
        return path

    def newest_checkpoint(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The newest checkpoint that is whole; damaged ones are set aside with a warning."""
        for path in self._checkpoints():
            try:
                expected = _read_json(path.with_suffix(".json"))["sha256"]
                if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
                    raise VitlabError("its checksum does not match")
                return read_tensors(path)
            except (OSError, ValueError, KeyError) as error:
                aside = path.with_suffix(".damaged")
                with suppress(FileNotFoundError):  # another process of this run may have been faster
                    path.replace(aside)
                warnings.warn(f"{path.name} is damaged ({error}) and was set aside as {aside.name}", stacklevel=2)
        return None

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a line to `metrics.jsonl`."""
        path = self.folder / "metrics.jsonl"
        try:
            with path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")  # a crash cut the last line short: this one must not be lost with it
                file.write(json.dumps(dict(row)).encode() + b"\n")
        except OSError as error:
            raise VitlabError(
                f"{path} could not be written ({error.strerror}); the same command resumes from the last checkpoint"
            ) from error

    def metrics(self) -> list[dict[str, Any]]:
        """All lines of `metrics.jsonl` that can be read; a last one that a crash cut short is left out."""
        return self._lines()[0]

    def epochs(self) -> list[dict[str, Any]]:
        """The lines of whole epochs; those of single steps, which `log_every` adds, are left out."""
        rows = [row for row in self.metrics() if "epoch" in row]
        return [row for row in rows if "step" not in row or "images_per_second" in row]

    def forget_after(self, step: int) -> None:
        """Drop the lines of steps that a resumed run will do again."""
        found, damaged = self._lines()
        if damaged:
            warnings.warn(f"metrics.jsonl: {damaged} damaged lines are dropped", stacklevel=2)
        if not found:
            return
        rows = [row for row in found if row.get("step", 0) <= step]
        with write_atomically(self.folder / "metrics.jsonl") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())

    def _lines(self) -> tuple[list[dict[str, Any]], int]:
        """The rows of `metrics.jsonl`, and how many lines are damaged, a last one without its end not counted."""
        path = self.folder / "metrics.jsonl"
        *lines, unfinished = path.read_bytes().split(b"\n") if path.exists() else [b""]
        rows = [_row(line) for line in lines if line.strip()]
        last = _row(unfinished)
        return [row for row in [*rows, last] if row is not None], rows.count(None)

    def _checkpoints(self) -> list[Path]:
        """Newest first."""
        return sorted((self.folder / "checkpoints").glob("step-*.safetensors"), reverse=True)


def _row(line: bytes) -> dict[str, Any] | None:
    """A line of metrics; None where it is damaged."""
    try:
        found = json.loads(line.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return _mapping(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise VitlabError(f"{path} is damaged ({error}); remove it, or give another folder") from error


def _mapping(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise VitlabError(f"found {type(found).__name__} where names and values were expected")
    return found
