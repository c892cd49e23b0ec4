"""Measurements: validation of axes, and saving and loading, also of damaged files."""

from __future__ import annotations

import json
import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as stn

from vitlab.core.errors import VitlabError
from vitlab.core.lock import one_writer
from vitlab.core.measurement import Measurement
from vitlab.core.store import write_atomically


def example() -> Measurement:
    values = {
        "entropy": np.array([[1.0, np.nan, -np.inf], [0.0, 1e-300, 3.0]]),
        "mean": np.float32(2.5),
        "n": np.arange(2),
    }
    dims = {"entropy": ("layer", "head"), "mean": (), "n": ("layer",)}
    axes = {"layer": ("blocks.0", "blöcke | 1")}
    return Measurement("attention_entropy", "timm/x | P(at='mlp.out')", values, dims, axes, {"tau": 2.0}, {"seed": 3})


def same(first: Measurement, second: Measurement) -> bool:
    plain = ("kind", "subject", "dims", "axes", "settings", "provenance")
    return (
        all(getattr(first, name) == getattr(second, name) for name in plain)
        and first.values.keys() == second.values.keys()
        and all(
            np.array_equal(first.values[name], second.values[name], equal_nan=np.asarray(value).dtype.kind == "f")
            and np.asarray(first.values[name]).dtype == second.values[name].dtype
            for name, value in first.values.items()
        )
    )


@pytest.mark.parametrize("stem", ["m", "a.b", "deep/er/m", "with space (1)"])
def test_a_measurement_round_trips(stem: str, tmp_path: Path) -> None:
    about = example().save(tmp_path / stem)
    assert about == tmp_path / f"{stem}.json" and about.exists()
    assert same(example(), Measurement.load(about)) and same(example(), Measurement.load(tmp_path / stem))
    assert not list(tmp_path.rglob("*.partial"))


kinds = stn.floating_dtypes(sizes=(32, 64), endianness="=") | stn.integer_dtypes(endianness="=") | stn.boolean_dtypes()


