"""The command line: verbs only. Each one imports what it needs when it runs, so that `--help` imports no torch."""

from __future__ import annotations

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


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="parts, models, families or instruments")] = "",
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what there is: one full name a line off a terminal."""
    from vitlab import listing

    if what and what not in listing.KINDS:
        raise unknown("list", what, listing.KINDS)
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
    images: Annotated[int, typer.Option(help="How many of the embedded images.")] = 64,
    out: Annotated[Path, typer.Option(help="Folder for the measurements.")] = Path("runs/measure"),
) -> None:
    """Measure models with instruments on the embedded scenes; writes one JSON + npz each."""
    from vitlab import laboratory

    for path in laboratory.measure(models, [name.strip() for name in with_.split(",")], images, out):
        typer.echo(path)


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
    steps: Annotated[int, typer.Option(help="Training steps of each model.")] = 250,
) -> None:
    """Train a small ViT without and with Context Broadcasting on embedded images, measure both, write a report."""
    from vitlab import demo

    demo.run(out, steps)


def _size(text: str) -> Any:
    if not text:
        return None
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts) or len(parts) > 2:
        raise VitlabError(f"--size {text!r} is no size; write 224 or 224x320 (height x width)")
    return (int(parts[0]), int(parts[-1]))
