"""The server: responses, and one-line errors."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import pytest
from PIL import Image

from cases.exploring import MODELS, on_show

pytest.importorskip("httpx", reason="the server's tests need: pip install httpx")
from starlette.testclient import TestClient

from vitlab.explore.server import build

HOME = "http://127.0.0.1:8000"
SHARED = ("attention_view.css", *(f"attention_{name}.js" for name in ("drawing", "predictions", "panel", "view")))
PAGE = sorted(file.name for file in (files("vitlab.explore") / "page").iterdir())
ADDRESSES = ("/", *(f"/{name}" for name in (*PAGE, *SHARED) if name != "index.html"))


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with ExitStack() as stack:
        shown, thread = stack.enter_context(on_show())
        yield stack.enter_context(TestClient(build(shown, thread), base_url=HOME))


def png(width: int = 40, height: int = 30) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((width, height), 60).convert("RGB").save(file, "PNG")
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, and hardly any data."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def animated() -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "green")]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    return file.getvalue()


def test_the_page_and_its_files(client: TestClient) -> None:
    for address in ADDRESSES:
        found = client.get(address)
        assert found.status_code == 200 and found.text
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
    page = client.get("/").text
    assert "<script>" not in page and "http" not in page.replace("http-equiv", "")


def test_start_lists_models_and_images(client: TestClient) -> None:
    found = client.get("/api/start").json()
    assert found["models"] == ["deit_tiny_patch16_224", "deit_tiny_patch16_224 | ContextBroadcast"]
    assert len(found["pictures"]) == 6 and found["grid"] == [4, 4] and "fog" in found["corruptions"]["weather"]


def test_view_and_rows(client: TestClient) -> None:
    plain = client.post("/api/view", json={"model": 0, "image": "0"}).json()
    foggy = client.post("/api/view", json={"model": 0, "image": "0", "corruption": "fog", "severity": 5}).json()
    other = client.post("/api/view", json={"model": 1, "image": "0"}).json()
    top = [view["predictions"][0]["probability"] for view in (plain, foggy, other)]
    assert len(set(top)) == 3
    assert [layer["name"] for layer in plain["layers"]] == ["blocks.0", "blocks.1", "blocks.2"]
    rows = client.post("/api/rows", json={"model": 0, "image": "0", "y": 0.1, "x": 0.1}).json()
    assert len(rows) == 3 and len(rows[0]["peaks"]) == 3


def test_a_corruption_of_severity_0_is_the_clean_picture(client: TestClient) -> None:
    plain = client.post("/api/view", json={"model": 0, "image": "0"}).json()
    assert client.post("/api/view", json={"model": 0, "image": "0", "corruption": "fog"}).json() == plain


@pytest.mark.parametrize("data", [png(), animated(), png(9, 70)], ids=["png", "animated gif", "narrow"])
def test_uploads_of_images(client: TestClient, data: bytes) -> None:
    added = client.post("/api/pictures", content=data)
    assert added.status_code == 200, added.text
    name = added.json()["name"]
    assert client.get(f"/api/pictures/{name}").content.startswith(b"\xff\xd8")
    assert len(client.post("/api/view", json={"model": 0, "image": name}).json()["predictions"]) == 5


def test_an_animated_image_shows_its_first_frame(client: TestClient) -> None:
    name = client.post("/api/pictures", content=animated()).json()["name"]
    with Image.open(io.BytesIO(client.get(f"/api/pictures/{name}").content)) as small:
        red, green, blue = small.getpixel((40, 40))
    assert red > 200 and green < 60 and blue < 60


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"hello, I am text", "not a supported image"),
        (b"", "not a supported image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "not a supported image"),
        (png()[:200], "damaged or truncated"),
        (bomb(30_000, 30_000), "megapixels"),
        (bomb(11_000, 11_000), "120 megapixels"),
        (bomb(10_000, 10_000), "damaged or truncated"),
        (bomb(2, 9_000_000), "2 × 9000000"),
        (bytes(51 * 2**20), "larger than 50 MB"),
        (b"%PDF-1.4", "not a supported image"),
    ],
    ids=["text", "nothing", "svg", "cut", "bomb", "large", "empty of data", "a line", "51 MB", "pdf"],
)
def test_uploads_that_are_not_images(client: TestClient, data: bytes, message: str) -> None:
    found = client.post("/api/pictures", content=data)
    assert found.status_code == 422 and list(found.json()) == ["error"]
    assert message in found.json()["error"] and "\n" not in found.json()["error"]


def test_an_endless_body_is_cut_off(client: TestClient) -> None:
    sent = []

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            sent.append(1)
            yield bytes(2**20)

    assert "larger than 50 MB" in client.post("/api/pictures", content=endless()).json()["error"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "0.0.0.0", ""])
def test_other_hosts_are_refused(client: TestClient, host: str) -> None:
    for address in (*ADDRESSES, "/api/start"):
        found = client.get(address, headers={"host": host})
        assert found.status_code == 400 and "127.0.0.1" in found.json()["error"]
    assert client.get("/", headers={"host": "localhost:1234"}).status_code == 200


def test_other_origins_are_refused(client: TestClient) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9"):
        found = client.post("/api/pictures", content=png(), headers={"origin": origin})
        assert found.status_code == 403 and "invalid origin" in found.json()["error"]
    assert client.post("/api/pictures", content=png(), headers={"origin": HOME}).status_code == 200


@pytest.mark.parametrize(
    "address",
    ["/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "/api/pictures/..%2f..%2fetc%2fpasswd", "/page/index.html",
     "/docs", "/openapi.json", "/api/pictures/99", "/api/pictures/-1", "/api/pictures/٣", "/api/pictures/" + "9" * 400],
)  # fmt: skip
def test_other_files_cannot_be_fetched(client: TestClient, address: str) -> None:
    found = client.get(address)
    assert found.status_code in (404, 422) and list(found.json()) == ["error"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"model": 2, "image": "0"}, "invalid model=2"),
        ({"model": -1, "image": "0"}, "invalid model=-1"),
        ({"model": 0, "image": "nothing"}, "does not exist"),
        ({"model": 0, "image": "0", "corruption": "rain", "severity": 1}, "no corruption 'rain'"),
        ({"model": 0, "image": "0", "corruption": "fog", "severity": 6}, "severity"),
        ({"model": 0, "image": "0", "hidden": [16]}, "invalid patch 16"),
        ({"model": 0, "image": "0", "hidden": ["x"]}, "hidden.0"),
        ({"model": 0}, "image"),
        ([], "the request"),
        ({"model": 0, "image": "0", "ablations": [{"layer": 3, "at": "mlp"}]}, "invalid layer=3 of an ablation"),
        ({"model": 0, "image": "0", "ablations": [{"layer": 0, "at": "head", "head": 3}]}, "invalid head=3 of layer 1"),
        ({"model": 0, "image": "0", "ablations": [{"layer": 0, "at": "norm"}]}, "ablations.0.at"),
        ({"model": 0, "image": "0", "ablations": [{"layer": -1, "at": "mlp"}]}, "ablations.0.layer"),
        ({"model": 0, "image": "0", "ablations": [{"layer": 0, "at": "mlp"}] * 2001}, "ablations"),
    ],
)
def test_mistakes_are_one_line(client: TestClient, ask: object, message: str) -> None:
    found = client.post("/api/view", json=ask)
    assert found.status_code == 422 and message in found.json()["error"] and "\n" not in found.json()["error"]


def test_tokens_that_are_not_there(client: TestClient) -> None:
    rows = client.post("/api/rows", json={"model": 0, "image": "0", "prefix": 1}).json()
    assert all(row == {"why": "this token is not in this layer"} for row in rows)
    assert client.post("/api/rows", json={"model": 0, "image": "0", "y": 1.5}).status_code == 422


def test_hostile_names_are_sent_as_data() -> None:
    with on_show(MODELS[:1]) as (shown, thread):
        shown.models[0].name = "<img src=x onerror=alert(1)></script>"
        shown.models[0].classes = ["<b>bold</b>"] * 25
        client = TestClient(build(shown, thread), base_url=HOME)
        assert client.get("/api/start").headers["content-type"] == "application/json"
        assert client.get("/api/start").json()["models"] == ["<img src=x onerror=alert(1)></script>"]


def test_no_files_are_written(client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client.post("/api/pictures", content=png(900, 900))
    client.post("/api/pictures", content=b"x" * 3_000_000)
    assert not list(tmp_path.iterdir())


def test_errors_of_a_model_reach_the_page_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise RuntimeError("out of\nmemory")

    with on_show(MODELS[:1]) as (shown, thread):
        monkeypatch.setattr(shown.images, "picture", broken)
        client = TestClient(build(shown, thread), base_url=HOME, raise_server_exceptions=False)
        found = client.post("/api/view", json={"model": 0, "image": "0"})
    assert found.status_code == 500 and found.json() == {"error": "RuntimeError: out of memory"}


def test_ablations_do_not_depend_on_their_order(client: TestClient) -> None:
    first, second = {"layer": 1, "at": "head", "head": 2}, {"layer": 0, "at": "mlp"}
    asked = {"model": 0, "image": "1"}
    views = [
        client.post("/api/view", json={**asked, "ablations": chosen}).json()
        for chosen in ([first, second], [second, first, second], [])
    ]
    assert views[0] == views[1] and views[0]["reference"] == "the model without ablations"
    before = {row["index"]: row["before"] for row in views[0]["predictions"]}
    whole = {row["index"]: row["probability"] for row in views[2]["predictions"]}
    shared = before.keys() & whole.keys()
    assert len(shared) >= 3 and all(abs(before[i] - whole[i]) < 1e-6 for i in shared)
    assert views[0]["predictions"][0]["probability"] != views[2]["predictions"][0]["probability"]


def test_overlays_and_the_causal_trace(client: TestClient) -> None:
    asked = {"model": 1, "image": "0", "hidden": [0, 1, 2]}
    names = [row["name"] for row in client.post("/api/view", json=asked).json()["predictions"]]
    rollout = client.post("/api/relevance", json={**asked, "method": "rollout"}).json()
    gradient = [
        client.post("/api/relevance", json={**asked, "method": "gradient", "target": name}).json() for name in names
    ]
    assert rollout["grid"] == [4, 4] and len(rollout["peaks"]) == len(rollout["prefix"]) == 3
    assert len({found["maps"] for found in gradient}) == len(names)
    layers = [client.post("/api/causal", json={**asked, "layer": layer}).json() for layer in range(3)]
    assert all(len(layer["heads"]) == 3 and len(layer["tokens"]) == 4 for layer in layers)


@pytest.mark.parametrize(
    ("address", "ask", "message"),
    [
        ("/api/relevance", {"method": "saliency"}, "method"),
        ("/api/relevance", {}, "method"),
        ("/api/relevance", {"method": "gradient", "target": "<b>unicorn</b>"}, "no class '<b>unicorn</b>'"),
        ("/api/relevance", {"method": "gradient", "target": "x" * 1001}, "target"),
        ("/api/relevance", {"method": "rollout", "ablations": [{"layer": 9, "at": "mlp"}]}, "invalid layer=9"),
        ("/api/causal", {"layer": 0}, "choose a severity or hide patches first"),
        ("/api/causal", {"layer": 3, "hidden": [0]}, "invalid layer=3"),
        ("/api/causal", {"hidden": [0]}, "layer"),
        ("/api/causal", {"layer": 0, "hidden": [0], "model": 7}, "invalid model=7"),
    ],
)
def test_mistakes_of_the_other_requests_are_one_line(
    client: TestClient, address: str, ask: dict[str, object], message: str
) -> None:
    found = client.post(address, json={"model": 0, "image": "0", **ask})
    assert found.status_code == 422 and message in found.json()["error"] and "\n" not in found.json()["error"]


def test_uploads_are_listed_first_after_a_reload(client: TestClient) -> None:
    names = [client.post("/api/pictures", content=png()).json()["name"] for _ in range(2)]
    listed = client.get("/api/start").json()["pictures"]
    assert [entry["name"] for entry in listed[:2]] == names[::-1] and listed[0]["label"] is None
    assert [entry["name"] for entry in listed[-6:]] == [str(i) for i in range(6)]
