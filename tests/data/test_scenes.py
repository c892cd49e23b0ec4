"""Scenes against oracles that share no code with them: loops over pixels, closed forms, point-in-polygon tests."""

import math
from hashlib import sha256

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitlab.core.errors import VitlabError
from vitlab.data.scene_layout import _mix, uniform
from vitlab.data.scene_questions import ANSWERS, KINDS, WORDS, questions
from vitlab.data.scenes import CLASSES, COLOURS, MEAN, SHAPES, STD, TEXTURES, VERSION, draw_scenes

FIELDS = ("images", "labels", "masks", "boxes", "instances", "visibility")


def same(one, two):
    return all(torch.equal(getattr(one, name), getattr(two, name)) for name in FIELDS)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(-(2**70), 2**70), start=st.integers(0, 2**61), cut=st.integers(1, 8))
def test_a_scene_does_not_depend_on_its_batch(seed, start, cut):
    whole = draw_scenes(9, (19, 33), seed, start)
    parts = [draw_scenes(cut, (19, 33), seed, start), draw_scenes(9 - cut, (19, 33), seed, start + cut)]
    asked = [questions(scenes, 5) for scenes in (whole, *parts)]
    for name in FIELDS:
        assert torch.equal(getattr(whole, name), torch.cat([getattr(part, name) for part in parts])), name
    assert torch.equal(asked[0].tokens, torch.cat([part.tokens for part in asked[1:]]))
    assert torch.equal(asked[0].answers, torch.cat([part.answers for part in asked[1:]]))


def test_a_scene_does_not_depend_on_chunks_threads_or_default_dtype(monkeypatch):
    whole = draw_scenes(300, 32, seed=5)
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        torch.set_num_threads(3)
        assert same(whole, draw_scenes(300, 32, seed=5))
        torch.set_default_dtype(torch.float64)
        assert same(whole, draw_scenes(300, 32, seed=5))
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
    monkeypatch.setattr("vitlab.data.scenes._CHUNK", 7 * 32 * 32)
    assert same(whole, draw_scenes(300, 32, seed=5))
    assert not torch.equal(whole.images[:9], draw_scenes(9, 32, seed=6).images)


def test_pixels_equal_stored_digests():
    images = draw_scenes(4, (24, 40), seed=2).images.long()
    weights = torch.arange(images.numel()).reshape(images.shape) % 1009
    assert int((images * weights).sum()) == 518536998


