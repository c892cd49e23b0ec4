"""ImageNet-P: flips against loops, noise against the first frame, references, videos and folders of frames."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vitlab
from cases.published import Colours, paint
from vitlab.core.measurement import Measurement
from vitlab.core.step_cache import step_cache
from vitlab.data.imagenet import wordnet_ids
from vitlab.stress_tests.imagenet_p import PERTURBATIONS, flip_probability

IDS = wordnet_ids()
#: Predictions for the frames of two videos: three changes of three and none, compared with the frame before; compared
#: with the first frame, two of three.
VIDEOS = {f"{IDS[3]}/a": [3, 4, 3, 4], f"{IDS[9]}/b": [9, 9, 9, 9]}


def write(root, names=PERTURBATIONS, videos=None) -> None:
    for name in names:
        for video, frames in (videos or VIDEOS).items():
            for i, answer in enumerate(frames):
                paint(root / name / video / f"{i + 8}.jpg", answer)  # 8, 9, 10: not the order of letters


def stress(root, model=None, **settings) -> Measurement:
    return vitlab.stress("imagenet_p", model or Colours(), root, **{"processes": 0, "batch_size": 3, **settings})


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=5, max_size=12), st.booleans(), st.integers(1, 3))
def test_flips_against_a_loop(answers, noise, stride) -> None:
    flips = []
    if noise:
        stride = 1
    for start in range(stride):
        chain = answers[start::stride]
        for i in range(1, len(chain)):
            flips.append(chain[i] != (chain[0] if noise else chain[i - 1]))
    assert flip_probability(np.array(answers), noise, stride) == pytest.approx(np.mean(flips))


def test_noise_is_compared_with_the_first_frame(tmp_path) -> None:
    write(tmp_path / "ImageNet-P")
    found = stress(tmp_path)
    expected = [(2 / 3 + 0) / 2 if "noise" in name else (1 + 0) / 2 for name in PERTURBATIONS]
    np.testing.assert_allclose(found.values["flip_probability"], expected)
    assert found.values["flip_probability_error"][2] == pytest.approx(0.5)  # of 1 and 0
    assert np.isnan(found.values["flip_rate"]).all() and np.isnan(found.values["mfr"]), "no reference is invented"
    assert found.axes["perturbation"] == PERTURBATIONS and found.settings["reference"] is None
    provenance = found.provenance
    assert (
        provenance["partial"] is True
        and len(provenance["missing_classes"]) == 998
        and provenance["images_by_set"]["tilt"] == 2
    )


def test_mfr_against_numbers(tmp_path) -> None:
    write(tmp_path)
    reference = {name: 0.1 + 0.05 * i for i, name in enumerate(PERTURBATIONS)}
    found = stress(tmp_path, reference=reference)
    rates = [((1 / 3 if "noise" in name else 1 / 2) / value) for name, value in reference.items()]
    np.testing.assert_allclose(found.values["flip_rate"], rates)
    np.testing.assert_allclose(found.values["reference_flip_probability"], [*reference.values()])
    assert found.values["mfr"] == pytest.approx(np.mean(rates))
    by_video = [np.mean([(2 / 3 if "noise" in name else 1) / value for name, value in reference.items()]), 0]
    assert found.values["mfr_error"] == pytest.approx(np.std(by_video, ddof=1) / np.sqrt(2))
    some = stress(tmp_path, reference={"tilt": 0.2})
    assert np.isnan(some.values["mfr"]) and some.values["flip_rate"][PERTURBATIONS.index("tilt")] == 2.5


def test_mfr_against_a_model(tmp_path) -> None:
    """A reference whose answers flip in the second video too: its probability is twice as large."""
    write(tmp_path, videos={f"{IDS[3]}/a": [3, 4, 3, 4], f"{IDS[9]}/b": [20, 21, 20, 21]})

    class Blunt(Colours):
        def forward(self, images):
            logits = super().forward(images)
            logits[:, 21] = -1e9  # 21 is taken for 20
            return logits

    found = stress(tmp_path, Blunt(), reference=Colours(std=(0.5,) * 3))
    np.testing.assert_allclose(found.values["flip_rate"], [0.5] * 10)
    assert found.values["mfr"] == pytest.approx(0.5) and found.settings["reference"] == "Colours"
    assert Measurement.load(found.save(tmp_path / "kept")).values["mfr"] == pytest.approx(0.5)


def test_mfr_against_an_expression(tmp_path) -> None:
    """A model of torchvision from a file of weights, without declared preprocessing: it gets ImageNet's 224 × 224."""
    text = "torchvision/squeezenet1_1"
    vitlab.zoo.save(vitlab.load(text, seed=0), text, str(tmp_path / "weights.safetensors"))
    write(tmp_path / "data", ("tilt",), {f"{IDS[3]}/a": [0, 999, 9, 9], f"{IDS[9]}/b": [0, 90, 0, 90]})
    reference = f"{text}(weights={str(tmp_path / 'weights.safetensors')!r})"
    found = stress(tmp_path / "data", names="tilt", reference=reference)
    ours = stress(tmp_path / "data", vitlab.load(text, seed=0), names="tilt").values["flip_probability"]
    assert 0 < ours[0] < 1 and found.values["reference_flip_probability"][0] == ours[0]
    assert found.values["flip_rate"][0] == found.values["flip_probability"][0] / ours[0]


