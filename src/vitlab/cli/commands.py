"""The command line: verbs only. Each one imports what it needs when it runs, so that `--help` imports no torch."""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from vitlab import __version__
from vitlab.cli import completion, exit_codes
from vitlab.core.errors import VitlabError, unknown
from vitlab.core.expressions import split_calls
from vitlab.core.process import is_main_process

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks: results and errors only.")]
Root = Annotated[Path | None, typer.Option(help="Folder of the data sets; else VITLAB_DATA.")]
Models = Annotated[list[str], typer.Argument(help="Model expressions.", autocompletion=completion.models)]
Data = Annotated[
    str | None,
    typer.Option("--data", help="A data expression or a folder; default: the data of the run, else scenes."),
]
Preprocess = Annotated[
    str,
    typer.Option("--preprocessing", help="Replaces the model's, for example crop=1.0,interpolation='bilinear'."),
]
Classes = Annotated[
    Path | None,
    typer.Option("--classes", help="File with the names of the model's outputs, or JSON from class to output."),
]
AugmentName = Annotated[
    str | None,
    typer.Option("--augment", help="Augmentation of training images: a recipe, weak or none; default: the run's own."),
]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default CUDA where there is one.")]
Images = Annotated[
    int | None,
    typer.Option(help="How many test images: 64 by default; all of the files, of tests on files.", show_default=False),
]
Repeats = Annotated[int, typer.Option(help="Cut the images into so many parts, and measure on each by itself.")]
Names = Annotated[list[str] | None, typer.Option("--name", help="What to call a model in reports; one for each model.")]
Measurements = Annotated[Path, typer.Option("--out", help="Folder for the measurements.")]

