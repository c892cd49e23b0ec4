import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchvision import tv_tensors
from torchvision.transforms import v2

from vitlab.core.errors import VitlabError
from vitlab.corruptions import CORRUPTIONS, EXTRA, GROUPS, Corruption, corrupt
from vitlab.corruptions.apply import _FUNCTIONS, _ON_LEVELS
from vitlab.corruptions.parameters import CIFAR, IMAGENET, SETS
from vitlab.corruptions.randomness import Randomness

ALL = CORRUPTIONS + EXTRA
PLAIN = {
    "defocus_blur",
    "zoom_blur",
    "gaussian_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "saturate",
}


def pictures(count=2, h=40, w=40, channels=3):
    """Smooth random pictures: noise alone would hide what a blur does."""
    small = torch.rand(count, channels, 6, 6, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(small, (h, w), mode="bilinear").clamp(0, 1)


def test_fifteen_corruptions_in_four_groups_and_four_extra():
    assert len(CORRUPTIONS) == 15 and len(EXTRA) == 4 and len(set(ALL)) == 19
    assert [len(names) for names in GROUPS.values()] == [3, 4, 4, 4]
    for table in SETS.values():
        assert sorted(table) == sorted(ALL) and all(len(rows) == 5 for rows in table.values())


@pytest.mark.parametrize("name", ALL)
def test_results_do_not_depend_on_batch_order_and_threads(name):
    images, threads = pictures(5, 70, 93), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        whole = corrupt(images, name, 3, seed=1, indices=[7, 3, 0, 900, 12])
        single = [corrupt(images[i], name, 3, seed=1, indices=[j]) for i, j in ((4, 12), (0, 7), (2, 0))]
        torch.set_num_threads(2)
        again = corrupt(images.flip(0), name, 3, seed=1, indices=[12, 900, 0, 3, 7]).flip(0)
    finally:
        torch.set_num_threads(threads)
    assert again.equal(whole)
    assert torch.stack(single).equal(whole[[4, 0, 2]])


@pytest.mark.parametrize("name", ALL)
def test_results_do_not_depend_on_chunks(name, monkeypatch):
    images = pictures(4, 33, 66)
    whole = corrupt(images, name, 5)
    monkeypatch.setitem(__import__("vitlab.corruptions.apply", fromlist=["_"])._CHUNK, "cpu", 3 * 33 * 66)
    assert corrupt(images, name, 5).equal(whole)


@pytest.mark.parametrize("name", ALL)
def test_results_do_not_depend_on_the_autograd_mode(name):
    images, threads = pictures(2, 70, 70), torch.get_num_threads()
    expected = corrupt(images, name, 2)
    try:
        torch.set_num_threads(2)
        with torch.inference_mode():
            assert corrupt(images.clone(), name, 2).equal(expected)
        traced = corrupt(images.clone().requires_grad_(), name, 2)
    finally:
        torch.set_num_threads(threads)
    assert traced.equal(expected) and not traced.requires_grad


@pytest.mark.parametrize("name", sorted(set(ALL) - PLAIN))
def test_random_corruptions_depend_on_seed_severity_and_index(name):
    images = pictures(1, 70, 70).expand(2, -1, -1, -1)
    base = corrupt(images, name, 4)
    assert not base[0].equal(base[1])
    assert not corrupt(images, name, 4, seed=1).equal(base)
    assert corrupt(images, name, 4).equal(base)


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(ALL), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3, 4]),
    st.sampled_from(["imagenet", "cifar"]),
)  # fmt: skip
def test_any_size_and_channels_give_pixels(name, severity, h, w, channels, parameters):
    images = torch.rand(2, channels, h, w)
    before = images.clone()
    result = corrupt(images, name, severity, parameters=parameters)
    assert result.shape == images.shape and result.dtype == torch.float32
    assert result.min() >= 0 and result.max() <= 1  # and so finite
    assert images.equal(before)
    if channels == 4:
        assert result[:, 3].equal(images[:, 3])


@pytest.mark.parametrize("name", ALL)
def test_every_dtype_gives_the_same_image(name):
    levels = (pictures(2, 36, 48) * 255).to(torch.uint8)
    single = corrupt(levels.float() / 255, name, 2)
    whole = corrupt(levels, name, 2)
    assert whole.dtype == torch.uint8
    assert whole.equal((single * 255 + 1e-3).floor().to(torch.uint8))
    double = corrupt(levels.double() / 255, name, 2)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), single)
    assert corrupt(levels.half() / 255, name, 2).dtype == torch.float16