def test_splitmix64_against_its_published_first_outputs():
    # The reference generator with state 1234567: the mixing function applied to state + n * golden ratio.
    states = (1234567 + np.arange(1, 4, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    assert _mix(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    numbers = uniform(3, np.arange(200, dtype=np.uint64), range(20), 25)
    assert abs(numbers.mean() - 0.5) < 5 / math.sqrt(12 * numbers.size)
    assert len(np.unique(numbers)) == numbers.size
    flat = numbers.reshape(200, -1)
    assert np.abs(np.corrcoef(flat[:, :40].T) - np.eye(40)).max() < 0.4  # 1/√200 = 0.07


@pytest.mark.parametrize("size", [32, (20, 51), 224])
def test_boxes_are_tight_around_the_instances(size):
    scenes = draw_scenes(6, size, seed=3, objects=6)
    for i in range(len(scenes)):
        for k in range(6):
            ys, xs = np.nonzero(scenes.instances[i, k].numpy())
            box = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1] if len(xs) else [0, 0, 0, 0]
            assert scenes.boxes[i, k].tolist() == box
            assert scenes.objects.present[i, k] or not len(xs)
        found = scenes.detections(i)
        assert len(found["boxes"]) == len(found["labels"]) == len(found["masks"]) == (scenes.visibility[i] > 0).sum()


OUTLINES = {
    "circle": [(math.cos(t), math.sin(t)) for t in np.linspace(0, 2 * math.pi, 721)[:-1]],
    "square": [(1, 1), (-1, 1), (-1, -1), (1, -1)],
    "triangle": [(math.sin(t), -math.cos(t)) for t in (0, 2 * math.pi / 3, 4 * math.pi / 3)],
    "star": [
        ((1 - 0.55 * (i % 2)) * math.sin(i * math.pi / 5), (1 - 0.55 * (i % 2)) * math.cos(i * math.pi / 5))
        for i in range(10)
    ],
    "cross": [
        (sx * a, sy * b)
        for sx, sy, turn in ((1, 1, 0), (-1, 1, 1), (-1, -1, 0), (1, -1, 1))
        for a, b in (((1, 0.3), (0.3, 0.3), (0.3, 1)) if not turn else ((0.3, 1), (0.3, 0.3), (1, 0.3)))
    ],
}


def polygon(shape, centre, radius, angle):
    """Corners (n, 2) in the picture, scaled to an area of π radius² by the shoelace formula."""
    x, y = np.array(OUTLINES[shape], dtype=float).T
    area = abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2
    scale = radius * math.sqrt(math.pi / area)
    c, s = math.cos(angle), math.sin(angle)
    return np.stack([centre[0] + scale * (x * c - y * s), centre[1] + scale * (x * s + y * c)], axis=1)


def inside(corners, size):
    """Even-odd rule at pixel centres, and whether a centre is within 1/50 pixel of an edge, where rounding decides."""
    ys, xs = np.mgrid[: size[0], : size[1]] + 0.5
    odd, near = np.zeros(size, bool), np.zeros(size, bool)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            odd ^= ((y0 > ys) != (y1 > ys)) & (xs < (x1 - x0) * (ys - y0) / (y1 - y0) + x0)
        along = np.clip(((xs - x0) * (x1 - x0) + (ys - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2), 0, 1)
        near |= np.hypot(xs - x0 - along * (x1 - x0), ys - y0 - along * (y1 - y0)) < 0.02
    return odd, near


@pytest.mark.parametrize("size", [(48, 48), (40, 70)])
def test_instances_are_polygons_hidden_by_nearer_ones(size):
    scenes = draw_scenes(12, size, seed=8, objects=5)
    objects, hidden_somewhere = scenes.objects, 0
    for i in range(len(scenes)):
        taken, unsure = np.zeros(size, bool), np.zeros(size, bool)
        mask = np.zeros(size, int)
        for k in sorted(range(5), key=lambda k: objects.depths[i, k].item()):
            if not objects.present[i, k]:
                assert not scenes.instances[i, k].any() and scenes.visibility[i, k] == 0
                continue
            name = SHAPES[objects.shapes[i, k]]
            corners = polygon(
                name, objects.centres[i, k].tolist(), objects.radii[i, k].item(), objects.angles[i, k].item()
            )
            covers, near = inside(corners, size)
            unsure |= near
            expected = covers & ~taken
            assert (scenes.instances[i, k].numpy() == expected)[~unsure].all(), name
            assert abs(scenes.visibility[i, k].item() - expected.sum() / covers.sum()) < 0.05
            hidden_somewhere += bool((covers & taken).any())
            mask[expected] = 1 + CLASSES.index(f"{TEXTURES[objects.textures[i, k]]} {name}")
            taken |= covers
        assert (scenes.masks[i].numpy() == mask)[~unsure].all()
        assert unsure.mean() < 0.02
    assert hidden_somewhere >= 3


def test_masks_and_instances_agree():
    scenes = draw_scenes(40, 32, seed=1)
    assert scenes.instances.sum(1).max() == 1
    assert torch.equal(scenes.instances.any(1), scenes.masks > 0)
    assert scenes.masks.dtype == scenes.images.dtype == torch.uint8
    assert scenes.masks.max() <= len(CLASSES)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_covers_pi_r_squared(shape):
    scenes = draw_scenes(40, (96, 96), seed=4, objects=1, shape=shape)
    whole = ~(scenes.instances[:, 0, [0, -1]].any((1, 2)) | scenes.instances[:, 0, :, [0, -1]].any((1, 2)))
    areas = scenes.instances[whole, 0].sum((1, 2))
    ratio = areas / (math.pi * scenes.objects.radii[whole, 0] ** 2)
    assert whole.sum() >= 5
    assert ratio.sub(1).abs().max() < 0.03


def test_nearer_objects_are_painted_last():
    # Plain main object, far from its rim: the picture shows its colour up to jitter (18) and light (35 % and 18 %).
    scenes = draw_scenes(200, 64, seed=9, texture="plain", objects=1)
    for i in range(len(scenes)):
        x, y = scenes.objects.centres[i, 0].long().tolist()
        pixel = scenes.images[i, :, min(y, 63), min(x, 63)].float()
        colour = COLOURS[scenes.objects.colours[i, 0]]
        red, green, blue = pixel.tolist()
        assert {
            "red": red > max(green, blue) + 60,
            "orange": red > green > blue,
            "yellow": min(red, green) > blue + 60,
            "green": green > max(red, blue) + 40,
            "cyan": min(green, blue) > red + 60,
            "blue": blue > max(red, green) + 60,
            "purple": blue > red > green,
            "pink": red > blue > green,
        }[colour], (colour, pixel)


def test_labels_are_balanced():
    scenes = draw_scenes(25 * 120, 8, seed=0)
    assert torch.equal(scenes.labels, scenes.shapes * len(TEXTURES) + scenes.textures)
    counts = torch.bincount(scenes.labels, minlength=len(CLASSES)).float()
    assert len(CLASSES) == len(counts) == 25
    assert ((counts - 120) ** 2 / 120).sum() < 51.2  # the 0.1 % quantile of chi-square with 24 degrees of freedom
    assert CLASSES[scenes.labels[0]] == f"{TEXTURES[scenes.textures[0]]} {SHAPES[scenes.shapes[0]]}"


def test_texture_overrides_the_interior_alone():
    drawn = [draw_scenes(8, 48, seed=6, texture=texture) for texture in TEXTURES]
    for texture, scenes in enumerate(drawn):
        assert (scenes.textures == texture).all()
        assert torch.equal(scenes.shapes, drawn[0].shapes)
        assert torch.equal(scenes.instances, drawn[0].instances)
        changed = (scenes.images != drawn[0].images).any(1)
        # Antialiasing reaches two pixels beyond the sharp tips of a star.
        rim = torch.nn.functional.max_pool2d(scenes.instances[:, :1].float(), 5, 1, 2)[:, 0] > 0
        assert not (changed & ~rim).any()
        assert texture == 0 or changed.flatten(1).any(1).all()
    free = draw_scenes(8, 48, seed=6)
    assert same(free, draw_scenes(8, 48, seed=6, texture=free.textures, shape=free.shapes))
    named = draw_scenes(2, shape=["star", "cross"], texture="ringed")
    assert [CLASSES[label] for label in named.labels] == ["ringed star", "ringed cross"]


def test_cues_agree_or_conflict():
    agree, conflict = draw_scenes(400, 8, cues="agree"), draw_scenes(400, 8, cues="conflict")
    assert torch.equal(agree.shapes, agree.textures) and torch.equal(agree.shapes, conflict.shapes)
    assert (conflict.shapes != conflict.textures).all()
    pairs = torch.bincount(conflict.labels, minlength=25)
    assert (pairs > 0).sum() == 20 and pairs.max() < 45  # 20 expected
    assert torch.equal(agree.instances, conflict.instances)


def test_textures_have_their_named_structure():
    # Transitions between the two tones along the object's inside: none for plain, some for all others.
    for texture in TEXTURES:
        scenes = draw_scenes(20, 96, seed=2, objects=1, shape="circle", texture=texture)
        inner = torch.nn.functional.max_pool2d(1 - scenes.instances.float(), 5, 1, 2) == 0
        spread = torch.stack(
            [image[:, mask[0]].float().std(1).max() for image, mask in zip(scenes.images, inner, strict=True)]
        )
        assert (spread < 16).all() if texture == "plain" else (spread > 16).all(), texture


@pytest.mark.parametrize("size", [8, (8, 300), (301, 17), 224])
def test_any_size(size):
    scenes = draw_scenes(3, size, seed=1)
    h, w = (size, size) if isinstance(size, int) else size
    assert scenes.images.shape == (3, 3, h, w) and scenes.size == (h, w)
    assert scenes.instances.shape == (3, 4, h, w) and scenes.instances[:, 0].any((1, 2)).all()
    assert len(scenes) == 3 and questions(scenes).answers.shape == (3, 4)


def test_the_same_scene_at_any_resolution():
    small, large = draw_scenes(50, 32, seed=3), draw_scenes(50, 96, seed=3)
    assert torch.equal(small.labels, large.labels) and torch.equal(small.objects.present, large.objects.present)
    assert torch.allclose(small.objects.centres * 3, large.objects.centres, atol=1e-4)
    shrunk = torch.nn.functional.avg_pool2d(large.images.float(), 3)
    assert (shrunk - small.images).abs().mean() < 6


def test_mean_and_std():
    pixels = draw_scenes(2000, 32, seed=12).images / 255
    assert torch.allclose(pixels.mean((0, 2, 3)), torch.tensor(MEAN), atol=0.01)
    assert torch.allclose(pixels.std((0, 2, 3)), torch.tensor(STD), atol=0.01)


def test_masks_are_computed_on_demand():
    scenes = draw_scenes(2)
    assert set(vars(scenes)) == {"images", "objects", "seed", "start"}
    scenes.labels
    assert set(vars(scenes)) == {"images", "objects", "seed", "start"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"count": 0}, "count=0; expected an integer from 1"),
        ({"count": 2.5}, "count=2.5"),
        ({"size": 7}, "size=7; expected a side"),
        ({"size": (32, 32, 3)}, "size="),
        ({"size": "32"}, "size="),
        ({"size": None}, "size="),
        ({"start": -1}, "start=-1"),
        ({"seed": "a"}, "seed='a'"),
        ({"objects": 0}, "objects=0; expected an integer from 1 to 8"),
        ({"objects": 9}, "objects=9"),
        ({"shape": "stat"}, "did you mean 'star'"),
        ({"texture": 5}, "no texture 5; there are: plain"),
        ({"texture": ["plain"] * 3}, "3 textures for 2 scenes"),
        ({"cues": "agrees"}, "did you mean 'agree'"),
        ({"cues": "agree", "texture": 0}, "both set"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(VitlabError, match=message.replace("(", r"\(")):
        draw_scenes(**{"count": 2, **wrong})


def test_questions_refuse_a_bad_count():
    with pytest.raises(VitlabError, match="count=0"):
        questions(draw_scenes(1), 0)


def read(scenes, i):
    """The visible objects from masks and attributes, one dictionary each."""
    seen = []
    for k in range(scenes.instances.shape[1]):
        ys, xs = np.nonzero(scenes.instances[i, k].numpy())
        if scenes.visibility[i, k] < 0.25:
            continue
        label = CLASSES[int(scenes.masks[i, ys[0], xs[0]]) - 1].split()
        middle = ((xs.min() + xs.max() + 1) / 2, (ys.min() + ys.max() + 1) / 2)
        colour = COLOURS[scenes.objects.colours[i, k]]
        seen.append({"texture": label[0], "shape": label[1], "area": len(xs), "middle": middle, "colour": colour})
    return seen


def answer(words, seen):
    """The answer to a question, from its words alone."""
    only = {word: [o for o in seen if word in (o["shape"], o["texture"])] for word in (*SHAPES, *TEXTURES)}
    if words[:3] == ["is", "there", "a"]:
        return "yes" if any([o["texture"], o["shape"]] == words[3:] for o in seen) else "no"
    if words[:2] == ["how", "many"]:
        return str(len(seen if words[2] == "shapes" else only[words[2]]))
    if words[-1] in ("largest", "smallest"):
        ordered = sorted(seen, key=lambda o: o["area"], reverse=words[-1] == "largest")
        areas = sorted([ordered[0]["area"], ordered[1]["area"]])
        assert areas[1] >= 1.25 * areas[0]
        return ordered[0]["shape"]
    ends = {"leftmost": (0, 1), "rightmost": (0, -1), "highest": (1, 1), "lowest": (1, -1)}
    if words[-1] in ends:
        axis, sign = ends[words[-1]]
        first, second = sorted(seen, key=lambda o: sign * o["middle"][axis])[:2]
        assert abs(first["middle"][axis] - second["middle"][axis]) > 1
        return first["shape"]
    if words[0] == "what":
        (one,) = only[next(word for word in words if word in only)]  # fails where the question is ambiguous
        return one[words[1]]
    (one,), (other,) = only[words[2]], only[words[-1]]
    axis, sign = {"left": (0, 1), "right": (0, -1), "above": (1, 1), "below": (1, -1)}[words[3]]
    return "yes" if sign * (other["middle"][axis] - one["middle"][axis]) > 0 else "no"


@pytest.mark.parametrize(("size", "objects"), [(32, 4), ((48, 80), 8), (40, 1)])
def test_answers_against_a_reading_of_the_masks(size, objects):
    scenes = draw_scenes(60, size, seed=7, objects=objects)
    asked = questions(scenes, 10)
    assert asked.tokens.shape[:2] == asked.answers.shape == asked.kinds.shape == (60, 10)
    for i in range(60):
        seen = read(scenes, i)
        for text, given_answer in asked.text(i):
            assert answer(text.split(), seen) == given_answer, (i, text)


def test_questions_are_varied_and_hard_to_guess():
    asked = questions(draw_scenes(800, 32, seed=0), 6)
    assert set(asked.kinds.unique().tolist()) == set(range(len(KINDS)))
    for kind in ("exists", "relation"):
        yes = (asked.answers[asked.kinds == KINDS.index(kind)] == ANSWERS.index("yes")).float().mean()
        assert 0.4 < yes < 0.62, kind
    assert len(asked.answers.unique()) >= 2 + 4 + len(SHAPES) + len(TEXTURES) + len(COLOURS)
    assert torch.bincount(asked.answers.flatten()).max() < 0.3 * asked.answers.numel()
    assert asked.tokens.max() < len(WORDS) and len(set(WORDS)) == len(WORDS) and len(set(ANSWERS)) == len(ANSWERS)


#: SHA-256 of the scenes of `test_pixels_and_labels_change_only_with_the_version`, by version of the generator.
PIXELS = {1: "4551d1b2a8a6a0a3cf82f1e6f2f431d1f5464ef9fa3695a6a5e06a265f1ed081"}


def test_pixels_and_labels_change_only_with_the_version():
    """Fingerprints of scenes hold the version and no pixels: a change of one without the other would go unnoticed."""
    digest = sha256()
    for size, seed, start, objects, cues in [
        (32, 0, 0, 4, "free"),
        ((24, 40), 3, 2**40, 8, "agree"),
        (64, -1, 7, 1, "conflict"),
    ]:
        drawn = draw_scenes(20, size, seed, start, objects, cues=cues)
        digest.update(drawn.images.numpy().tobytes() + drawn.labels.numpy().tobytes())
    assert digest.hexdigest() == PIXELS[VERSION]


def test_scenes_that_do_not_fit_into_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitlab.core.machine_memory.available_memory", lambda: 3.0 * 2 * 64 * 32 - 1)
    with pytest.raises(VitlabError, match="2 scenes of 64x32 needs about 0.012 MB of memory; .* use fewer or smaller"):
        draw_scenes(2, (64, 32))
    assert len(draw_scenes(1, (64, 32))) == 1