app = typer.Typer(
    cls=exit_codes.Verbs,
    help="A laboratory for vision transformers.",
    epilog=exit_codes.CODES,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line."""
    exit_codes.run(app)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="parts, models, families, instruments, stress, recipes or data", autocompletion=completion.kinds
        ),
    ] = "",
    params: Annotated[bool, typer.Option("--params", help="Sizes of the papers' models, ours beside theirs.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List what there is: one full name a line off a terminal."""
    from vitlab.cli import listing

    if what and what not in listing.KINDS:
        raise unknown("list", what, listing.KINDS)
    if params and what != "models":
        raise VitlabError("only models have parameters to list; write: vitlab list models --params")
    if params:
        listing.show_sizes(as_json=as_json, quiet=quiet)
    else:
        listing.show(what, as_json=as_json, quiet=quiet)


@app.command()
def describe(
    model: Annotated[
        str,
        typer.Argument(
            help="A model expression, for example timm/deit_tiny_patch16_224", autocompletion=completion.models
        ),
    ],
    size: Annotated[str, typer.Option(help="Image size, HEIGHTxWIDTH; by default the model's own.")] = "",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show a model's blocks, token layout and seams, and which weights it has."""
    from vitlab.cli import listing

    listing.show_anatomy(model, _size(size), as_json=as_json)


@app.command()
def measure(
    models: Models,
    with_: Annotated[
        str,
        typer.Option("--with", help="Instruments, separated by commas.", autocompletion=completion.instruments),
    ] = "attention_entropy",
    data: Data = None,
    root: Root = None,
    images: Images = None,
    repeats: Repeats = 1,
    device: Device = None,
    preprocessing: Preprocess = "",
    classes: Classes = None,
    augment: AugmentName = None,
    name: Names = None,
    out: Measurements = Path("runs/measure"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure models with instruments; writes one JSON + npz each, and goes on where it stopped."""
    what = {"data": data, "root": root, "images": images, "repeats": repeats, "device": device, "called": name or ()}
    what |= {"augment": augment, **_prepared(preprocessing, classes)}
    _run_all("measure", models, with_, out, as_json, quiet, what)


@app.command()
def stress(
    models: Models,
    with_: Annotated[
        str,
        typer.Option("--with", help="Stress tests, separated by commas.", autocompletion=completion.stress_tests),
    ] = "corruptions",
    data: Data = None,
    root: Root = None,
    images: Images = None,
    repeats: Repeats = 1,
    device: Device = None,
    preprocessing: Preprocess = "",
    classes: Classes = None,
    name: Names = None,
    out: Measurements = Path("runs/stress"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put models under stress tests; writes one JSON + npz each, and goes on where it stopped."""
    what = {"data": data, "root": root, "images": images, "repeats": repeats, "device": device, "called": name or ()}
    what |= _prepared(preprocessing, classes)
    _run_all("stress", models, with_, out, as_json, quiet, what)


def _prepared(preprocessing: str, classes: Path | None) -> dict[str, Any]:
    """The options on preprocessing and labels, read."""
    from vitlab.core.expressions import parse_call
    from vitlab.preprocessing.labels import read_classes

    _, fields = parse_call(f"preprocessing({preprocessing})")
    return {"preprocessing": fields, "classes": None if classes is None else read_classes(classes)}


def _run_all(
    verb: str, models: list[str], names: str, out: Path, as_json: bool, quiet: bool, what: dict[str, Any]
) -> None:
    """Print the path of each measurement as it is ready, or at the end what all of them say."""
    with _importing(quiet):
        from vitlab import runner
        from vitlab.cli import listing

    if quiet:
        warnings.simplefilter("ignore", UserWarning)
    found, said = [], {""}
    for path in getattr(runner, verb)(models, split_calls(names), out, show=not quiet, **what):
        found.append(path)
        for remark in () if quiet else (listing.model_of(path), listing.shortfall(path)):
            if remark not in said:
                typer.echo(remark, err=True)
            said.add(remark)
        if not as_json:
            typer.echo(path)
    if as_json:
        _print_json([listing.measured(path) for path in found])


@app.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe, for example quick or vit_tiny_cifar100(seed=1)", autocompletion=completion.recipes
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run folder; the same one goes on where it stopped.")] = Path(
        "runs/train"
    ),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, key=value; dots reach into groups.")
    ] = None,
    root: Root = None,
    device: Device = None,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard events into the run folder.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train as a recipe says: one process, or many under torchrun."""
    from vitlab.core import plugins
    from vitlab.core.recipe import change

    chosen = change(plugins.recipe(recipe), set_ or [])
    with _importing(quiet):
        from vitlab.tasks import classification
        from vitlab.training.events import tensorboard_log

    log = tensorboard_log(out) if tensorboard else None
    show = sys.stderr.isatty() and not quiet
    asked = any(text.partition("=")[0].strip() == "compile" for text in set_ or [])
    how: dict[str, Any] = {"root": root, "device": device, "show": show, "log": log, "compile_on_cpu": asked}
    row = classification.run(chosen, out, **how)
    if not is_main_process():
        return
    if as_json:
        _print_json(row)
    else:
        typer.echo("  ".join(f"{key} {value:.4g}" for key, value in row.items()))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Measurements, or folders of them.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw stored measurements as one self-contained HTML page."""
    from vitlab.reporting import read, report

    measurements = read(runs)
    page = report(measurements, out)
    if as_json:
        _print_json({"path": str(page), "measurements": len(measurements)})
    else:
        typer.echo(page)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models, measurements and the page.")] = Path("runs/demo"),
    epochs: Annotated[int, typer.Option(help="Training epochs of each model.")] = 6,
    images: Annotated[int, typer.Option(help="Training images.")] = 1280,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a small ViT plain, with CB, and with TAP + ADL on embedded images; measure, stress and report them."""
    with _importing(quiet):
        from vitlab import demo

    page, said = demo.run(out, epochs, images, show=not quiet)
    if as_json:
        _print_json({"report": str(page), "sentences": said})
    else:
        typer.echo("\n".join([*(f"- {sentence}" for sentence in said), f"The report: {page}"]))


@app.command()
def explore(
    models: Models,
    data: Data = None,
    root: Root = None,
    images: Annotated[int, typer.Option(help="How many test images to offer.")] = 24,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 takes a free one.")] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve a local page to look inside one model, or two side by side, until Ctrl-C."""
    from importlib.util import find_spec

    for library in ("fastapi", "uvicorn"):
        if find_spec(library) is None:
            raise VitlabError(f"the explorer needs {library}: pip install 'vitlab[explore]'")
    with _importing(quiet):
        from vitlab.explore.app import explore

    def say(address: str) -> None:
        _print_json({"address": address}) if as_json else typer.echo(address)

    explore(models, data=data, root=root, images=images, port=port, say=say, show=not quiet)


def _importing(quiet: bool) -> AbstractContextManager[None]:
    """Show that torch is being imported, which takes seconds."""
    from vitlab.progress import waiting

    return waiting("importing torch", show=not quiet)


def _print_json(found: Any) -> None:
    from vitlab.cli.listing import finite

    typer.echo(json.dumps(finite(found) if isinstance(found, dict) else found, indent=1, ensure_ascii=False))


def _size(text: str) -> Any:
    if not text:
        return None
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts) or len(parts) > 2:
        raise VitlabError(f"--size {text!r} is no size; write 224 or 224x320 (height x width)")
    return (int(parts[0]), int(parts[-1]))
