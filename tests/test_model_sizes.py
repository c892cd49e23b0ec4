"""Sizes of the papers' models: closed forms for a ViT, the papers' counts of parts, and the whole table."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from vitlab import model_sizes, zoo
from vitlab.cli import app, listing
from vitlab.core.errors import VitlabError

VIT_S = "timm/deit_small_patch16_224"
LAYERS, TOKENS, DIM = 12, 197, 384


def added(parts: str) -> int:
    with torch.device("meta"):
        return model_sizes.added_operations(zoo.load(f"{VIT_S} | {parts}"))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ("ContextBroadcast", 907_776),  # 12 · 197 · 384, printed +0.9 M
        ("ContextBroadcast(at='mlp.in')", 907_776),
        ("ContextBroadcast(at='mlp.mid')", 4 * 907_776),  # +3.6 M
        ("ContextBroadcast(at='mlp.out') | ContextBroadcast(at='attn.out')", 2 * 907_776),  # +1.8 M
        ("ContextBroadcast(blocks='upper')", 907_776 // 2),
        ("ScaledContextBroadcast", 907_776),
        ("GatedContextBroadcast", 907_776),
        ("SqueezeExcite", 907_776),  # its gate; a flop counter sees its linear layers
        ("HybridContextBroadcast", 2 * 907_776),  # +1.8 M
        ("HybridContextBroadcast(at='mlp.mid')", 8 * 907_776),  # +7.3 M
        ("TokenAwarePooling", 0),  # a flop counter sees its convolutions
    ],
)
def test_elementwise_work_of_tables_s16_and_s17(parts: str, expected: int) -> None:
    assert added(parts) == expected


def test_a_vit_in_closed_form() -> None:
    size = model_sizes.size_of(VIT_S)
    layer = 12 * DIM**2 + 13 * DIM  # qkv, proj and MLP with their biases, two norms
    ends = (16 * 16 * 3 + 1) * DIM + (TOKENS + 1) * DIM + 2 * DIM + (DIM + 1) * 1000
    assert size.parameters == LAYERS * layer + ends
    products = TOKENS * 12 * DIM**2 + 2 * TOKENS**2 * DIM
    assert size.macs == LAYERS * products + (TOKENS - 1) * 16 * 16 * 3 * DIM + DIM * 1000
    assert size.added_macs == 0


def test_counting_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    model_sizes.size_of("vitlab/rvt_base_plus")
    assert torch.equal(torch.get_rng_state(), before)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.5, 200), st.integers(0, 2))
def test_counts_are_marked_against_the_papers(ours: float, digits: int) -> None:
    printed = round(ours, digits or None)
    if printed > 0:
        assert model_sizes.agreement(ours, printed, within=0.0) == "="
        assert model_sizes.agreement(1.01 * ours + 1.1, printed, within=1e9) == "≈"
        assert model_sizes.agreement(1.01 * ours + 1.1, printed, within=0.0) == "≠"
    assert model_sizes.agreement(ours, None, within=0.0) == ""


def test_a_wrong_count_is_marked() -> None:
    known = model_sizes.Published(params_m=5.0, macs_g=1.0, exact_params=5_000_000, added_macs_m=0.5)
    size = model_sizes.Size("timm/x", 5_100_000, 1_015_000_000, 400_000, known)
    assert size.marks == {"exact_params": "≠", "params_m": "≠", "macs_g": "=", "added_macs_m": "≠"}


def test_every_model_of_ours_is_in_the_table() -> None:
    assert {f"vitlab/{name}" for name in zoo.model_names("vitlab")} <= set(model_sizes.published())


@pytest.mark.slow
def test_the_whole_table_agrees_with_the_papers() -> None:
    found = {(size.expression, key) for size in model_sizes.sizes() for key, mark in size.marks.items() if mark == "≠"}
    # FAN prints 28.0 M, the released model has exactly ours, 28.3 M: fan.py tells
    assert found == {("vitlab/fan_small_vit", "params_m")}


@pytest.fixture
def two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ("vitlab/rvt_tiny_plus", f"{VIT_S} | ContextBroadcast(at='mlp.mid')")
    some = {name: entry for name, entry in model_sizes.published().items() if name in chosen}
    monkeypatch.setattr(model_sizes, "published", lambda: some)


@pytest.mark.usefixtures("two_models")
def test_the_command_prints_one_line_a_model() -> None:
    result = CliRunner().invoke(app, ["list", "models", "--params"])
    header, rvt, vit = (line.split("\t") for line in result.stdout.rstrip("\n").split("\n"))
    assert header[:2] == ["model", "parameters"] and len(header) == len(rvt) == len(vit)
    assert rvt == ["vitlab/rvt_tiny_plus", "10,951,336", "= 10,951,336", "≈ 10.9", "1.284", "= 1.3", "", ""]
    assert vit[1:] == ["22,050,664", "", "", "4.599", "= 4.6", "3.63", "= 3.6"]


@pytest.mark.usefixtures("two_models")
def test_the_command_prints_json() -> None:
    rvt, vit = json.loads(CliRunner().invoke(app, ["list", "models", "--params", "--json"]).stdout)
    assert rvt["parameters"] == rvt["published"]["exact_params"] == 10_951_336
    assert vit["added_macs"] == 4 * 907_776 and vit["marks"]["added_macs_m"] == "="


@pytest.mark.usefixtures("two_models")
def test_on_a_terminal_the_marks_are_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(listing.sys, "stdout", _Terminal(listing.sys.stdout))
    listing.show_sizes()
    printed = capsys.readouterr().out
    assert "≈ 10.9" in printed and "within 1 %" in printed


class _Terminal(SimpleNamespace):
    """Standard output that reports to be a terminal."""

    def __init__(self, inner: object) -> None:
        super().__init__(inner=inner)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def isatty(self) -> bool:
        return True


def test_other_kinds_have_no_parameters() -> None:
    with pytest.raises(VitlabError, match="list models --params"):
        CliRunner().invoke(app, ["list", "parts", "--params"], catch_exceptions=False)