@pytest.mark.parametrize("name", ALL)
def test_higher_severities_are_farther_from_the_clean_image(name):
    images = (pictures(4, 96, 96) * 0.7 + 0.3 * torch.rand(4, 3, 96, 96)).clamp(0, 1)
    if name == "saturate":
        return  # severities 1 and 2 take colour away, 3 to 5 add it
    levels = (3, 4, 5) if name == "elastic_transform" else (1, 3, 5)  # 1 and 2 of the released code are of another kind
    apart = [(corrupt(images, name, severity) - images).abs().mean().item() for severity in levels]
    assert 0 < apart[0] < apart[2] and apart[1] < apart[2] * 1.1


def test_parameters_depend_on_the_image_size():
    for side, chosen in ((32, "cifar"), (64, "cifar"), (65, "imagenet"), (224, "imagenet")):
        images = torch.rand(1, 3, 20, side)
        assert corrupt(images, "contrast", 5).equal(corrupt(images, "contrast", 5, parameters=chosen))


def test_empty_batches_remain_empty():
    for name in ALL:
        assert corrupt(torch.zeros(0, 3, 32, 32), name, 1).shape == (0, 3, 32, 32)


@pytest.mark.parametrize(
    ("images", "settings", "message"),
    [
        (torch.rand(2, 3, 8, 8), {"name": "gausian_noise"}, "did you mean 'gaussian_noise'"),
        (torch.rand(2, 3, 8, 8), {"severity": 0}, "invalid severity=0; expected an integer from 1 to 5"),
        (torch.rand(2, 3, 8, 8), {"severity": True}, "severity=True"),
        (torch.rand(2, 3, 8, 8), {"parameters": "imagnet"}, "did you mean 'imagenet'"),
        (torch.rand(2, 3, 8, 8), {"indices": [1]}, "got 1 for 2 images"),
        (torch.rand(2, 3, 8, 8) * 4 - 2, {}, "corrupt before normalising"),
        (torch.full((1, 3, 8, 8), float("nan")), {}, "expected pixels in"),
        (torch.rand(2, 8, 8, 3), {}, "1, 3 or 4 channels"),
        (torch.rand(8, 8), {}, "expected (B, C, h, w)"),
        (torch.rand(2, 3, 0, 8), {}, "expected (B, C, h, w)"),
        (torch.ones(2, 3, 8, 8, dtype=torch.int64), {}, "expected uint8, or floats"),
        ("cat.jpg", {}, "type str; expected a tensor"),
        (torch.rand(2, 3, 8, 8), {"severity": 3.0}, "severity=3.0; expected an integer from 1 to 5"),
        (torch.rand(2, 3, 8, 8), {"seed": 1.5}, "seed=1.5; expected an integer"),
        (torch.rand(2, 3, 8, 8), {"indices": [5.7, 1]}, "index=5.7; expected an integer"),
        (torch.rand(2, 3, 8, 8), {"indices": torch.rand(2)}, "index=0"),
        (torch.rand(2, 3, 8, 8).to(torch.float8_e4m3fn), {}, "float8_e4m3fn; expected uint8, or floats"),
    ],
)
def test_mistakes_are_named(images, settings, message):
    call = {"name": "fog", "severity": 1, **settings}
    with pytest.raises(VitlabError, match=message.replace("(", r"\(").replace(")", r"\)")):
        corrupt(images, **call)


def test_a_transform_draws_allowed_corruptions_by_its_seed():
    images = pictures(6, 70, 70)
    transform = Corruption(("brightness", "contrast"), (1, 5), seed=3)
    result = transform(images, indices=range(6))
    choices = [corrupt(images, name, severity) for name in ("brightness", "contrast") for severity in (1, 5)]
    drawn = [[choice[i].equal(result[i]) for choice in choices].index(True) for i in range(6)]
    assert len(set(drawn)) > 1
    assert transform(images[4:5], indices=[4]).equal(result[4:5])
    torch.manual_seed(0)
    fresh, other = Corruption()(images), Corruption()(images)
    torch.manual_seed(0)
    assert Corruption()(images).equal(fresh) and not other.equal(fresh)


def test_a_transform_works_in_torchvisions_compose():
    pipeline = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), Corruption("fog", 2, seed=0)])
    levels = (pictures(1, 40, 50)[0] * 255).to(torch.uint8)
    image, label = pipeline(v2.functional.to_pil_image(levels), 3)
    assert label == 3
    assert image.shape == levels.shape and not image.equal(levels / 255)
    assert list(Corruption().parameters()) == [] and "fog" in repr(Corruption("fog"))
    with pytest.raises(VitlabError, match="no corruption 'smog'"):
        Corruption("smog")
    with pytest.raises(VitlabError, match="at least one name"):
        Corruption(())


