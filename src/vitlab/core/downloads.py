"""Make downloads fail immediately without a network; other libraries retry for a minute first."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

#: The server of timm's and Hugging Face's weights.
HUB = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"

_TIMEOUT = 3.0  # seconds until a server that does not accept a connection counts as unreachable


@contextmanager
def downloading_from(address: str) -> Iterator[None]:
    """Context in which downloads fail immediately if the server cannot be reached.

    Files in the local cache are still used. The context has no effect if the server, or the proxy for it, is
    reachable.

    Args:
        address: of the server, such as `https://huggingface.co`; empty if nothing is downloaded.

    Raises:
        ConnectionError: if the server cannot be reached and a file is not in the cache.
    """
    first = _proxy_of(address) or address
    reason = unreachable(first) if address else ""
    if not reason:
        yield
        return
    try:
        with _without_network():
            yield
    except OSError as error:  # huggingface_hub, transformers and urllib all raise it
        where = urlsplit(first).hostname
        raise ConnectionError(
            f"{where} cannot be reached ({reason}), and the files are not in the local cache; connect to the network, "
            "or omit pretrained and give weights=FILE"
        ) from error


def _proxy_of(address: str) -> str:
    """The address of the proxy that is configured for a server; empty if there is none."""
    parts, proxies = urlsplit(address), getproxies()
    if not parts.hostname or proxy_bypass(parts.hostname):
        return ""
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    return proxy if "//" in proxy or not proxy else f"http://{proxy}"


def begin_attempt(address: str) -> None:
    """Begin to connect to a server in a thread; the next `downloading_from` it uses the result.

    Imports take seconds, and so does an attempt without a network. Begun before the imports, it adds no time.

    Args:
        address: of the server.
    """
    first = _proxy_of(address) or address
    _BEGUN[first] = _Attempt(first)


def unreachable(address: str) -> str:
    """Returns the reason why a server cannot be reached; an empty string if it can.

    Args:
        address: of the server, with or without a port.

    >>> unreachable("http://name.invalid") != ""
    True
    """
    return (_BEGUN.pop(address, None) or _Attempt(address)).reason()


class _Attempt:
    """A connection to a server, in a thread because a DNS lookup has no timeout of its own."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._server = (parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))
        self._reason = f"no answer within {_TIMEOUT:.0f} s"
        self._end = time.monotonic() + _TIMEOUT
        self._thread = threading.Thread(target=self._connect, daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        try:
            socket.create_connection(self._server, timeout=_TIMEOUT).close()
            self._reason = ""
        except OSError as error:
            self._reason = error.strerror or str(error)

    def reason(self) -> str:
        """Wait until the time is over; returns why the server cannot be reached, or an empty string."""
        self._thread.join(max(0.0, self._end - time.monotonic()))
        return self._reason


_BEGUN: dict[str, _Attempt] = {}


@contextmanager
def _without_network() -> Iterator[None]:
    """Switch huggingface_hub to offline mode and refuse to look up addresses for others; both are restored on exit."""
    from huggingface_hub import constants

    def refuse(*arguments: Any, **settings: Any) -> Any:  # without a network a lookup can take half a minute
        raise socket.gaierror("there is no network")

    offline, lookup = constants.HF_HUB_OFFLINE, socket.getaddrinfo
    constants.HF_HUB_OFFLINE = True
    socket.getaddrinfo = refuse
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        socket.getaddrinfo = lookup
