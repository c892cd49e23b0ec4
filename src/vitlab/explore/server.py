"""The HTTP application of the explorer: for this machine only, writes no files, and returns errors as one line of JSON.

All work with models runs in one thread: hooks on a model must not be seen by another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from vitlab.core.errors import VitlabError
from vitlab.corruptions.apply import EXTRA, GROUPS
from vitlab.explore import views
from vitlab.explore.causal import causal_layer
from vitlab.explore.conditions import OCCLUSION
from vitlab.explore.images import MAX_BYTES, ImageCollection
from vitlab.explore.relevance import relevance
from vitlab.explore.requests import CausalRequest, RelevanceRequest, RowsRequest, ViewRequest
from vitlab.explore.shown_model import ShownModel

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
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_PAGE = (
    "explorer.css", "explorer.js", "ablations.js", "address.js", "causal.js", "controls.js", "overlay.js",
    "pictures.js", "png.js", "server.js", "sidebar.js",
)  # fmt: skip
_SHARED = (
    "attention_view.css", "attention_drawing.js", "attention_predictions.js", "attention_panel.js", "attention_view.js",
)  # fmt: skip
#: All static files: address, then package and path.
_FILES = {
    "/": ("vitlab.explore", "page/index.html"),
    **{f"/{name}": ("vitlab.explore", f"page/{name}") for name in _PAGE},
    **{f"/{name}": ("vitlab.reporting", f"templates/{name}") for name in _SHARED},
}


@dataclass(frozen=True)
class ExplorerState:
    """The data of the page: one or two models, images, and the grid of selectable patches."""

    models: list[ShownModel]
    images: ImageCollection
    grid: tuple[int, int]

    def model(self, index: int) -> ShownModel:
        """The model of that index."""
        if not 0 <= index < len(self.models):
            raise VitlabError(f"invalid model={index}; expected 0 to {len(self.models) - 1}")
        return self.models[index]


def build(state: ExplorerState, thread: ThreadPoolExecutor) -> FastAPI:
    """The application.

    Args:
        state: models and images.
        thread: an executor with one worker.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_guard)
    app.add_exception_handler(VitlabError, _user_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _internal_error)
    for address, (package, path) in _FILES.items():
        app.add_api_route(address, _file(package, path), methods=["GET"])

    async def work(job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, job)

    @app.get("/api/start")
    async def start() -> dict[str, Any]:
        return await work(lambda: _start(state))

    @app.get("/api/pictures/{name}")
    async def thumbnail(name: str) -> Response:
        return Response(await work(lambda: state.images.thumbnail(name)), media_type="image/jpeg")

    @app.post("/api/pictures")
    async def upload(request: Request) -> dict[str, Any]:
        data = await _body(request)
        return {"name": await work(lambda: state.images.add(data)), "label": None}

    @app.post("/api/view")
    async def view(request: ViewRequest) -> dict[str, Any]:
        model = state.model(request.model)
        return await work(lambda: views.view(model, request.condition()))

    @app.post("/api/rows")
    async def rows(request: RowsRequest) -> list[dict[str, Any]]:
        model = state.model(request.model)
        return await work(lambda: views.rows(model, request.condition(), request.query()))

    @app.post("/api/relevance")
    async def overlay(request: RelevanceRequest) -> dict[str, Any]:
        model = state.model(request.model)
        return await work(lambda: relevance(model, request.condition(), request.method, request.target))

    @app.post("/api/causal")
    async def causal(request: CausalRequest) -> dict[str, Any]:
        model = state.model(request.model)
        return await work(lambda: causal_layer(model, request.condition(), request.layer))

    return app


def _start(state: ExplorerState) -> dict[str, Any]:
    pictures = [{"name": name, "label": state.images.label(name)} for name in state.images.names()]
    return {
        "models": [model.name for model in state.models],
        "layers": [len(model.anatomy.blocks) for model in state.models],
        "pictures": pictures,
        "corruptions": {**GROUPS, "extra": EXTRA},
        "grid": state.grid,
        "occlusion": OCCLUSION,
        "max_bytes": MAX_BYTES,
    }


async def _body(request: Request) -> bytes:
    """The body of a request; fails as soon as it is too large, also if its declared length is smaller."""
    data = bytearray()
    too_large = VitlabError(f"the file is larger than {MAX_BYTES // 2**20} MB; choose a smaller one")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > MAX_BYTES:
        raise too_large
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BYTES:
            raise too_large
    return bytes(data)


def _file(package: str, path: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        kind = _TYPES[path.rpartition(".")[2]]
        return Response((files(package) / path).read_bytes(), media_type=kind)

    return send


async def _guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """Reject requests with another host name (DNS rebinding) or from another origin, and add security headers."""
    host = request.headers.get("host", "")
    origin = request.headers.get("origin", f"http://{host}")
    if host.rpartition(":")[0] not in _HOSTS and host not in _HOSTS:
        response: Response = _error(400, f"invalid host; expected {' or '.join(_HOSTS)}")
    elif origin != f"http://{host}":
        response = _error(403, "invalid origin; only the page of this server is allowed")
    else:
        response = await call_next(request)
    response.headers.update(_HEADERS)
    return response


def _error(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": " ".join(text.split())}, status)


async def _user_error(request: Request, error: Exception) -> Response:
    return _error(422, str(error))


async def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    return _error(422, f"{where}: {first['msg']}")


async def _internal_error(request: Request, error: Exception) -> Response:
    """An internal error: the traceback is printed to the terminal, the page gets its last line."""
    return _error(500, f"{type(error).__name__}: {error}")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, "not found" if error.status_code == 404 else error.detail)