def test_integers_of_any_library_are_accepted():
    images = pictures(2, 70, 70)
    expected = corrupt(images, "fog", 3, seed=-1, indices=[2**63, 5])
    large = np.array([2**63, 5], np.uint64)
    assert corrupt(images, "fog", np.int64(3), seed=np.int64(-1), indices=large).equal(expected)
    assert corrupt(images, "fog", 3, seed=torch.tensor(-1), indices=[2**63 + 2**64, 5]).equal(expected)
    fixed = Corruption("fog", np.int64(3), seed=np.int64(-1))
    assert fixed(images, indices=torch.tensor([7, 5]))[1].equal(expected[1])
    for mistake in ({"severities": 3.0}, {"seed": 1.5}):
        with pytest.raises(VitlabError, match="expected an integer"):
            Corruption("fog", **mistake)


def test_a_transform_accepts_nested_samples_and_keeps_types():
    pixels = (pictures(1, 40, 50)[0] * 255).to(torch.uint8)
    boxes = tv_tensors.BoundingBoxes([[0, 0, 9, 9]], format="XYXY", canvas_size=(40, 50))
    mask, label, number = tv_tensors.Mask(torch.ones(40, 50)), torch.tensor(3), 7
    fixed = Corruption("gaussian_noise", 3, seed=0)
    expected = fixed(pixels)
    assert type(expected) is torch.Tensor and not expected.equal(pixels)
    for sample in (
        {"label": label, "image": tv_tensors.Image(pixels), "more": [boxes, mask, number]},
        (label, (tv_tensors.Image(pixels), number), boxes, mask),
    ):
        found, before = (torch.utils._pytree.tree_flatten(each) for each in (fixed(sample), sample))
        assert found[1] == before[1], "the structure"
        for after, clean in zip(found[0], before[0], strict=True):
            assert type(after) is type(clean)
            assert after.equal(expected) if isinstance(clean, tv_tensors.Image) else after is clean
    for nothing in ("cat.jpg", {"label": 3}, v2.functional.to_pil_image(pixels)):
        with pytest.raises(VitlabError, match="expected a tensor"):
            fixed(nothing)


def test_a_seeded_transform_depends_on_the_image_not_its_position():
    images = pictures(1, 40, 40).expand(3, -1, -1, -1) * torch.tensor([1, 0.99, 1]).view(3, 1, 1, 1)
    fixed = Corruption("gaussian_noise", 1, seed=0)
    noise = torch.stack([fixed(image) - image for image in images])
    assert noise[0].equal(noise[2]) and (noise[0] - noise[1]).abs().mean() > 0.01
    assert (fixed(images) - images).equal(noise)
    assert not Corruption("gaussian_noise", 1, seed=1)(images[0]).equal(fixed(images[0]))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_augments_in_the_workers_of_a_loader(workers):
    image = (pictures(1, 32, 32)[0] * 255).to(torch.uint8)
    augment = v2.Compose([v2.ToImage(), Corruption("gaussian_noise", 3), v2.ToDtype(torch.float32, scale=True)])

    def epoch() -> torch.Tensor:
        loader = DataLoader([(image, i) for i in range(8)], 4, num_workers=workers, collate_fn=collate)
        batches = list(loader)
        assert torch.cat([labels for _, labels in batches]).tolist() == list(range(8))
        return torch.cat([found for found, _ in batches])

    def collate(items):
        pairs = [augment(*item) for item in items]
        return torch.stack([found for found, _ in pairs]), torch.tensor([label for _, label in pairs])

    torch.manual_seed(0)
    first, second = epoch(), epoch()
    apart = torch.pdist(torch.cat([first, second]).flatten(1))
    assert (apart > 1).all(), "two of the 16 have the same noise"
    torch.manual_seed(0)
    assert epoch().equal(first)


@pytest.mark.parametrize("name", ALL)
def test_tensors_stay_on_the_device(name):
    """The meta device refuses to meet tensors of the CPU, as a GPU does, and takes the same path as one."""
    images, random = torch.empty(2, 3, 48, 40, device="meta"), Randomness.of(0, name, 1, [0, 1], "meta")
    for table in (IMAGENET, CIFAR):
        extra = () if name in PLAIN else (random,)
        given = images.to(torch.uint8) if name in _ON_LEVELS else images
        assert _FUNCTIONS[name](given, *extra, *table[name][0]).shape == images.shape


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_a_gpu_gives_the_same_image_independent_of_the_batch(name, severity):
    images = pictures(9, 224, 160)
    here, there = corrupt(images, name, severity), corrupt(images.cuda(), name, severity)
    assert there.is_cuda
    assert (here - there.cpu()).abs().mean() < (2 / 255 if name == "jpeg_compression" else 1e-4)
    for rows in (slice(0, 1), slice(3, 5)):
        part = corrupt(images[rows].cuda(), name, severity, indices=list(range(9))[rows])
        assert part.equal(there[rows])
