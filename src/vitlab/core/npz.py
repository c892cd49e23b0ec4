"""Read npz files without pickles."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np

from vitlab.core.errors import VitlabError


def read_npz(file: Path | IO[bytes]) -> dict[str, np.ndarray]:
    """Returns the arrays of an npz file by name.

    Raises:
        VitlabError: if the file is missing, damaged, or contains Python objects.
    """
    try:
        with np.load(file, allow_pickle=False) as pack:
            return {name: pack[name] for name in pack.files}
    except Exception as error:  # numpy and zipfile raise exceptions of many types for damaged files
        raise VitlabError(" ".join(str(error).split()) or type(error).__name__) from error
