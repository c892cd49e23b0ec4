"""Make downloads fail immediately without a network; other libraries retry for a minute first."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

_TIMEOUT = 3.0  # seconds until a server that does not accept a connection counts as unreachable


@contextmanager
def downloading_from(address: str) -> Iterator[None]:
    """Context in which downloads fail immediately if the server cannot be reached.

    Files in the local cache are still used. The context has no effect if the server is reachable or a proxy is
    configured.

    Args:
        address: of the server, such as `https://huggingface.co`; empty if nothing is downloaded.

    Raises:
        ConnectionError: if the server cannot be reached and a file is not in the cache.
    """
    by_proxy = not getproxies().keys().isdisjoint({"http", "https", "all"})
    reason = unreachable(address) if address and not by_proxy else ""
    if not reason:
        yield
        return
    try:
        with _without_network():
            yield
    except OSError as error:  # huggingface_hub, transformers and urllib all raise it
        where = urlsplit(address).hostname
        raise ConnectionError(
            f"{where} cannot be reached ({reason}), and the files are not in the local cache; connect to the network, "
            "or omit pretrained and give weights=FILE"
        ) from error


def unreachable(address: str) -> str:
    """Returns the reason why a server cannot be reached; an empty string if it can.

    Args:
        address: of the server, with or without a port.

    >>> unreachable("http://name.invalid") != ""
    True
    """
    parts = urlsplit(address)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    reason = [f"no answer within {_TIMEOUT:.0f} s"]

    def connect() -> None:
        try:
            socket.create_connection((parts.hostname or "", port), timeout=_TIMEOUT).close()
            reason[0] = ""
        except OSError as error:
            reason[0] = error.strerror or str(error)

    attempt = threading.Thread(target=connect, daemon=True)  # a DNS lookup has no timeout of its own
    attempt.start()
    attempt.join(_TIMEOUT)
    return reason[0]


@contextmanager
def _without_network() -> Iterator[None]:
    """Switch huggingface_hub to offline mode and set a short timeout for other sockets; both are restored on exit."""
    from huggingface_hub import constants

    offline, timeout = constants.HF_HUB_OFFLINE, socket.getdefaulttimeout()
    constants.HF_HUB_OFFLINE = True
    socket.setdefaulttimeout(1.0)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        socket.setdefaulttimeout(timeout)
