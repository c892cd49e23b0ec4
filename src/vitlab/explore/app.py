"""Open models and data, and serve the page until somebody ends it."""

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
from vitlab.explore.views import Subject, size_and_grid
from vitlab.instruments.shared.image_trace import ImageTrace, image_tracer
from vitlab.preprocessing import preprocessing_of
from vitlab.progress import waiting

ADDRESS = "127.0.0.1"  # and no other: what is served here is for this machine


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
        data: a data expression; by default the data that the first model was trained on, else `scenes`. Some of its
            test images are offered, at even distances.
        root: the folder that holds the data sets.
        images: how many images to offer.
        port: 0 for any free one.
        say: told the address, once the page can be fetched.
        show: whether to show progress while models are loaded.
    """
    import uvicorn

    stack = ExitStack()
    with listen(port) as listener, ThreadPoolExecutor(1) as thread:
        try:
            with waiting("loading the models", show=show):
                shown = thread.submit(open_explorer, models, data, root, images, stack).result()
            server = uvicorn.Server(uvicorn.Config(build(shown, thread), log_level="warning", lifespan="off"))
            say(f"http://{ADDRESS}:{listener.getsockname()[1]}/")
            with suppress(KeyboardInterrupt):  # uvicorn closes its connections first, then hands the signal on
                server.run(sockets=[listener])
        finally:
            thread.submit(stack.close).result()  # recording ends in the thread in which it began


@contextmanager
def listen(port: int) -> Iterator[socket.socket]:
    """A socket on this machine's own address."""
    if not 0 <= port <= 65535:
        raise VitlabError(f"--port {port}: expected 0 (any free one) to 65535")
    try:
        listener = socket.create_server((ADDRESS, port))
    except OSError as error:
        raise VitlabError(f"port {port} cannot be used ({error.strerror}); give another --port, or none") from None
    with listener:
        yield listener


def open_explorer(
    models: Sequence[str], data: str | None, root: Path | None, images: int, stack: ExitStack
) -> ExplorerState:
    """Load the models and the data; `stack` closes what was opened, in the same thread."""
    if not 1 <= len(models) <= 2:
        raise VitlabError(f"explore shows one model or two side by side; {len(models)} given")
    if images < 1:
        raise VitlabError(f"--images {images}: at least one image is needed")
    recipe = zoo.recipe_of(models[0])
    data = data or (recipe.data if recipe else "scenes")
    check_data(data)
    loaded = [zoo.load(text, seed=0).eval() for text in models]
    sizes = [size_and_grid(model) for model in loaded]
    opened = open_data(data, root=root, image_size=sizes[0][0])
    named = zip(short_names(models), loaded, sizes, strict=True)
    subjects = [open_subject(name, model, size, opened, stack) for name, model, (size, _) in named]
    count = min(images, len(opened.test))
    test = opened.test.subset([i * len(opened.test) // count for i in range(count)])  # sets lie in order of class
    names = output_names(len(opened.classes), opened.classes)
    return ExplorerState(subjects, ImageCollection(test, names.__getitem__), sizes[0][1])


def open_subject(name: str, model: nn.Module, size: tuple[int, int], data: DataSet, stack: ExitStack) -> Subject:
    """A model, ready to look at images, with its own preprocessing, else the data's normalisation."""
    how = preprocessing_of(model, {"size": size}, assume={"mean": data.mean, "std": data.std})
    look = stack.enter_context(image_tracer(model, size))
    outputs = _outputs(model, look, size, name)
    return Subject(name, model, look, how, output_names(outputs, how.classes or data.classes))


def short_names(models: Sequence[str]) -> list[str]:
    """What to call the models on the page: name and parts, and the settings only where they tell two models apart.

    >>> short_names(["timm/vit_tiny_patch16_224(pretrained=True)", "timm/vit_tiny_patch16_224 | ContextBroadcast()"])
    ['vit_tiny_patch16_224', 'vit_tiny_patch16_224 | ContextBroadcast']
    """
    parsed = [parse_model(text) for text in models]
    short = [" | ".join([one.name, *(str(part).removesuffix("()") for part in one.parts)]) for one in parsed]
    return short if len(set(short)) == len(short) else list(models)


def _outputs(model: nn.Module, look: Callable[[Tensor], ImageTrace], size: tuple[int, int], name: str) -> int:
    """How many classes a model has, from a look at a blank image: what cannot be explored is refused at the start."""
    try:
        return len(look(blank_images(model, size)[:1]).logits)
    except VitlabError as error:
        raise VitlabError(f"{name} cannot be explored: {error}") from error
