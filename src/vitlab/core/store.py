"""Atomic file writes, tensors as safetensors files, and run folders that can be resumed after a crash.

RUN/recipe.json                      the recipe
RUN/metrics.jsonl                    one line per epoch, and one per `log_every` steps
RUN/checkpoints/step-*.safetensors   the newest checkpoints to resume from
RUN/snapshots/epoch-*.safetensors    weights that are saved permanently, loadable as `file/PATH`; 0000: initial weights
RUN/model.safetensors                the final weights, loadable as `file/PATH`
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

from vitlab.core.checksum import verify_tensor_file, with_checksums
from vitlab.core.errors import VitlabError
from vitlab.core.lock import locked
from vitlab.core.out_folder import remove_unfinished

#: Unfinished files of `write_atomically` in a run folder. Other names are omitted: other commands may be writing them.
_UNFINISHED = tuple(
    f"{name}.*.partial"
    for name in (".recipe.json", ".metrics.jsonl", ".model*.safetensors", "checkpoints/.step-*", "snapshots/.epoch-*")
)


@contextmanager
def write_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` when it is complete; after a crash the old file, if any, remains.

    Temporary files of processes that were killed while they wrote the same path are removed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        remove_unfinished(path)
    except OSError as error:
        raise VitlabError(
            f"{path} could not be written ({error.strerror}); an existing file was not changed"
        ) from error
    finally:
        with suppress(OSError):  # a path that is not a folder has raised the error above
            temporary.unlink(missing_ok=True)


def write_tensors(path: str | Path, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> None:
    """Write torch tensors, metadata and checksums of both to a safetensors file."""
    from safetensors.torch import save

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    seen: set[int] = set()
    for name, tensor in plain.items():  # safetensors does not accept two names for the same storage
        memory = tensor.untyped_storage().data_ptr()
        if memory in seen:
            plain[name] = tensor.clone()
        seen.add(memory)
    header, data = with_checksums(save(plain, metadata={"vitlab": json.dumps(dict(about))}))
    with write_atomically(path) as file:
        file.write(header)
        file.write(data)


def read_tensors(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns tensors and metadata of a safetensors file; the metadata of files that vitlab did not write is empty.

    Raises:
        VitlabError: if the file is not a safetensors file, or does not match the checksums in it.
    """
    with _open_tensors(path, "pt") as file:
        content = {name: file.get_tensor(name) for name in file.keys()}, _about(file)  # noqa: SIM118 (no mapping)
    verify_tensor_file(Path(path), tensors=True)
    return content


def read_about(path: str | Path) -> dict[str, Any]:
    """Returns the metadata of a safetensors file, without reading its tensors or importing torch."""
    with _open_tensors(path, "numpy") as file:
        about = _about(file)
    verify_tensor_file(Path(path), tensors=False)
    return about


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
            f"{path} is not a safetensors file, or is damaged ({error}); "
            "restore it from a copy; files of torch.save are read if they end in .pth or .pt"
        ) from error


def _about(file: Any) -> dict[str, Any]:
    return _mapping(json.loads((file.metadata() or {}).get("vitlab", "{}")))


