"""ImageNet-V2: folders are labels by their number, three sets, and a run that resumes at the next one."""

from __future__ import annotations

import numpy as np
import pytest

import vitlab
from cases.published import Colours, fill
from vitlab.core.step_cache import step_cache
from vitlab.stress_tests.imagenet_v2 import SETS


def write(root, sets=tuple(SETS)) -> None:
    for i, name in enumerate(SETS):
        if name in sets:
            fill(root / SETS[name], {"2": [2, 2], "10": [10, 10 if i else 2], "999": [999]})


def stress(root, model=None, **settings):
    return vitlab.stress("imagenet_v2", model or Colours(), root, **{"processes": 0, "batch_size": 5, **settings})


def test_folders_are_numbers(tmp_path) -> None:
    """In the order of letters, 10 comes before 2, and all but 0 and 1 would be wrong."""
    write(tmp_path)
    found = stress(tmp_path)
    np.testing.assert_allclose(found.values["accuracy"], [4 / 5, 1, 1])
    np.testing.assert_allclose(found.values["accuracy_error"], [np.sqrt(4 / 5 * 1 / 5 / 4), 0, 0], atol=1e-12)
    assert found.axes["set"] == ("matched-frequency", "threshold-0.7", "top-images")
    assert found.provenance["images_by_set"] == dict.fromkeys(SETS, 5)


def test_missing_sets(tmp_path) -> None:
    write(tmp_path, ("top-images",))
    found = stress(tmp_path)
    assert found.axes["set"] == tuple(SETS)
    np.testing.assert_array_equal(found.values["accuracy"], [np.nan, np.nan, 1])
    assert found.provenance["missing_sets"] == ["matched-frequency", "threshold-0.7"]
    assert found.provenance["partial"] is True and len(found.provenance["missing_classes"]) == 997


def test_it_resumes_at_the_next_set(tmp_path) -> None:
    write(tmp_path / "data")

    class Falls(Colours):
        def forward(self, images):
            if self.calls == 3:  # one blank image, the first set, the second, and now
                raise KeyboardInterrupt
            return super().forward(images)

    reported = []
    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path / "steps", lambda *step: reported.append(step)):
        stress(tmp_path / "data", Falls())
    assert {total for _, total, *_ in reported} == {3} and reported[-1][0].startswith("top-images [")
    model = Colours()
    with step_cache(tmp_path / "steps"):
        found = stress(tmp_path / "data", model)
    assert model.calls == 2, "a blank image and the last set"
    whole = stress(tmp_path / "data")
    assert all(np.array_equal(found.values[name], whole.values[name]) for name in whole.values)


def test_results_of_other_files_are_not_reused(tmp_path) -> None:
    write(tmp_path / "data")
    with step_cache(tmp_path / "steps"):
        stress(tmp_path / "data")
        fill(tmp_path / "data" / SETS["top-images"], {"7": [8]})
        model = Colours()
        found = stress(tmp_path / "data", model)
    assert found.values["accuracy"][2] == pytest.approx(5 / 6) and model.calls == 3  # six images are two batches


def test_wordnet_ids_raise(tmp_path) -> None:
    fill(tmp_path / SETS["top-images"], {"n01440764": [0]})
    with pytest.raises(vitlab.VitlabError, match=r"expected:\n  ROOT/imagenetv2-matched-frequency-format-val/0/"):
        stress(tmp_path)
