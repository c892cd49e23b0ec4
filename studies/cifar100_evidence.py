"""When do CB, TAP and ADL help a ViT-Ti on CIFAR-100? Many conditions, paired seeds, all measurements on each network.

    VITLAB_DATA=... python studies/cifar100_evidence.py --out runs/evidence --workers 2

The conditions are in `studies/evidence/conditions.py`, in order of priority. Every finished run writes one JSON file
with everything that was measured; what `--out` or `--done` already holds is skipped. Afterwards
`PYTHONPATH=studies python -m evidence.tables runs/evidence` makes tables, verdicts and a picture.
`--smoke` trains small models on a few embedded scenes instead.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from evidence.conditions import all_jobs
from evidence.measuring import Extent
from evidence.mps import shared_device
from evidence.training import check_data
from evidence.working import Setup, names_of_finished, process_environment, work_off

#: Half a minute on a CPU, with nothing to download.
SMOKE = ("epochs=1", "batch_size=32", "compile=False", "precision=float32")
SMOKE_DATA = "scenes(train=64, test=32)"
SMOKE_EXTENT = Extent(
    attention=16,
    corruptions={"names": ("gaussian_noise", "fog"), "severities": (1, 5)},
    occlusion={"ratios": (0.5,)},
    adversarial={"steps": 2},
)
SMOKE_JOBS = "centre,tapadl-adl,tapadl-cb_tap,places-cb_s"


def main() -> None:
    """Do all runs that are not done yet."""
    options = _options()
    out: Path = options.out
    settings = tuple(options.set)
    data, extent = options.data, None if options.bare else Extent()
    asked = [name for name in options.jobs.split(",") if name]
    if options.smoke:
        data, extent, settings = SMOKE_DATA, SMOKE_EXTENT, (*SMOKE, *settings)
        asked = asked or SMOKE_JOBS.split(",")
    check_data(data)  # before any process is started
    out.mkdir(parents=True, exist_ok=True)
    done = {path.stem for path in out.glob("*.json")} | names_of_finished(options.done)
    jobs = [job for job in all_jobs(asked) if job.name not in done]
    if options.seeds or options.smoke:
        chosen = {int(seed) for seed in options.seeds.split(",") if seed}
        jobs = [job for job in jobs if job.seed in (chosen or {job.condition.seeds[0]})]
    print(f"{len(jobs)} runs to do, {len(done)} done", flush=True)
    process_environment(options.cache)
    setup = Setup(out, data, settings, extent, options.device)
    with shared_device(options.mps):
        finished = work_off(jobs, setup, workers=options.workers, seconds=options.seconds, tar=options.tar)
    print(f"{finished} runs finished; results in {out}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="", help="conditions, or condition-arm, separated by commas; all by default")
    parser.add_argument("--seeds", default="", help="only these seeds, separated by commas")
    parser.add_argument("--out", type=Path, default=Path("runs/cifar100_evidence"))
    parser.add_argument("--done", type=Path, help="a folder of results, or a file with their names, to be skipped")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device")
    parser.add_argument("--mps", action="store_true", help="let them run at the same time (NVIDIA MPS), if possible")
    parser.add_argument("--seconds", type=float, help="begin no run that would not end within this time")
    parser.add_argument("--tar", type=Path, help="pack all results into this .tar.gz, after each of them")
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--device", help="cpu or cuda; by default CUDA where there is one")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "vitlab-compiled")
    parser.add_argument("--set", action="append", default=[], help="a setting of every recipe, key=value, for trials")
    parser.add_argument("--bare", action="store_true", help="train only, measure nothing, for trials")
    parser.add_argument("--smoke", action="store_true", help="one seed, one epoch, embedded scenes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
