"""Answers of VQAv2 against slow versions that follow the official rules literally."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.errors import VitlabError
from vitlab.data.vqa_answers import accuracies, normalise, vocabulary

WORDS = ["yes", "no", "a dog", "the dog", "two", "2", "Dog.", "dont", "1,000", "red/blue", "red / blue", "none", "3.5"]


def leave_one_out(predicted: str, answers: list[str]) -> float:
    """The mean over the ten sets of nine answers of min(matches / 3, 1), one set after the other."""
    total = 0.0
    for left_out in range(len(answers)):
        matches = 0
        for i, answer in enumerate(answers):
            if i != left_out and slow_normalise(answer) == slow_normalise(predicted):
                matches += 1
        total += 1.0 if matches >= 3 else matches / 3
    return total / len(answers)


def slow_normalise(answer: str) -> str:
    """Character by character."""
    text = answer.strip()
    comma_in_number = any(
        text[i] == "," and text[i - 1].isdigit() and text[i + 1].isdigit() for i in range(1, len(text) - 1)
    )
    marks = [";", "/", "[", "]", '"', "{", "}", "(", ")", "=", "+", "\\", "_", "-", ">", "<", "@", "`", ",", "?", "!"]
    characters = []
    for character in text:
        if character not in marks:
            characters.append(character)
        elif not (comma_in_number or f"{character} " in text or f" {character}" in text):
            characters.append(" ")
    without_periods = ""
    for i, character in enumerate(characters):
        if character == "." and not (i + 1 < len(characters) and characters[i + 1].isdigit()):
            continue
        without_periods += character
    numbers = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    words = []
    for word in without_periods.lower().split(" "):
        if word in ("", "a", "an", "the"):
            continue
        if word in numbers:
            word = str(numbers.index(word))
        words.append({"none": "0", "dont": "don't", "isnt": "isn't"}.get(word, word))
    return " ".join(words)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=10, max_size=10), st.sampled_from(WORDS))
def test_accuracy_is_the_leave_one_out_mean(answers, predicted):
    ours = accuracies(answers).get(normalise(predicted), 0.0)
    assert ours == pytest.approx(leave_one_out(predicted, answers))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abn 12,.-/?!'[]", max_size=14))
def test_normalisation_follows_the_rules(text):
    assert normalise(text) == slow_normalise(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Yes!", "yes"), ("An apple", "apple"), ("TEN", "10"), ("isnt", "isn't"), ("1,000", "1000"), ("u.s.", "us")],
)
def test_known_answers(text, expected):
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("couldnt've", "couldn't've"),
        ("wouldn'tve", "wouldn't've"),
        ("yall'd've", "y'all'd've"),
        ("twas", "'twas"),
        ("couldntve", "couldntve"),
        ("Im", "im"),
        ("lets", "lets"),
    ],
)
def test_contractions_are_those_of_the_official_table(text, expected):
    """The table has capital I, which never matches a text in lower case, and "let's" only for itself."""
    assert normalise(text) == expected


def test_values_of_the_official_accuracy():
    assert [round(accuracies(["x"] * c + [f"y{i}" for i in range(10 - c)])["x"], 3) for c in (1, 2, 3, 4, 10)] == [
        0.3,
        0.6,
        0.9,
        1.0,
        1.0,
    ]


def test_vocabulary_by_number_and_by_count():
    answers = ["red"] * 3 + ["blue"] * 2 + ["Blue"] + ["green"] + [""] * 9
    assert vocabulary(answers, size=2) == ("blue", "red")  # equal counts: alphabetical
    assert vocabulary(answers, size=0, at_least=2) == ("blue", "red")
    assert vocabulary(answers) == ("blue", "red", "green")
    with pytest.raises(VitlabError, match="lower at_least"):
        vocabulary(answers, at_least=10)
