"""The explorer over HTTP, for this machine only: 127.0.0.1, nothing written, every mistake one line of JSON.

All work with models happens in one thread, one thing after the other: recording belongs to the thread that started it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from vitlab.core.errors import VitlabError
from vitlab.corruptions.apply import EXTRA, GROUPS
from vitlab.explore.images import MAX_BYTES, ImageCollection
from vitlab.explore.views import OCCLUSION, Condition, Query, Subject

T = TypeVar("T")

_HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Everything that can be fetched as a file: its address, where it lies, what it is.
_FILES = {
    "/": ("vitlab.explore", "page/index.html", "text/html"),
    "/explorer.js": ("vitlab.explore", "page/explorer.js", "text/javascript"),
    "/explorer.css": ("vitlab.explore", "page/explorer.css", "text/css"),
    "/attention_view.js": ("vitlab.reporting", "templates/attention_view.js", "text/javascript"),
    "/attention_view.css": ("vitlab.reporting", "templates/attention_view.css", "text/css"),
}


@dataclass(frozen=True)
class ExplorerState:
    """What there is to see: one model or two, pictures, and the grid to click on."""

    subjects: list[Subject]
    album: ImageCollection
    grid: tuple[int, int]

    def subject(self, index: int) -> Subject:
        """The model of that number."""
        if not 0 <= index < len(self.subjects):
            raise VitlabError(f"there is no model {index}; there are {len(self.subjects)}, counted from 0")
        return self.subjects[index]


class Ask(BaseModel):
    """What the page asks for: a model, a picture and what is done to it."""

    model: int
    image: Annotated[str, Field(max_length=20)]
    corruption: Annotated[str, Field(max_length=40)] = ""
    severity: Annotated[int, Field(ge=0, le=5)] = 0
    hidden: Annotated[list[int], Field(max_length=10_000)] = []

    def condition(self) -> Condition:
        """The same for the same picture, in whatever order its patches were painted."""
        named = self.corruption if self.severity else ""
        return Condition(self.image, named, self.severity if named else 0, tuple(sorted(set(self.hidden))))


class AskRows(Ask):
    """The same, and the token to look from."""

    y: Annotated[float, Field(ge=0, le=1)] = 0.5
    x: Annotated[float, Field(ge=0, le=1)] = 0.5
    prefix: Annotated[int, Field(ge=0, le=1000)] | None = None


def build(shown: ExplorerState, thread: ThreadPoolExecutor) -> FastAPI:
    """The application.

    Args:
        shown: models and pictures.
        thread: of one worker, the one that opened the models.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_guard)
    app.add_exception_handler(VitlabError, _mistake)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _broken)
    for address, (package, path, kind) in _FILES.items():
        app.add_api_route(address, _file(package, path, kind), methods=["GET"])

    async def work(job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, job)

    @app.get("/api/start")
    async def start() -> dict[str, Any]:
        return await work(lambda: _start(shown))

    @app.get("/api/pictures/{name}")
    async def thumbnail(name: str) -> Response:
        return Response(await work(lambda: shown.album.thumbnail(name)), media_type="image/jpeg")

    @app.post("/api/pictures")
    async def upload(request: Request) -> dict[str, Any]:
        data = await _body(request)
        return {"name": await work(lambda: shown.album.add(data)), "label": None}

    @app.post("/api/view")
    async def view(ask: Ask) -> dict[str, Any]:
        subject = shown.subject(ask.model)
        return await work(lambda: subject.view(shown.album, ask.condition(), shown.grid))

    @app.post("/api/rows")
    async def rows(ask: AskRows) -> list[dict[str, Any]]:
        subject, query = shown.subject(ask.model), Query(ask.y, ask.x, ask.prefix)
        return await work(lambda: subject.rows(shown.album, ask.condition(), shown.grid, query))

    return app


def _start(shown: ExplorerState) -> dict[str, Any]:
    pictures = [{"name": name, "label": shown.album.label(name)} for name in shown.album.names()]
    return {
        "models": [subject.name for subject in shown.subjects],
        "pictures": pictures,
        "corruptions": {**GROUPS, "extra": EXTRA},
        "grid": shown.grid,
        "occlusion": OCCLUSION,
    }


async def _body(request: Request) -> bytes:
    """What was sent, in memory; cut off as soon as it is too much, whatever its length was said to be."""
    data = bytearray()
    too_much = VitlabError(f"this file has more than {MAX_BYTES // 2**20} MB; give a smaller one")
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and int(said) > MAX_BYTES:
        raise too_much
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BYTES:
            raise too_much
    return bytes(data)


def _file(package: str, path: str, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response((files(package) / path).read_bytes(), media_type=kind)

    return send


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Answer this machine's own page only: other names lead here by DNS rebinding, other origins by their scripts."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin", f"http://{host}")
    if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
        response: Response = _error(400, f"this server answers to {' and '.join(_HOSTS)} only")
    elif origin != f"http://{host}":
        response = _error(403, "this server answers its own page only")
    else:
        response = await call_next(request)
    response.headers.update(_HEADERS)
    return response


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": " ".join(text.split())}, status)


async def _mistake(request: Request, error: Exception) -> Response:
    return _error(422, str(error))


async def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return _error(422, f"{where}: {first['msg']}")


async def _broken(request: Request, error: Exception) -> Response:
    """A mistake of ours: the trace goes to the terminal, the page gets its last line."""
    return _error(500, f"{type(error).__name__}: {error}")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, "there is nothing at this address" if error.status_code == 404 else error.detail)