@settings(deadline=None, max_examples=25)
@given(stn.arrays(kinds, stn.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
def test_arrays_of_any_shape_and_dtype_round_trip(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    dims = tuple(f"axis{i}" for i in range(array.ndim))
    found = Measurement("k", "s", {"x": array}, {"x": dims})
    stem = tmp_path_factory.mktemp("m") / "m"
    found.save(stem)
    assert same(found, Measurement.load(stem))


@pytest.mark.parametrize(
    ("value", "dims", "axes", "error"),
    [
        (np.zeros((2, 3)), ("layer",), {}, "'x' of k has 2 axes, but dims names"),
        (np.zeros(2), (), {}, "'x' of k has 1 axes"),
        (np.float64(1.0), ("layer",), {}, "'x' of k has 0 axes"),
        (np.zeros((2, 3)), ("layer", "head"), {"head": ("a", "b")}, "axis 'head' of 'x' has length 3, but 2 labels"),
        (np.array([{}], dtype=object), ("layer",), {}, "'x' of k holds Python objects"),
    ],
)
def test_values_that_do_not_fit_their_axes_raise(
    value: np.ndarray, dims: tuple[str, ...], axes: dict[str, tuple[str, ...]], error: str
) -> None:
    with pytest.raises(VitlabError, match=error):
        Measurement("k", "s", {"x": value}, {"x": dims}, axes)


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return pytest.fail, ("it was unpickled",)


def test_pickles_are_refused_and_not_opened(tmp_path: Path) -> None:
    about = example().save(tmp_path / "m")
    text = json.loads(about.read_text())
    del text["checksum"]  # as in files of earlier versions
    about.write_text(json.dumps(text))
    for write in (
        lambda path: np.savez(path, entropy=np.array([Bomb()], dtype=object)),
        lambda path: path.write_bytes(pickle.dumps(Bomb())),
    ):
        write(tmp_path / "m.npz")
        with pytest.raises(VitlabError, match="not a measurement of vitlab.*pickle") as caught:
            Measurement.load(tmp_path / "m")
        assert len(str(caught.value).splitlines()) == 1


def test_damage_to_the_word_checksum_does_not_turn_verification_off(tmp_path: Path) -> None:
    about = example().save(tmp_path / "m")
    about.write_text(about.read_text().replace('"checksum"', '"chccksum"'))
    text = json.loads(about.read_text())
    text["settings"] = {"changed": 1}
    about.write_text(json.dumps(text))
    with pytest.raises(VitlabError, match="unknown field 'chccksum'"):
        Measurement.load(about)


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def damage_bits(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[60:80] = bytes(255 - byte for byte in data[60:80])
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [damage_cut, damage_bits, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_missing_cut_and_damaged_files_are_one_line(damage: object, suffix: str, tmp_path: Path) -> None:
    example().save(tmp_path / "m")
    damage(tmp_path / f"m{suffix}")
    with pytest.raises(VitlabError, match="m.json and m.npz are not a measurement") as caught:
        Measurement.load(tmp_path / "m")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    ["[]", "3", "{}", '{"kind": "k"}', '{"kind":"k","subject":"s","dims":[],"axes":{},"settings":{},"provenance":{}}'],
)
def test_foreign_json_is_a_one_line_error(text: str, tmp_path: Path) -> None:
    example().save(tmp_path / "m")
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(VitlabError, match="not a measurement of vitlab"):
        Measurement.load(tmp_path / "m")


def test_files_whose_axes_do_not_fit_are_refused(tmp_path: Path) -> None:
    about = example().save(tmp_path / "m")
    text = json.loads(about.read_text(encoding="utf-8"))
    text["dims"]["entropy"] = ["layer"]
    del text["checksum"]
    about.write_text(json.dumps(text))
    with pytest.raises(VitlabError, match="2 axes"):
        Measurement.load(about)


def test_settings_that_are_not_json_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(VitlabError, match="settings of k: <object .* is a object; expected numbers"):
        Measurement("k", "s", {}, {}, settings={"x": object()}).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_loaded_measurement_equals_the_original(tmp_path: Path) -> None:
    settings = {"sizes": (1, np.int64(2)), "root": tmp_path, "rate": np.float32(0.5), "deep": {"a": [(True, None)]}}
    values = {"x": np.array([1.0, np.nan]), "x_error": [0.1, 0.2], "n": 3}
    dims = {"x": ["layer"], "x_error": ("layer",), "n": ()}
    axes = {"layer": (np.str_("a"), ("b", 1))}
    about = {"part": (1, 3), "counts": np.arange(2)}
    pooling = {"n": ["sum"]}
    found = Measurement("k", "s", values, dims, axes, settings, about, {"x": "x_error"}, pooling)
    found.save(tmp_path / "m")
    assert Measurement.load(tmp_path / "m") == found
    assert found.settings == {"sizes": [1, 2], "root": str(tmp_path), "rate": 0.5, "deep": {"a": [[True, None]]}}
    assert found != replace(found, values={**values, "n": 4}) and found != "something else"


def test_which_value_is_an_error_is_stored_and_not_guessed(tmp_path: Path) -> None:
    values = {"accuracy": np.zeros(2), "spread": np.ones(2), "accuracy_error": np.ones(2)}
    found = Measurement("k", "s", values, dict.fromkeys(values, ("mask",)), errors={"accuracy": "spread"})
    about = found.save(tmp_path / "m")
    assert Measurement.load(about).errors == {"accuracy": "spread"}
    assert Measurement("k", "s", values, dict.fromkeys(values, ("mask",))).errors == {}
    text = json.loads(about.read_text(encoding="utf-8"))
    del text["errors"], text["pooling"], text["checksum"]  # as it was before the fields existed
    about.write_text(json.dumps(text))
    assert Measurement.load(about).errors == {"accuracy": "accuracy_error"}


@pytest.mark.parametrize(
    ("errors", "pooling", "message"),
    [
        ({"x": "y_error"}, {}, "errors of k maps 'x' to 'y_error'; both must be values"),
        ({"x": "wide"}, {}, "must have the shape of 'x'"),
        ({}, {"y": ("sum",)}, "k has a pooling rule for 'y', but no value"),
    ],
)
def test_errors_and_rules_name_values(
    errors: dict[str, str], pooling: dict[str, tuple[str, ...]], message: str
) -> None:
    values, dims = {"x": np.zeros(2), "wide": np.zeros(3)}, {"x": ("layer",), "wide": ("edge",)}
    with pytest.raises(VitlabError, match=message):
        Measurement("k", "s", values, dims, errors=errors, pooling=pooling)


def test_the_stored_results_still_load() -> None:
    folder = Path(__file__).parents[2] / "docs" / "results" / "data"
    corruptions = Measurement.load(folder / "stress_deit_tiny" / "corruptions")
    assert corruptions.errors["mce"] == "mce_error" and corruptions.errors["accuracy"] == "standard_error"
    assert Measurement.load(folder / "deit_tiny" / "calibration").errors == {}


def test_concurrent_writers_leave_a_consistent_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first writer has written its arrays and waits while the second starts."""
    started, begun = threading.Event(), []

    def slow(path: Path) -> object:
        if path.suffix == ".json" and not begun:
            begun.append(path)
            started.set()
            time.sleep(0.5)
        return write_atomically(path)

    def save(value: float) -> None:
        Measurement("x", "model", {"a": np.full(3, value)}, {"a": ("i",)}, {"i": (0, 1, 2)}).save(tmp_path / "m")

    monkeypatch.setattr("vitlab.core.measurement.write_atomically", slow)
    first = threading.Thread(target=save, args=(1.0,))
    first.start()
    started.wait()
    save(2.0)
    first.join()
    assert Measurement.load(tmp_path / "m").values["a"].tolist() == [2.0] * 3  # the checksum of both files matches
    assert sorted(file.name for file in tmp_path.iterdir()) == ["m.json", "m.npz"]


def test_one_writer_waits_for_the_other(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with one_writer(tmp_path):
            order.append("second")

    with one_writer(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and not list(tmp_path.iterdir())
