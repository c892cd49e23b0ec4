"""ImageNet-C: errors and mCE against loops over the folders, parts of the benchmark, and runs that resume."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from PIL import Image

import vitlab
from cases.published import Colours, fill
from vitlab.core.step_cache import step_cache
from vitlab.corruptions import CORRUPTIONS, GROUPS
from vitlab.data.imagenet import wordnet_ids
from vitlab.stress_tests.shared.mce_baselines import BASELINES

IDS = wordnet_ids()
SEVERITIES = (1, 2, 3, 4, 5)


def answers_of(name: str, severity: int) -> dict[str, list[int]]:
    """Three images of two classes; the later the corruption and the stronger, the more of them are wrong."""
    place = 5 * CORRUPTIONS.index(name) + severity
    return {IDS[7]: [7 if place % 2 else 8, 7], IDS[300]: [300 if place % 3 else 0]}


def right(name: str, severity: int) -> list[float]:
    a, b, c = (answer for answers in answers_of(name, severity).values() for answer in answers)
    return [float(a == 7), float(b == 7), float(c == 300)]


def write(root, names=CORRUPTIONS, severities=SEVERITIES, grouped=False) -> None:
    groups = {name: group for group, members in GROUPS.items() for name in members}
    for name, severity in itertools.product(names, severities):
        fill((root / groups[name] if grouped else root) / name / str(severity), answers_of(name, severity))


def stress(root, model=None, **settings):
    return vitlab.stress("imagenet_c", model or Colours(), root, **{"processes": 0, "batch_size": 3, **settings})


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """All 75 sets."""
    root = tmp_path_factory.mktemp("c")
    write(root / "ImageNet-C", grouped=True)
    return root


def test_mce_and_mean_accuracy_against_loops(benchmark) -> None:
    found = stress(benchmark)
    table = np.array([[right(name, severity) for severity in SEVERITIES] for name in CORRUPTIONS])
    np.testing.assert_allclose(found.values["error"], 1 - table.mean(2))
    np.testing.assert_allclose(found.values["standard_error"], table.std(2, ddof=1) / np.sqrt(3))
    alex = BASELINES["imagenet"].mean
    ce = [(1 - table[i]).mean() / alex[name] for i, name in enumerate(CORRUPTIONS)]
    np.testing.assert_allclose(found.values["ce"], ce)
    assert found.values["mce"] == pytest.approx(np.mean(ce))
    assert found.values["mean_accuracy"] == pytest.approx(table.mean())
    by_image = table.mean((0, 1))  # every set holds every image: the usual standard error over images
    assert found.values["mean_accuracy_error"] == pytest.approx(by_image.std(ddof=1) / np.sqrt(3))
    ratios = np.mean([(1 - table[i]).mean(0) / alex[name] for i, name in enumerate(CORRUPTIONS)], axis=0)
    assert found.values["mce_error"] == pytest.approx(ratios.std(ddof=1) / np.sqrt(3))
    provenance = found.provenance
    assert provenance["images"] == 3 and provenance["missing_sets"] == [] and provenance["argmax"] == "1000-way"
    assert (
        provenance["partial"] is True
        and len(provenance["missing_classes"]) == 998
        and provenance["images_by_set"]["fog 3"] == 3
    )
    assert found.provenance["preprocessing"]["crop"] == 1


def test_a_part_of_the_benchmark(benchmark) -> None:
    found = stress(benchmark, names=("fog", "snow"), severities=(2, 5))
    assert found.values["error"].shape == (2, 2) and np.isnan(found.values["mce"])
    expected = np.mean([1 - np.mean(right("fog", severity)) for severity in (2, 5)]) / ((0.7605 + 0.945) / 2)
    assert found.values["ce"][0] == pytest.approx(expected)
    assert np.isnan(stress(benchmark, names="fog", severities=1, baseline="none").values["ce"]).all()


def test_missing_sets_are_named(tmp_path) -> None:
    write(tmp_path, ("fog",), (1, 2))
    write(tmp_path, ("snow",), (1,))
    (tmp_path / "snow" / "2").mkdir()  # empty
    found = stress(tmp_path, names=("fog", "snow", "frost"), severities=(1, 2))
    assert found.provenance["missing_sets"] == ["snow 2", "frost 1", "frost 2"] and found.provenance["partial"] is True
    assert np.isnan(found.values["error"]).tolist() == [[False, False], [False, True], [True, True]]
    assert np.isnan(found.values["ce"]).tolist() == [False, True, True] and np.isnan(found.values["mce"])
    there = [right("fog", 1), right("fog", 2), right("snow", 1)]
    assert found.values["mean_accuracy"] == pytest.approx(np.mean(there))


def test_images_missing_in_some_sets(tmp_path) -> None:
    """The accuracy uses the existing images; a broken one is named once for each set that has it."""
    write(tmp_path, ("fog",), (1, 2))
    (tmp_path / "fog" / "2" / IDS[300] / "0.JPEG").write_bytes(b"")
    (tmp_path / "fog" / "1" / IDS[7] / "0.JPEG").unlink()
    with pytest.warns(UserWarning, match="cannot read"):
        found = stress(tmp_path, names="fog", severities=(1, 2))
    first, second = right("fog", 1)[1:], right("fog", 2)[:2]
    np.testing.assert_allclose(found.values["accuracy"], [[np.mean(first), np.mean(second)]])
    assert found.provenance["broken_files"] == [str(tmp_path / "fog" / "2" / IDS[300] / "0.JPEG")]
    assert found.provenance["images_by_set"] == {"fog 1": 2, "fog 2": 2} and found.provenance["images"] == 3


def test_it_resumes_at_the_next_corruption(benchmark, tmp_path) -> None:
    class Falls(Colours):
        def forward(self, images):
            if self.calls == 41:  # a blank image, 40 sets, and now
                raise KeyboardInterrupt
            return super().forward(images)

    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path):
        stress(benchmark, Falls())
    assert len(list(tmp_path.glob("*.npz"))) == 40
    model = Colours()
    with step_cache(tmp_path):
        found = stress(benchmark, model)
    assert model.calls == 1 + 35
    assert found.values["mce"] == pytest.approx(float(stress(benchmark).values["mce"]))


def test_another_size_is_resized_not_cropped(tmp_path) -> None:
    """A black border is a part of what a model of half the size sees: 9/16 of 180 is 101, the digit 4, and not 7."""
    folder = tmp_path / "fog" / "1" / IDS[444]
    folder.mkdir(parents=True)
    picture = Image.new("RGB", (16, 16))
    picture.paste((180, 180, 180), (2, 2, 14, 14))
    for i in range(2):
        picture.save(folder / f"{i}.png")
    model = Colours(size=8, crop_pct=0.7)
    found = stress(tmp_path, model, names="fog", severities=1, preprocessing={"interpolation": "box"})
    assert model.seen[-1] == (2, 3, 8, 8) and found.values["accuracy"] == 1
    assert stress(tmp_path, names="fog", severities=1, preprocessing={"crop": 0.75}).values["accuracy"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": "fogg"}, "did you mean 'fog'"),
        ({"severities": (0,)}, "an integer from 1 to 5"),
        ({"severities": True}, "an integer from 1 to 5"),
        ({"names": ()}, "distinct such values"),
        ({"names": ("fog", "fog")}, "distinct such values"),
        ({"baseline": "alexnet"}, "expected one of 'imagenet', 'cifar10'"),
        ({"images": 4, "names": "fog"}, "expected 2 to 3"),
    ],
)
def test_mistakes(benchmark, settings, message) -> None:
    with pytest.raises(vitlab.VitlabError, match=message):
        stress(benchmark, **settings)


def test_invalid_layouts(tmp_path) -> None:
    tree = r"expected:\n  ROOT/gaussian_noise/1/n01440764/"
    fill(tmp_path / "fog", {IDS[0]: [0]})  # no severity
    with pytest.raises(vitlab.VitlabError, match=f"no ImageNet-C in .*{tree}"):
        stress(tmp_path)
    write(tmp_path, ("fog",), (6,))
    with pytest.raises(vitlab.VitlabError, match=f"no ImageNet-C in .*{tree}"):
        stress(tmp_path)
    write(tmp_path, ("fog",), (1,))
    with pytest.raises(vitlab.VitlabError, match=rf"none of the requested sets; the first is \('snow', 2\).*{tree}"):
        stress(tmp_path, names="snow", severities=2)
