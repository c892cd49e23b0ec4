"""Downloads fail at once where there is no network: other libraries retry for a minute before they say so."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE = 3.0  # seconds; a server that takes longer to answer a connection counts as not reachable


@contextmanager
def downloading_from(address: str) -> Iterator[None]:
    """Let downloads in this context fail at once where the server cannot be reached.

    Files in a local cache are still found. Where the server is reachable, or where a proxy is configured, nothing
    changes.

    Args:
        address: of the server, such as `https://huggingface.co`; empty where nothing is downloaded.

    Raises:
        ConnectionError: the server cannot be reached, and a file is not in the cache.
    """
    by_proxy = not getproxies().keys().isdisjoint({"http", "https", "all"})
    reason = unreachable(address) if address and not by_proxy else ""
    if not reason:
        yield
        return
    try:
        with _without_network():
            yield
    except OSError as error:  # of huggingface_hub, transformers and urllib alike
        where = urlsplit(address).hostname
        raise ConnectionError(
            f"{where} cannot be reached ({reason}), and the files are not in the local cache; connect to the network, "
            "or leave pretrained out and give weights=FILE"
        ) from error


def unreachable(address: str) -> str:
    """Why a server cannot be reached; empty where it can.

    Args:
        address: of the server, with or without a port.

    >>> unreachable("http://name.invalid") != ""
    True
    """
    parts = urlsplit(address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    found = [f"no answer within {_PATIENCE:.0f} s"]

    def connect() -> None:
        try:
            socket.create_connection((parts.hostname or "", port), timeout=_PATIENCE).close()
            found[0] = ""
        except OSError as error:
            found[0] = error.strerror or str(error)

    trial = threading.Thread(target=connect, daemon=True)  # looking up a name takes no timeout
    trial.start()
    trial.join(_PATIENCE)
    return found[0]


@contextmanager
def _without_network() -> Iterator[None]:
    """Tell huggingface_hub that there is no network, and keep other sockets from waiting for long."""
    from huggingface_hub import constants

    offline, timeout = constants.HF_HUB_OFFLINE, socket.getdefaulttimeout()
    constants.HF_HUB_OFFLINE = True
    socket.setdefaulttimeout(1.0)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        socket.setdefaulttimeout(timeout)
