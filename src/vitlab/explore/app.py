"""Load models and data, and serve the explorer until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import nn

from vitlab import zoo
from vitlab.adapters import blank_images, describe
from vitlab.core.anatomy import Anatomy
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.data.catalogue import check_data, open_data
from vitlab.data.class_names import output_names
from vitlab.data.images import DataSet
from vitlab.explore.ablations import places
from vitlab.explore.images import ImageCollection
from vitlab.explore.server import ExplorerState, build
from vitlab.explore.shown_model import ShownModel
from vitlab.instruments.shared.image_trace import image_tracer
from vitlab.preprocessing import preprocessing_of
from vitlab.preprocessing.labels import match_labels
from vitlab.progress import waiting
from vitlab.training.device import choose_device

ADDRESS = "127.0.0.1"  # never another: the page is for this machine only

_MOST_IMAGES = 1000


def explore(
    models: Sequence[str],
    *,
    data: str | None = None,
    root: Path | None = None,
    images: int = 24,
    port: int = 0,
    device: str | None = None,
    report_address: Callable[[str], None] = print,
    show: bool = True,
) -> None:
    """Serve the explorer on 127.0.0.1 until Ctrl-C.

    Args:
        models: one model expression, or two to compare.
        data: a data expression; default: the data that the first model was trained on, else `scenes`. The page shows
            evenly spaced test images.
        root: the folder with the data sets.
        images: the number of images on the page, at most 1,000.
        port: the port; 0 for any free port.
        device: `cpu`, `cuda` or `mps`; by default CUDA where available.
        report_address: called with the address when the server is ready.
        show: whether to show progress while models are loaded.
    """
    import uvicorn

    with listen(port) as listener, ThreadPoolExecutor(1) as thread:
        with waiting("loading the models", show=show):
            state = thread.submit(open_explorer, models, data, root, images, device).result()
        server = uvicorn.Server(uvicorn.Config(build(state, thread), log_level="warning", lifespan="off"))
        report_address(f"http://{ADDRESS}:{listener.getsockname()[1]}/")
        with suppress(KeyboardInterrupt):  # uvicorn closes its connections, then raises the signal again
            server.run(sockets=[listener])


@contextmanager
def listen(port: int) -> Iterator[socket.socket]:
    """A listening socket on 127.0.0.1."""
    if not 0 <= port <= 65535:
        raise VitlabError(f"invalid --port {port}; expected 0 (any free port) to 65535")
    try:
        listener = socket.create_server((ADDRESS, port))
    except OSError as error:
        raise VitlabError(
            f"port {port} is not available ({error.strerror}); choose another --port or omit it"
        ) from None
    with listener:
        yield listener


def open_explorer(
    models: Sequence[str], data: str | None, root: Path | None, images: int, device: str | None = None
) -> ExplorerState:
    """Load the models and the data."""
    if not 1 <= len(models) <= 2:
        raise VitlabError(f"invalid number of models: {len(models)}; expected one or two")
    if not 1 <= images <= _MOST_IMAGES:
        raise VitlabError(f"invalid --images {images}; expected 1 to {_MOST_IMAGES:,}, each a thumbnail of the page")
    where = choose_device(device)
    recipe = zoo.recipe_of(models[0])
    data = data or (recipe.data if recipe else "scenes")
    check_data(data)
    loaded = [zoo.load(text, seed=0).eval().to(where) for text in models]
    anatomies = [describe(model) for model in loaded]
    opened = open_data(data, root=root, image_size=anatomies[0].input_size)
    count = min(images, len(opened.test))
    test = opened.test.subset([i * len(opened.test) // count for i in range(count)])  # data sets are sorted by class
    names = output_names(len(opened.classes), opened.classes)
    collection = ImageCollection(test, names.__getitem__)
    grid = page_grid(anatomies[0])
    named = zip(short_names(models), loaded, anatomies, strict=True)
    shown = [open_model(name, model, anatomy, opened, collection, grid) for name, model, anatomy in named]
    return ExplorerState(shown, collection, grid)


def open_model(
    name: str, model: nn.Module, anatomy: Anatomy, data: DataSet, images: ImageCollection, grid: tuple[int, int]
) -> ShownModel:
    """A model of the page with its preprocessing; default: the normalisation of the data.

    Fails early for models that cannot be shown.
    """
    preprocessing = preprocessing_of(model, {"size": anatomy.input_size}, assume={"mean": data.mean, "std": data.std})
    try:
        with image_tracer(model, anatomy=anatomy) as trace:
            outputs = len(trace(blank_images(model, anatomy.input_size)[:1]).logits)
    except VitlabError as error:
        raise VitlabError(f"{name} cannot be explored: {error}") from error
    classes = output_names(outputs, preprocessing.classes or data.classes)
    matched = match_labels(data.classes, outputs, preprocessing.classes).outputs
    return ShownModel(name, model, anatomy, preprocessing, classes, matched, places(model, anatomy), images, grid)


def page_grid(anatomy: Anatomy) -> tuple[int, int]:
    """The grid of selectable patches: the query grid with a number of rows nearest to 14; 14 × 14 if there is none."""
    grids = [block.mixer.queries.grid for block in anatomy.blocks if block.mixer.queries is not None]
    grids = [grid for grid in grids if grid[0] * grid[1] > 1]
    return min(grids, key=lambda grid: abs(grid[0] - 14), default=(14, 14))


def short_names(models: Sequence[str]) -> list[str]:
    """Names of the models on the page: name and parts; the full expressions if these are equal.

    >>> short_names(["timm/vit_tiny_patch16_224(pretrained=True)", "timm/vit_tiny_patch16_224 | ContextBroadcast()"])
    ['vit_tiny_patch16_224', 'vit_tiny_patch16_224 | ContextBroadcast']
    """
    parsed = [parse_model(text) for text in models]
    short = [" | ".join([one.name, *(str(part).removesuffix("()") for part in one.parts)]) for one in parsed]
    return short if len(set(short)) == len(short) else list(models)
