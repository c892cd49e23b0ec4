"""Without a network a download fails immediately with the reason; with one, nothing changes."""

from __future__ import annotations

import logging
import socket
import threading
import time
from urllib.request import urlopen

import huggingface_hub
import pytest
from huggingface_hub import constants

import vitlab
from vitlab.core import downloads
from vitlab.core.downloads import downloading_from, unreachable
from vitlab.zoo import libraries

NOWHERE = "nobody/no_such_model_anywhere"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def closed() -> str:
    """The address of a port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_a_started_attempt_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer: half of the time limit has passed when the result is needed."""
    servers, never = [], threading.Event()

    def connect(server: tuple[str, int], timeout: float) -> None:
        servers.append(server)
        never.wait(20)
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr(downloads, "_TIMEOUT", 4.0)
    downloads.begin_attempt("https://silent.invalid")
    time.sleep(2.0)
    began = time.monotonic()
    assert unreachable("https://silent.invalid") == "no answer within 4 s"
    assert time.monotonic() - began < 3.5 and servers == [("silent.invalid", 443)]
    monkeypatch.setattr(downloads, "_TIMEOUT", 0.1)
    unreachable("https://silent.invalid")
    assert len(servers) == 2
    never.set()


def test_a_server_is_reachable_while_it_listens(closed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert unreachable(f"http://127.0.0.1:{server.getsockname()[1]}") == ""
    assert unreachable(closed) == "Connection refused"


def test_a_missing_file_is_one_reason_without_retries(closed: str, caplog: pytest.LogCaptureFixture) -> None:
    before = (constants.HF_HUB_OFFLINE, socket.getaddrinfo)
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(ConnectionError, match=r"127.0.0.1 cannot be reached \(Connection refused\).*weights=FILE"),
        downloading_from(closed),
    ):
        huggingface_hub.hf_hub_download(NOWHERE, "config.json")
    assert "Retry" not in caplog.text
    assert (constants.HF_HUB_OFFLINE, socket.getaddrinfo) == before


def test_other_libraries_do_not_wait_for_the_network(closed: str) -> None:
    """A lookup without a network can take half a minute: no connection is tried, not even to a server that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.0)
        with pytest.raises(ConnectionError, match="cannot be reached"), downloading_from(closed):
            urlopen(f"http://127.0.0.1:{server.getsockname()[1]}/weights.pth", timeout=60)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_proxy_is_tried_in_place_of_the_server(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = FileNotFoundError("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = f"http://127.0.0.1:{server.getsockname()[1]}"
        for proxy in (listening, listening.removeprefix("http://")):
            monkeypatch.setenv("http_proxy", proxy)
            with pytest.raises(FileNotFoundError), downloading_from("http://name.invalid"):
                raise missing
        for proxy in (closed, closed.removeprefix("http://")):
            monkeypatch.setenv("http_proxy", proxy)
            with (
                pytest.raises(ConnectionError, match="127.0.0.1 cannot be reached"),
                downloading_from("http://a.invalid"),
            ):
                raise missing
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with pytest.raises(FileNotFoundError), downloading_from(listening):
            raise missing


def test_other_errors_keep_their_message(closed: str) -> None:
    with pytest.raises(TypeError, match="a wrong setting"), downloading_from(closed):
        raise TypeError("a wrong setting")


def test_without_downloads_or_with_a_reachable_server_nothing_changes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for address in ("", f"http://127.0.0.1:{server.getsockname()[1]}"):
            with pytest.raises(FileNotFoundError, match="x"), downloading_from(address):
                raise FileNotFoundError("x")


def test_a_model_that_must_be_downloaded_is_one_line(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(libraries, "HUB", closed)
    with pytest.raises(
        vitlab.VitlabError, match=f"hf/{NOWHERE} could not be built: 127.0.0.1 cannot be reached"
    ) as error:
        vitlab.load(f"hf/{NOWHERE}(pretrained=True)")
    assert "\n" not in str(error.value)
