"""The commands. Each imports what it needs when it runs, so that `--help` does not import torch."""

from __future__ import annotations

import sys
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from vitlab import __version__
from vitlab.cli import completion, exit_codes
from vitlab.cli.json_output import print_json
from vitlab.core.errors import ExtensionError, VitlabError, unknown
from vitlab.core.expressions import split_calls
from vitlab.core.process import is_main_process

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Root = Annotated[Path | None, typer.Option(help="Folder of the data sets; default: VITLAB_DATA.")]
Models = Annotated[list[str], typer.Argument(help="Model expressions.", autocompletion=completion.models)]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Data expression or folder; default: the data of the training run, else scenes.",
        autocompletion=completion.data,
    ),
]
Preprocess = Annotated[
    str,
    typer.Option("--preprocessing", help="Replaces the model's own, for example crop=1.0,interpolation='bilinear'."),
]
Classes = Annotated[
    Path | None,
    typer.Option("--classes", help="File with the names of the model's outputs, or JSON from class to output."),
]
AugmentName = Annotated[
    str | None,
    typer.Option("--augment", help="Augmentation of training images: a recipe, weak or none; default: the run's own."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or mps; default: cuda if available, else cpu.")]
Images = Annotated[
    int | None,
    typer.Option(help="Number of images; default 64. File-based tests use all files by default.", show_default=False),
]
Repeats = Annotated[int, typer.Option(help="Split the images into N disjoint parts; gives error bars.")]
Names = Annotated[list[str] | None, typer.Option("--name", help="Display name in reports; one for each model.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would run, on which data and for how long; run nothing.")
]
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
            help="parts, models, families, instruments, stress, recipes, data, losses, figures or experiments; "
            "with --settings also one name",
            autocompletion=completion.kinds,
        ),
    ] = "",
    params: Annotated[bool, typer.Option("--params", help="Parameters and MACs, counted and published.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Settings: type, default, range and help.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List names of one kind, or the number of each kind; one name per line when piped."""
    from vitlab.cli import listing

    if settings:
        from vitlab.cli import settings_table

        settings_table.show(what, as_json=as_json)
        return
    if what and what not in listing.KINDS:
        raise unknown("list", what, listing.KINDS)
    if params and what != "models":
        raise VitlabError("--params applies to models only; expected: vitlab list models --params")
    if params:
        listing.show_sizes(as_json=as_json, quiet=quiet)
    else:
        listing.show(what, as_json=as_json, quiet=quiet)


@app.command()
def describe(
    model: Annotated[
        str,
        typer.Argument(
            help="Model expression, for example timm/deit_tiny_patch16_224.", autocompletion=completion.models
        ),
    ],
    size: Annotated[str, typer.Option(help="Image size, HEIGHTxWIDTH; default: the model's own.")] = "",
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Which form of each fused operator runs, and why.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show a model's blocks, token layout, seams and the origin of its weights."""
    _connect([model])
    from vitlab.cli import description

    if kernels:
        description.show_kernels(model, _size(size), as_json=as_json)
    else:
        description.show_anatomy(model, _size(size), as_json=as_json)


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
    dry: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure models with instruments; writes one JSON + npz each. Resumes if interrupted."""
    options = {"data": data, "root": root, "images": images, "repeats": repeats, "device": device, "called": name or ()}
    options |= {"augment": augment, **_input_options(preprocessing, classes)}
    _run_all("measure", models, with_, out, as_json, quiet, options, dry=dry)


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
    dry: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run stress tests on models; writes one JSON + npz each. Resumes if interrupted."""
    options = {"data": data, "root": root, "images": images, "repeats": repeats, "device": device, "called": name or ()}
    options |= _input_options(preprocessing, classes)
    _run_all("stress", models, with_, out, as_json, quiet, options, dry=dry)


def _input_options(preprocessing: str, classes: Path | None) -> dict[str, Any]:
    """Parse the options on preprocessing and labels."""
    from vitlab.core.expressions import parse_call
    from vitlab.preprocessing.labels import read_classes

    _, fields = parse_call(f"preprocessing({preprocessing})")
    return {"preprocessing": fields, "classes": None if classes is None else read_classes(classes)}


def _run_all(
    verb: str,
    models: list[str],
    names: str,
    out: Path,
    as_json: bool,
    quiet: bool,
    options: dict[str, Any],
    *,
    dry: bool,
) -> None:
    """Print the path of each measurement when it is stored, or all results as JSON at the end."""
    _connect(models)
    if dry:
        with _importing(quiet):
            from vitlab.cli import dry_runs

        dry_runs.show_measurements(verb, models, split_calls(names), out, options, as_json=as_json)
        return
    with _importing(quiet):
        from vitlab import runner
        from vitlab.cli.measured import measured, model_of, shortfall

    if quiet:
        warnings.simplefilter("ignore", UserWarning)
    paths, printed, failure = [], {""}, None
    try:
        for path in getattr(runner, verb)(models, split_calls(names), out, show=not quiet, **options):
            paths.append(path)
            for note in () if quiet else (model_of(path), shortfall(path)):
                if note not in printed:
                    typer.echo(note, err=True)
                printed.add(note)
            if not as_json:
                typer.echo(path)
    except ExtensionError as error:  # the other measurements are stored
        failure = error
    if as_json:
        print_json([measured(path) for path in paths])
    elif not quiet and paths:
        from vitlab.cli.tables import show_numbers

        show_numbers(paths, beside_paths=True)
    if failure is not None:
        raise failure


@app.command()
def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Recipe, for example quick or vit_tiny_cifar100(seed=1).", autocompletion=completion.recipes
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder; an interrupted run in the same folder resumes.")] = Path(
        "runs/train"
    ),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting, for example batch_size=32 or optimizer.lr=1e-3."),
    ] = None,
    root: Root = None,
    device: Device = None,
    tensorboard: Annotated[bool, typer.Option(help="Also write TensorBoard events into the run folder.")] = False,
    wandb: Annotated[str | None, typer.Option(help="Also log to this project of Weights & Biases.")] = None,
    dry: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model by a recipe, in one process or under torchrun."""
    from vitlab.core import plugins
    from vitlab.core.recipe import change

    chosen = change(plugins.recipe(recipe), set_ or [])
    if dry:
        with _importing(quiet):
            from vitlab.cli import dry_runs

        dry_runs.show_training(chosen, out, root=root, device=device, as_json=as_json)
        return
    with _importing(quiet):
        from vitlab.tasks import train_task
        from vitlab.training.events import tensorboard_log, wandb_log

    if tensorboard and wandb:
        raise VitlabError("--tensorboard and --wandb were given; expected one of them")
    log = tensorboard_log(out) if tensorboard else wandb_log(out, wandb) if wandb else None
    show = sys.stderr.isatty() and not quiet
    compile_on_cpu = any(text.partition("=")[0].strip() == "compile" for text in set_ or [])
    options: dict[str, Any] = {"root": root, "device": device, "show": show, "log": log}
    row = train_task(chosen, out, compile_on_cpu=compile_on_cpu, **options)
    if not is_main_process():
        return
    if as_json:
        print_json(row)
    else:
        typer.echo("  ".join(_metric_text(key, value) for key, value in row.items()))


def _metric_text(name: str, value: float) -> str:
    """A metric of a training run with its name, counts without a decimal point.

    >>> _metric_text("step", 10000.0), _metric_text("train_loss", 1.38776)
    ('step 10,000', 'train loss 1.388')
    """
    words = {"lr": "learning rate", "top1": "top-1 accuracy", "top5": "top-5 accuracy", "miou": "mean IoU"}
    counts = ("step", "epoch", "test_images", "questions", "images_per_second")
    return f"{words.get(name, name.replace('_', ' '))} {f'{value:,.0f}' if name in counts else f'{value:.4g}'}"


@app.command()
def show(
    runs: Annotated[list[Path], typer.Argument(help="Measurements, or folders that contain them.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the key numbers of stored measurements, with differences between models."""
    from vitlab.cli.tables import show_numbers

    show_numbers(runs, as_json=as_json)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Measurements, or folders that contain them.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(metavar="<text>", help="Heading of the page.")] = "vitlab report",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write stored measurements as one self-contained HTML page."""
    from vitlab.reporting import read, report

    measurements = read(runs)
    page = report(measurements, out, title=title)
    if as_json:
        print_json({"path": str(page), "measurements": len(measurements)})
    else:
        typer.echo(page)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the models, measurements and the page.")] = Path("runs/demo"),
    epochs: Annotated[int, typer.Option(help="Number of training epochs of each model.")] = 6,
    images: Annotated[int, typer.Option(help="Number of training images.")] = 1280,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a small ViT plain, with CB, and with TAP + ADL on embedded images; measure, stress and report them."""
    with _importing(quiet):
        from vitlab import demo

    page, sentences = demo.run(out, epochs, images, show=not quiet)
    if as_json:
        print_json({"report": str(page), "sentences": sentences})
    else:
        typer.echo("\n".join([*(f"- {sentence}" for sentence in sentences), f"The report: {page}"]))


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments, for example cb_table_s16.", autocompletion=completion.experiments),
    ] = None,
    scale: Annotated[str, typer.Option(help="smoke, small, released or full.")] = "small",
    paper: Annotated[str, typer.Option(help="All experiments of a paper: cb, hdvw or tapadl.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="All experiments.")] = False,
    list_experiments: Annotated[
        bool, typer.Option("--list", help="List the experiments, what each needs, and which scales have results.")
    ] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Validate every job without running it.")] = False,
    recheck: Annotated[
        Path | None, typer.Option(help="Judge the records of a folder again, from their stored numbers; run nothing.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Train and measure again what is stored.")] = False,
    jobs_per_device: Annotated[int, typer.Option(help="Number of jobs at the same time on each GPU.")] = 1,
    on: Annotated[str, typer.Option(help="serial, slurm or ray, with settings: slurm(timeout_min=600).")] = "serial",
    root: Root = None,
    device: Device = None,
    out: Annotated[Path, typer.Option(help="Results folder; the same command resumes.")] = Path("runs/reproduce"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before more than one GPU hour.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run tables and figures of the papers as experiments; prints a verdict on each claim."""
    from vitlab.cli import reproduction
    from vitlab.experiments.catalogue import check_scale, select
    from vitlab.experiments.plan import Plan
    from vitlab.experiments.work import root_of

    if recheck is not None:
        from vitlab.experiments.recheck import recheck as judge_again

        if not reproduction.show_rechecked(judge_again(recheck, write=True), as_json=as_json, quiet=quiet):
            raise typer.Exit(1)
        return
    everything = all_ or (list_experiments and not (names or paper))
    chosen = select(names or [], paper, everything)
    if list_experiments:
        reproduction.show_list(chosen, out, as_json=as_json)
        return
    plan = Plan(chosen, check_scale(scale), out, root_of(root))
    reproduction.show_unplanned(plan, quiet=quiet)
    if not quiet:
        reproduction.show_plan(plan, force=force)
    if dry:
        with _importing(quiet):
            from vitlab.experiments.dry_run import dry_run
        if not reproduction.show_checked(dry_run(plan), as_json=as_json, quiet=quiet):
            raise typer.Exit(2)
        return
    asks = plan.cost(force=force).gpu_hours > 1 and not yes and sys.stdin.isatty()
    if asks and not typer.confirm("Run it?", err=True):
        return
    with _importing(quiet):
        from vitlab.experiments.engines import engine
        from vitlab.experiments.reproduce import reproduce
    warnings.simplefilter("ignore", UserWarning)  # random weights at smoke; each measurement's page states them
    options: dict[str, Any] = {"device": device, "engine": engine(on, jobs_per_device), "force": force}
    found = list(reproduce(plan, show=not quiet, **options))
    if not reproduction.show_verdicts(found, as_json=as_json):
        raise typer.Exit(1)
    if not as_json and not quiet:
        typer.echo(f"The pages: {found[0].page.parent}", err=True)


@app.command()
def explore(
    models: Models,
    data: Data = None,
    root: Root = None,
    images: Annotated[int, typer.Option(help="Number of test images, at most 1,000.")] = 24,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 for any free port.")] = 0,
    device: Device = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve a local page that shows the attention and features of one or two models, until Ctrl-C."""
    from importlib.util import find_spec

    for library in ("fastapi", "uvicorn"):
        if find_spec(library) is None:
            raise VitlabError(f"the explorer needs {library}: pip install 'vitlab[explore]'")
    _connect(models)
    with _importing(quiet):
        from vitlab.explore.app import explore

    def report_address(address: str) -> None:
        print_json({"address": address}) if as_json else typer.echo(address)

    options: dict[str, Any] = {"data": data, "root": root, "images": images, "port": port, "device": device}
    explore(models, **options, report_address=report_address, show=not quiet)


def _connect(models: list[str]) -> None:
    """Connect to the server of weights that models need while torch is imported, so that both take no longer."""
    if any("pretrained=True" in text and text.startswith(("timm/", "hf/")) for text in models):
        from vitlab.core import downloads

        downloads.begin_attempt(downloads.HUB)


def _importing(quiet: bool) -> AbstractContextManager[None]:
    """Show a spinner while torch is imported, which takes seconds."""
    from vitlab.progress import waiting

    return waiting("importing torch", show=not quiet)


def _size(text: str) -> Any:
    if not text:
        return None
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) > 0 for part in parts) or len(parts) > 2:
        raise VitlabError(f"invalid --size {text!r}; expected HEIGHTxWIDTH, for example 224x320, or one number")
    return (int(parts[0]), int(parts[-1]))
