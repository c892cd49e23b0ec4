"""Load models and data, and serve the explorer until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from torch import Tensor, nn

from vitlab import zoo
from vitlab.adapters import blank_images
from vitlab.core.errors import VitlabError
from vitlab.core.expressions import parse_model
from vitlab.data.catalogue import check_data, open_data
from vitlab.data.class_names import output_names
from vitlab.data.images import DataSet
from vitlab.explore.images import ImageCollection
from vitlab.explore.server import ExplorerState, build
from vitlab.explore.views import ShownModel, size_and_grid
from vitlab.instruments.shared.image_trace import ImageTrace, image_tracer
from vitlab.preprocessing import preprocessing_of
from vitlab.progress import waiting

ADDRESS = "127.0.0.1"  # never another: the page is for this machine only


def explore(
    models: Sequence[str],
    *,
    data: str | None = None,
    root: Path | None = None,
    images: int = 24,
    port: int = 0,
    say: Callable[[str], None] = print,
    show: bool = True,
) -> None:
    """Serve the explorer on 127.0.0.1 until Ctrl-C.

    Args:
        models: one model expression, or two to compare.
        data: a data expression; default: the data that the first model was trained on, else `scenes`. The page shows
            evenly spaced test images.
        root: the folder with the data sets.
        images: the number of images on the page.
        port: the port; 0 for any free port.
        say: called with the address when the server is ready.
        show: whether to show progress while models are loaded.
    """
    import uvicorn

    stack = ExitStack()
    with listen(port) as listener, ThreadPoolExecutor(1) as thread:
        try:
            with waiting("loading the models", show=show):
                state = thread.submit(open_explorer, models, data, root, images, stack).result()
            server = uvicorn.Server(uvicorn.Config(build(state, thread), log_level="warning", lifespan="off"))
            say(f"http://{ADDRESS}:{listener.getsockname()[1]}/")
            with suppress(KeyboardInterrupt):  # uvicorn closes its connections, then raises the signal again
                server.run(sockets=[listener])
        finally:
            thread.submit(stack.close).result()  # recording must end in the thread in which it started


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
    models: Sequence[str], data: str | None, root: Path | None, images: int, stack: ExitStack
) -> ExplorerState:
    """Load the models and the data; `stack` closes them and must be closed in the same thread."""
    if not 1 <= len(models) <= 2:
        raise VitlabError(f"invalid number of models: {len(models)}; expected one or two")
    if images < 1:
        raise VitlabError(f"invalid --images {images}; expected at least 1")
    recipe = zoo.recipe_of(models[0])
    data = data or (recipe.data if recipe else "scenes")
    check_data(data)
    loaded = [zoo.load(text, seed=0).eval() for text in models]
    sizes = [size_and_grid(model) for model in loaded]
    opened = open_data(data, root=root, image_size=sizes[0][0])
    named = zip(short_names(models), loaded, sizes, strict=True)
    shown = [open_model(name, model, size, opened, stack) for name, model, (size, _) in named]
    count = min(images, len(opened.test))
    test = opened.test.subset([i * len(opened.test) // count for i in range(count)])  # data sets are sorted by class
    names = output_names(len(opened.classes), opened.classes)
    return ExplorerState(shown, ImageCollection(test, names.__getitem__), sizes[0][1])


def open_model(name: str, model: nn.Module, size: tuple[int, int], data: DataSet, stack: ExitStack) -> ShownModel:
    """A model of the page with its preprocessing; default: the normalisation of the data."""
    preprocessing = preprocessing_of(model, {"size": size}, assume={"mean": data.mean, "std": data.std})
    trace = stack.enter_context(image_tracer(model, size))
    outputs = _outputs(model, trace, size, name)
    return ShownModel(name, model, trace, preprocessing, output_names(outputs, preprocessing.classes or data.classes))


def short_names(models: Sequence[str]) -> list[str]:
    """Names of the models on the page: name and parts; the full expressions if these are equal.

    >>> short_names(["timm/vit_tiny_patch16_224(pretrained=True)", "timm/vit_tiny_patch16_224 | ContextBroadcast()"])
    ['vit_tiny_patch16_224', 'vit_tiny_patch16_224 | ContextBroadcast']
    """
    parsed = [parse_model(text) for text in models]
    short = [" | ".join([one.name, *(str(part).removesuffix("()") for part in one.parts)]) for one in parsed]
    return short if len(set(short)) == len(short) else list(models)


def _outputs(model: nn.Module, trace: Callable[[Tensor], ImageTrace], size: tuple[int, int], name: str) -> int:
    """The number of classes of a model, from a blank image; fails early for models that cannot be shown."""
    try:
        return len(trace(blank_images(model, size)[:1]).logits)
    except VitlabError as error:
        raise VitlabError(f"{name} cannot be explored: {error}") from error
