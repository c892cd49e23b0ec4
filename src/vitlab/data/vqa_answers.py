"""The answers of VQAv2: normalisation, accuracy against ten human answers and the answer vocabulary.

The rules are those of the official evaluation of VQA (Antol et al. 2015, Goyal et al. 2017).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from vitlab.core.errors import VitlabError

__all__ = ["accuracies", "normalise", "vocabulary"]

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {**{word: str(number) for number, word in enumerate(_NUMBERS)}, "none": "0"}
_ARTICLES = ("a", "an", "the")
_CONTRACTIONS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
he's how'd how'll how's isn't it'd it'd've it'll ma'am mightn't mightn't've might've mustn't
must've needn't not've o'clock oughtn't shan't she'd've should've shouldn't shouldn't've somebody'd somebody'd've
somebody'll somebody's someone'd someone'd've someone'll someone's something'd something'd've something'll that's
there'd there'd've there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't
what'll what're what's what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's
won't would've wouldn't wouldn't've y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
#: Each contraction without one of its apostrophes -> the contraction.
_CONTRACTED = {
    word[:place] + word[place + 1 :]: word
    for word in _CONTRACTIONS.split()
    for place, letter in enumerate(word)
    if letter == "'"
}


def normalise(answer: str) -> str:
    """Returns an answer in lower case without punctuation and articles, with numbers up to ten as digits.

    A punctuation mark next to a space, or in a text with a comma between digits, is removed; elsewhere it becomes a
    space. Periods are removed unless a digit follows. Contractions that lack one apostrophe get it.

    >>> [normalise(text) for text in ("The Dog.", "Two", "1,000 people", "dont", "3.5", "hot-dog")]
    ['dog', '2', '1000 people', "don't", '3.5', 'hot dog']
    """
    text = answer.replace("\n", " ").replace("\t", " ").strip()
    grouped = re.search(r"\d,\d", text) is not None
    result = text
    for mark in _PUNCTUATION:
        beside_space = f"{mark} " in text or f" {mark}" in text
        result = result.replace(mark, "" if beside_space or grouped else " ")
    words = re.sub(r"\.(?!\d)", "", result).lower().split()
    kept = [_DIGITS.get(word, word) for word in words if word not in _ARTICLES]
    return " ".join(_CONTRACTED.get(word, word) for word in kept)


def accuracies(answers: Sequence[str]) -> dict[str, float]:
    """Returns the official accuracy of each normalised answer: the mean over all sets of all but one human answer.

    The accuracy against a set is min(matches / 3, 1). With n answers, c of which match, c of the sets have c − 1
    matches and n − c have c: with ten answers 0.3 c, at most 1, which are also ViLT's targets in training. Answers that
    no annotator gave have accuracy 0.

    >>> {answer: round(value, 3) for answer, value in accuracies(["yes"] * 2 + ["no"] * 8).items()}
    {'yes': 0.6, 'no': 1.0}
    """
    counts, total = Counter(map(normalise, answers)), len(answers)
    return {
        answer: (count * min((count - 1) / 3, 1.0) + (total - count) * min(count / 3, 1.0)) / total
        for answer, count in counts.items()
    }


def vocabulary(answers: Iterable[str], size: int = 3129, at_least: int = 1) -> tuple[str, ...]:
    """Returns the most frequent normalised answers, the most frequent first; equal counts in alphabetical order.

    Args:
        answers: one answer for each training question.
        size: largest number of answers; 0 for no limit.
        at_least: smallest number of occurrences.

    >>> vocabulary(["red", "blue", "Red", "green"], size=2)
    ('red', 'blue')
    """
    counts = Counter(map(normalise, answers))
    counts.pop("", None)
    ordered = sorted((-count, answer) for answer, count in counts.items() if count >= at_least)
    if not ordered:
        raise VitlabError(f"no answer occurs at least {at_least} times; lower at_least")
    return tuple(answer for _, answer in ordered[: size or None])