def test_there_is_no_ratio_to_a_reference_that_never_flips(tmp_path) -> None:
    write(tmp_path, ("tilt",))

    class Stubborn(Colours):
        def forward(self, images):
            return super().forward(images * 0)

    found = stress(tmp_path, names="tilt", reference=Stubborn())
    assert found.values["reference_flip_probability"] == [0] and np.isnan(found.values["flip_rate"]).all()


def test_difficulty(tmp_path) -> None:
    """Two frames apart nothing flips; noise of that difficulty has separate folders."""
    write(tmp_path, ("tilt", "gaussian_noise_2"))
    write(tmp_path, ("gaussian_noise",), {f"{IDS[3]}/a": [3, 3, 3], f"{IDS[3]}/b": [3, 3, 3]})
    found = stress(tmp_path, names=("gaussian_noise", "tilt"), difficulty=2)
    np.testing.assert_allclose(found.values["flip_probability"], [1 / 3, 0])
    assert found.provenance["others"] == "with the frame 2 before"
    assert stress(tmp_path, names="tilt").provenance["others"] == "with the frame before"


def test_it_resumes_at_the_next_perturbation(tmp_path) -> None:
    write(tmp_path / "data", ("tilt", "snow", "scale"))

    class Falls(Colours):
        def forward(self, images):
            if self.calls == 1 + 2 * 4:  # a blank image; two perturbations of two videos of two chunks
                raise KeyboardInterrupt
            return super().forward(images)

    names = ("tilt", "snow", "scale")
    with pytest.raises(KeyboardInterrupt), step_cache(tmp_path / "steps"):
        stress(tmp_path / "data", Falls(), names=names)
    model = Colours()
    with step_cache(tmp_path / "steps"):
        found = stress(tmp_path / "data", model, names=names)
    assert model.calls == 1 + 4
    np.testing.assert_allclose(found.values["flip_probability"], [0.5] * 3)


def test_missing_broken_and_short(tmp_path) -> None:
    write(tmp_path, ("tilt",))
    paint(tmp_path / "tilt" / IDS[3] / "short" / "0.jpg", 3)
    (tmp_path / "tilt" / IDS[3] / "hollow").mkdir()
    (tmp_path / "tilt" / IDS[3] / "torn").mkdir()
    (tmp_path / "tilt" / IDS[3] / "torn" / "0.jpg").write_bytes(b"no image")
    with pytest.warns(UserWarning, match="cannot read the video .*torn"):
        found = stress(tmp_path, names=("tilt", "snow"))
    np.testing.assert_array_equal(found.values["flip_probability"], [0.5, np.nan])
    provenance = found.provenance
    assert (
        provenance["missing_sets"] == ["snow"]
        and provenance["broken"] == 3
        and provenance["images_by_set"] == {"tilt": 2}
    )
    assert {path.rpartition("/")[2] for path in provenance["broken_files"]} == {"short", "hollow", "torn"}


def test_video_files(tmp_path) -> None:
    """What OpenCV writes, we read in the same order."""
    cv2 = pytest.importorskip("cv2")
    for name, frames in {"a": [300, 700, 300, 300], "b": [200, 200, 200, 200]}.items():
        file = tmp_path / "snow" / IDS[3] / f"{name}.mp4"
        file.parent.mkdir(parents=True, exist_ok=True)
        writer = cv2.VideoWriter(str(file), cv2.VideoWriter_fourcc(*"mp4v"), 10, (32, 32))
        for answer in frames:
            red, green, blue = (10 + 25 * digit for digit in (answer // 100, answer // 10 % 10, answer % 10))
            writer.write(np.full((32, 32, 3), (blue, green, red), dtype=np.uint8))
        writer.release()
    (tmp_path / "snow" / IDS[3] / "torn.mp4").write_bytes(b"no video")
    with pytest.warns(UserWarning, match=r"cannot read the video .*torn\.mp4"):
        found = stress(tmp_path, Colours(size=32), names="snow")
    assert found.values["flip_probability"][0] == pytest.approx(2 / 3 / 2) and found.provenance["broken"] == 1


def test_video_files_without_a_decoder(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    (tmp_path / "snow" / IDS[3]).mkdir(parents=True)
    (tmp_path / "snow" / IDS[3] / "a.mp4").write_bytes(b"")
    with pytest.raises(vitlab.VitlabError, match=r"pip install 'vitlab\[video\]'; or convert .* frames"):
        stress(tmp_path, names="snow")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": "jpeg"}, "expected one of 'gaussian_noise', 'shot_noise'"),
        ({"names": ("tilt", "tilt")}, "distinct such values"),
        ({"difficulty": 4}, "an integer from 1 to 3"),
        ({"reference": {"tilt": 11.0}}, "expected a flip probability"),
        ({"reference": {"fog": 0.1}}, "no perturbation in reference 'fog'"),
        ({"reference": "torchvision/alexnet"}, "random weights"),
        ({"reference": 3}, "expected a Module, or text in quotes, or a dict"),
        ({"videos": 3}, "expected 2 to 2, or None"),
        (
            {"names": "snow"},
            r"none of the requested perturbations; the first is snow; expected:\n  ROOT/gaussian",
        ),
    ],
)
def test_mistakes(tmp_path, settings, message) -> None:
    write(tmp_path, ("tilt",))
    with pytest.raises(vitlab.VitlabError, match=message):
        stress(tmp_path, **settings)
    with pytest.raises(vitlab.VitlabError, match=r"no ImageNet-P in .*expected:\n  ROOT/gaussian_noise/n01440764"):
        stress(tmp_path / "tilt")
