"""TAPADL Table 2: the claims of one base depend on this base only, and published weights are not trained ones."""

from __future__ import annotations

from experiments.robust_token_attention import by_name
from experiments.robust_token_attention.by_name import example as example
from experiments.synthetic import entry
from vitlab.core.experiment import Results
from vitlab.experiments.robust_token_attention import table_2


def outcomes(results: Results) -> dict[str, str]:
    return dict(zip([c.name for c in table_2.CLAIMS], [v.outcome for v in table_2.check(results)], strict=True))


def test_results_of_fan_do_not_decide_the_claim_on_rvt() -> None:
    claim = next(claim for claim in table_2.CLAIMS if claim.name == "mce_fan_tap")
    found = outcomes(example(claim, [1.1, 1.2, 1.3]))
    assert {name for name, outcome in found.items() if outcome != "not run"} == {"mce_fan_tap"}


def test_a_trained_network_is_not_the_published_one() -> None:
    trained = Results([entry("fan_plain", by_name.FOUND["mce"](46.1))])
    published = Results([entry("fan_plain", by_name.FOUND["mce"](46.1), model=by_name.MODEL)])
    assert outcomes(trained)["evaluated_mce_fan_plain"] == "not run"
    assert outcomes(published)["evaluated_mce_fan_plain"] == "holds"


def test_the_baseline_has_the_files_of_every_benchmark() -> None:
    needs = {need for job in table_2.plan("released") for need in job.needs}
    assert {"imagenet", "imagenet-a", "imagenet-c", "imagenet-p", "imagenet-r"} <= needs
    assert {"weights/fan_hybrid_base.pth.tar", "weights/tapadl_fan_base.pth.tar"} <= needs


def test_quoted_models_with_published_weights_are_measured() -> None:
    """Of the five quoted rows RSPC alone has no weights; each has one claim per printed number of a benchmark."""
    jobs = [job for job in table_2.plan("released") if job.arm in ("convnext", "convit", "swin_b", "t2t")]
    assert len(jobs) == 4 * 5 and all(job.model for job in jobs)
    assert all("weights/82.6_T2T_ViTt_24.pth.tar" in job.needs for job in jobs if job.arm == "t2t")
    claims = [claim for claim in table_2.CLAIMS if claim.name.endswith(("convnext", "convit", "swin_b", "t2t"))]
    assert len(claims) == 5 + 5 + 5 + 4  # the mFR of ConvNeXt-B is not printed
    assert {(number.row, number.runs) for number in table_2.PAPER if number.row.startswith("RSPC")} == {
        ("RSPC (FAN-B-Hybrid)", False)
    }
