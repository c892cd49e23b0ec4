"""The command line: verbs only. Each one imports what it needs when it runs, so that `--help` imports no torch."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vitlab import __version__
from vitlab.core.errors import VitlabError, unknown

app = typer.Typer(
    no_args_is_help=True,
    help="A laboratory for vision transformers.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    try:
        app()
    except VitlabError as error:
        typer.echo(f"vitlab: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt as error:
        typer.echo(f"vitlab: {error or 'interrupted'}", err=True)
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="parts, models, families, instruments, stress, recipes or data")] = "",
    params: Annotated[bool, typer.Option("--params", help="Sizes of the papers' models, ours beside theirs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what there is: one full name a line off a terminal."""
    from vitlab import listing

    if what and what not in listing.KINDS:
        raise unknown("list", what, listing.KINDS)
    if params and what != "models":
        raise VitlabError("only models have parameters to list; write: vitlab list models --params")
    if params:
        listing.show_sizes(as_json=json)
    else:
        listing.show(what, as_json=json)


@app.command()
def describe(
    model: Annotated[str, typer.Argument(help="A model expression, for example timm/deit_tiny_patch16_224")],
    size: Annotated[str, typer.Option(help="Image size, HEIGHTxWIDTH; by default the model's own.")] = "",
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show a model's blocks, token layout and seams, and which weights it has."""
    from vitlab import listing

    listing.show_anatomy(model, _size(size), as_json=json)


@app.command()
def measure(
    models: Annotated[list[str], typer.Argument(help="Model expressions.")],
    with_: Annotated[str, typer.Option("--with", help="Instruments, separated by commas.")] = "attention_entropy",
    data: Annotated[str, typer.Option(help="A data expression, for example scenes or imagenet.")] = "scenes",
    root: Annotated[Path | None, typer.Option(help="Folder of the data sets; else VITLAB_DATA.")] = None,
    images: Annotated[int, typer.Option(help="How many test images.")] = 64,
    out: Annotated[Path, typer.Option(help="Folder for the measurements.")] = Path("runs/measure"),
) -> None:
    """Measure models with instruments; writes one JSON + npz each, and goes on where it stopped."""
    from vitlab import laboratory

    for path in laboratory.measure(models, _names(with_), out, data=data, root=root, images=images):
        typer.echo(path)


@app.command()
def stress(
    models: Annotated[list[str], typer.Argument(help="Model expressions.")],
    with_: Annotated[str, typer.Option("--with", help="Stress tests, separated by commas.")] = "corruptions",
    data: Annotated[str, typer.Option(help="A data expression, for example scenes or imagenet.")] = "scenes",
    root: Annotated[Path | None, typer.Option(help="Folder of the data sets; else VITLAB_DATA.")] = None,
    images: Annotated[int, typer.Option(help="How many test images.")] = 64,
    out: Annotated[Path, typer.Option(help="Folder for the measurements.")] = Path("runs/stress"),
) -> None:
    """Put models under stress tests; writes one JSON + npz each, and goes on where it stopped."""
    from vitlab import laboratory

    for path in laboratory.stress(models, _names(with_), out, data=data, root=root, images=images):
        typer.echo(path)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe, for example quick or vit_tiny_cifar100(seed=1)")],
    out: Annotated[Path, typer.Option(help="The run folder; the same one goes on where it stopped.")] = Path(
        "runs/train"
    ),
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, key=value; dots reach into groups.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of the data sets; else VITLAB_DATA.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default CUDA where there is one.")] = None,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard events into the run folder.")] = False,
) -> None:
    """Train as a recipe says: one process, or many under torchrun."""
    from vitlab.core import plugins
    from vitlab.core.recipe import change
    from vitlab.tasks import classification
    from vitlab.training.events import tensorboard_log

    chosen = change(plugins.recipe(recipe), set_ or [])
    log = tensorboard_log(out) if tensorboard else None
    row = classification.run(chosen, out, root=root, device=device, show=sys.stderr.isatty(), log=log)
    typer.echo("  ".join(f"{key} {value:.4g}" for key, value in row.items()))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Measurements, or folders of them.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path("report.html"),
) -> None:
    """Draw stored measurements as one self-contained HTML page."""
    from vitlab.reporting import read, report

    typer.echo(report(read(runs), out))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models, measurements and the page.")] = Path("runs/demo"),
    epochs: Annotated[int, typer.Option(help="Training epochs of each model.")] = 8,
    images: Annotated[int, typer.Option(help="Training images.")] = 1536,
) -> None:
    """Train a small ViT without and with Context Broadcasting on embedded images, measure both, write a report."""
    from vitlab import demo

    demo.run(out, epochs, images)


def _names(text: str) -> list[str]:
    """Cut at commas outside parentheses; settings may hold parentheses of their own."""
    return [name.strip() for name in re.split(r",(?![^()]*(?:\([^()]*\)[^()]*)*\))", text) if name.strip()]


def _size(text: str) -> Any:
    if not text:
        return None
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts) or len(parts) > 2:
        raise VitlabError(f"--size {text!r} is no size; write 224 or 224x320 (height x width)")
    return (int(parts[0]), int(parts[-1]))