@dataclass(frozen=True)
class Run:
    """A run folder.

    Args:
        folder: path of the folder.
        keep: number of checkpoints that are kept.
    """

    folder: Path
    keep: int = 2

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process and remove unfinished files of a killed run."""
        with locked(self.folder):
            for pattern in _UNFINISHED:
                for file in self.folder.glob(pattern):
                    file.unlink(missing_ok=True)
            yield

    def claim(self, recipe: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """Create the folder for a recipe; an existing folder must have been created with the same recipe.

        Args:
            recipe: the settings of the run.
            defaults: values of settings that a recipe stored by an earlier version does not have.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "recipe.json"
        wanted = json.loads(json.dumps(recipe))
        if path.exists():
            stored = _completed(_read_json(path), json.loads(json.dumps(defaults or {})))
            if stored != wanted:
                changed = [key for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]
                raise VitlabError(
                    f"{self.folder} holds a run of another recipe (they differ in {', '.join(sorted(changed))}); "
                    "give another --out, or the same settings to resume it"
                )
            return
        with write_atomically(path) as file:
            file.write(json.dumps(wanted, indent=1).encode())

    def save_checkpoint(self, step: int, tensors: Mapping[str, Any], about: Mapping[str, Any]) -> Path:
        """Write a checkpoint, then remove all but the newest `keep`."""
        path = self.folder / "checkpoints" / f"step-{step:09d}.safetensors"
        path.with_suffix(".json").unlink(missing_ok=True)  # checksum of a file that is replaced, of an earlier version
        write_tensors(path, tensors, {**about, "step": step})
        for old in self._checkpoints()[self.keep :]:
            old.with_suffix(".json").unlink(missing_ok=True)
            old.unlink(missing_ok=True)
        return path

    def newest_checkpoint(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Returns the newest intact checkpoint, or None; damaged ones are renamed with a warning."""
        for path in self._checkpoints():
            try:
                _compare_with_checksum_file(path)
                return read_tensors(path)
            except (OSError, ValueError, KeyError) as error:
                renamed = path.with_suffix(".damaged")
                with suppress(FileNotFoundError):  # another rank may already have renamed it
                    path.replace(renamed)
                warnings.warn(f"{path.name} is damaged ({error}) and was renamed to {renamed.name}", stacklevel=2)
        return None

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a line to `metrics.jsonl`."""
        path = self.folder / "metrics.jsonl"
        try:
            with path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        file.write(b"\n")  # the last line was truncated by a crash: start a new one
                file.write(json.dumps(dict(row)).encode() + b"\n")
        except OSError as error:
            raise VitlabError(
                f"{path} could not be written ({error.strerror}); the same command resumes from the last checkpoint"
            ) from error

    def metrics(self) -> list[dict[str, Any]]:
        """Returns all rows of `metrics.jsonl` that can be read; a last line truncated by a crash is omitted."""
        return self._lines()[0]

    def epochs(self) -> list[dict[str, Any]]:
        """Returns the rows of epochs; those of single steps, which `log_every` adds, are omitted."""
        rows = [row for row in self.metrics() if "epoch" in row]
        return [row for row in rows if "step" not in row or "images_per_second" in row]

    def remove_rows_after(self, step: int) -> None:
        """Remove the rows of steps that a resumed run will repeat."""
        all_rows, damaged = self._lines()
        if damaged:
            warnings.warn(f"metrics.jsonl: {damaged} damaged lines are removed", stacklevel=2)
        if not all_rows:
            return
        rows = [row for row in all_rows if row.get("step", 0) <= step]
        with write_atomically(self.folder / "metrics.jsonl") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())

    def _lines(self) -> tuple[list[dict[str, Any]], int]:
        """Returns the rows of `metrics.jsonl` and the number of damaged lines, without a truncated last line."""
        path = self.folder / "metrics.jsonl"
        try:
            *lines, unfinished = path.read_bytes().split(b"\n") if path.exists() else [b""]
        except OSError as error:
            raise VitlabError(f"{path} cannot be read ({error.strerror}); remove it, or give another folder") from error
        rows = [_row(line) for line in lines if line.strip()]
        last = _row(unfinished)
        return [row for row in [*rows, last] if row is not None], rows.count(None)

    def _checkpoints(self) -> list[Path]:
        """Returns the paths of all checkpoints, newest first."""
        return sorted((self.folder / "checkpoints").glob("step-*.safetensors"), reverse=True)


def _compare_with_checksum_file(path: Path) -> None:
    """Compare a checkpoint of an earlier version with the checksum in the .json file beside it, if there is one."""
    beside = path.with_suffix(".json")
    if beside.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != _read_json(beside)["sha256"]:
        raise VitlabError("its checksum does not match")


def _row(line: bytes) -> dict[str, Any] | None:
    """Parse a line of metrics; returns None if it is damaged."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step", 0), int | float) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return _mapping(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise VitlabError(f"{path} cannot be read ({error.strerror}); remove it, or give another folder") from error
    except (ValueError, RecursionError) as error:
        raise VitlabError(f"{path} is damaged ({error}); remove it, or give another folder") from error


def _completed(stored: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns stored settings, and the defaults of those that are not stored, in all groups."""
    groups = {key: _completed(stored[key], defaults[key]) for key in stored if isinstance(defaults.get(key), dict)}
    return {**defaults, **stored, **groups}


def _mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise VitlabError(f"expected names and values, got {type(data).__name__}")
    return data
