from __future__ import annotations

from vitlab.data.class_names import output_names
from vitlab.data.imagenet import wordnet_ids


def test_imagenet_in_words() -> None:
    names = output_names(1000, wordnet_ids())
    assert [names[i] for i in (0, 1, 281, 388, 999)] == ["tench", "goldfish", "tabby", "giant panda", "toilet tissue"]
    assert names[638] != names[639]  # both are maillots


def test_others_by_their_data_or_by_number() -> None:
    assert output_names(2, ("cat", "dog")) == ("cat", "dog")
    assert output_names(3, ("cat", "dog")) == ("class 0", "class 1", "class 2")
