from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timm.data import ImageNetInfo

import vitlab
from vitlab.preprocessing import match_labels
from vitlab.preprocessing.labels import read_classes

IMAGENET = tuple(ImageNetInfo("imagenet-1k").label_names())
WORDS = tuple(ImageNetInfo("imagenet-1k").label_name_to_description(name) for name in IMAGENET)


@given(st.lists(st.text("abcdefgh", min_size=3, max_size=6), min_size=2, max_size=12, unique=True), st.data())
def test_any_subset_in_any_order_is_matched_by_name(names, data) -> None:
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    match = match_labels(chosen, len(names), names)
    assert [names[output] for output in match.outputs] == chosen and match.of == len(names)


def test_synsets_descriptions_and_first_words_are_the_same_classes() -> None:
    for classes in (IMAGENET[5:9], WORDS[5:9], [word.partition(",")[0] for word in WORDS[5:9]]):
        for names in (IMAGENET, WORDS):
            assert match_labels(classes, 1000, names).outputs == (5, 6, 7, 8)
    assert match_labels(["Great_White_Shark"], 1000, IMAGENET).outputs == (2,)


def test_a_word_of_two_classes_is_not_matched() -> None:
    """ImageNet has two classes named crane, a bird and a machine."""
    assert "crane" in match_labels(["crane"], 1000, IMAGENET).why_not


def test_numbers_are_numbers_of_outputs_unless_they_are_names() -> None:
    assert match_labels(["7", "10"], 1000, IMAGENET).outputs == (7, 10)
    assert match_labels(["1", "0"], 2, ("0", "1")).outputs == (1, 0)


def test_without_names_only_equal_counts_fit() -> None:
    match = match_labels(["a", "b"], 2)
    assert match.outputs == (0, 1) and "by position" in match.how
    assert "2 classes and the model 3 outputs without names; give --classes FILE" in match_labels(["a", "b"], 3).why_not
    assert "no labels" in match_labels([], 3, ("a", "b", "c")).why_not
    other = match_labels(["a", "b"], 2, ("c", "d"))
    assert not other.outputs and "2 of the data's 2 classes (a, b) are not among" in other.why_not


def test_the_names_are_those_of_the_outputs() -> None:
    """Targets index outputs, so that names in the order of the data's classes would be those of other classes."""
    assert match_labels(["cat", "dog"], 2, (), ["dog", "cat"]).names == ("dog", "cat")
    assert match_labels(["cat", "dog"], 2, ("dog", "cat")).names == ("dog", "cat")
    assert match_labels(["cat", "dog"], 3, (), {"cat": 2, "dog": 0}).names == ("dog", "class 1", "cat")
    assert match_labels(["cat", "dog"], 1000, IMAGENET, {"cat": 2, "dog": 0}).names[:3] == ("dog", "class 1", "cat")
    assert match_labels(["cat", "dog"], 2).names == ("cat", "dog")


def test_an_order_that_libraries_disagree_on_is_a_warning() -> None:
    """timm sorts class folders naturally, torchvision's ImageFolder as text; the model does not say which it knows."""
    for classes in (["1", "2", "10"], ["ant", "Zebra"]):
        with pytest.warns(UserWarning, match="ImageFolder sorts them as text"):
            assert match_labels(classes, len(classes)).outputs == tuple(range(len(classes)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        match_labels(["1", "2", "3"], 3)
        match_labels(["zebra", "ant"], 2)  # the order of a data set, not that of folders
        match_labels(["1", "2", "10"], 3, ("1", "10", "2"))


def test_given_classes_have_priority(tmp_path: Path) -> None:
    names, mapping = tmp_path / "names.txt", tmp_path / "map.json"
    names.write_text("dog\n\ncat\n")
    mapping.write_text(json.dumps({"a": 1, "b": "zero"}))
    assert match_labels(["cat"], 2, (), read_classes(names)).outputs == (1,)
    assert match_labels(["a", "b"], 2, ("zero", "one"), read_classes(mapping)).outputs == (1, 0)
    with pytest.raises(vitlab.VitlabError, match="no output for class 'c'"):
        match_labels(["c"], 2, (), read_classes(mapping))
    with pytest.raises(vitlab.VitlabError, match="invalid output 9 for class 'a'; expected 0 to 1"):
        match_labels(["a"], 2, (), {"a": 9})
    with pytest.raises(vitlab.VitlabError, match="2 names of outputs; expected 3"):
        match_labels(["a"], 3, (), read_classes(names))
    mapping.write_text("{")
    with pytest.raises(vitlab.VitlabError, match="not valid JSON"):
        read_classes(mapping)
    with pytest.raises(vitlab.VitlabError, match="cannot read the class names"):
        read_classes(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty; expected the names"),
        (b"\x89PNG\r\n\x1a\n\xff\x00", "cannot read the class names"),
        (b"dog\ncat\x00\x01\n", "is not a list of class names .it has the line 'cat.x00.x01'."),
        (b"x" * 501, "is not a list of class names"),
        (b'{"a": 1}\n', "looks like JSON; rename it to file.json"),
        (b'[\n"a",\n"b"\n]\n', "looks like JSON"),
    ],
)
def test_a_file_without_names_is_a_one_line_error(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes(content)
    with pytest.raises(vitlab.VitlabError, match=reason) as caught:
        read_classes(tmp_path / "file.txt")
    assert "\n" not in str(caught.value) and "file.txt" in str(caught.value)


def test_lists_of_names_in_common_formats(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_bytes("\ufefftench, Tinca tinca\r\nn01443537\tgoldfish\r\ncafé\r\n".encode())
    assert read_classes(tmp_path / "file.txt") == ("tench, Tinca tinca", "n01443537\tgoldfish", "café")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(vitlab.VitlabError, match="not valid JSON"):
        read_classes(tmp_path / "deep.json")
