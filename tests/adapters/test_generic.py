"""The generic adapter: the seams that it finds, and those that it omits because they would be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import vitlab
from cases import redraw
from vitlab.adapters import blank_images, generic
from vitlab.adapters.flow import Flow
from vitlab.core.anatomy import Anatomy, TokenLayout

ALL = ("attn.in", "attn.out", "mlp.in", "mlp.mid", "mlp.out", "block.out", "stage.out")
MLP = {"mlp.in", "mlp.out", "block.out"}
SIZE = (32, 48)


class Attention(nn.Module):
    """Plain self-attention, written with an explicit softmax."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query_key_value(x)[:, None].chunk(3, dim=-1)
        return self.out(((q @ k.mT).softmax(-1) @ v)[:, 0])


class MultiHead(nn.Module):
    """nn.MultiheadAttention inside a module that returns only its first output."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(dim, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class PreNorm(nn.Module):
    def __init__(self, dim: int, attention: Callable[[int], nn.Module] = Attention) -> None:
        super().__init__()
        self.first, self.attention = nn.LayerNorm(dim), attention(dim)
        self.second = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.ff(self.second(x))


class InPlace(PreNorm):
    """The same, but it modifies its input in place."""

    def forward(self, x: Tensor) -> Tensor:
        x += self.attention(self.first(x))
        x += self.ff(self.second(x))
        return x


class NormInSkip(PreNorm):
    """The skip path starts after the norm, as in MViTv2's stage starts."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x + self.attention(x)
        return x + self.ff(self.second(x))


class SharedNorm(PreNorm):
    """Both branches read one norm: a part before it would reach the MLP too."""

    def forward(self, x: Tensor) -> Tensor:
        normed = self.first(x)
        return x + self.attention(normed) + self.ff(normed)


class Parallel(PreNorm):
    """Attention and MLP in parallel, without a tensor between them."""

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(self.first(x)) + self.ff(self.second(x))


class Net(nn.Module):
    """A small ViT with two prefix tokens."""

    def __init__(self, block: Callable[[int], nn.Module], dim: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 8, 8)
        self.prefix = nn.Parameter(torch.randn(1, 2, dim))
        self.layers = nn.ModuleList([block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.prefix.expand(len(x), -1, -1), x], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.3 * x + 0.9 * x.roll(1, dims=1)


def net(block: Callable[[int], nn.Module]) -> nn.Module:
    return redraw(Net(block)).eval()


def images(seed: int = 0) -> Tensor:
    return torch.randn(2, 3, *SIZE, generator=torch.Generator().manual_seed(seed))


def read(model: nn.Module, size: tuple[int, int]) -> Anatomy:
    """The generic description, also for a model that has an adapter."""
    flow = Flow(model, {"": blank_images(model, size)})
    return Anatomy("generic", generic.blocks(model, flow), size)


def test_a_plain_block_has_all_seams() -> None:
    anatomy = vitlab.describe(net(PreNorm), SIZE)
    layout = TokenLayout((4, 6), prefix=2)
    assert (anatomy.family, anatomy.seams) == ("generic", ALL)
    first, last = anatomy.blocks
    assert (first.name, last.name) == ("layers.0", "layers.1")
    assert first.mixer.queries == first.mixer.keys == layout
    assert {seam.name: (seam.path, seam.side) for seam in first.seams} == {
        "attn.in": ("layers.0.first", "in"),
        "attn.out": ("layers.0.attention", "out"),
        "mlp.in": ("layers.0.ff.0", "in"),
        "mlp.mid": ("layers.0.ff.2", "in"),
        "mlp.out": ("layers.0.ff.3", "out"),
        "block.out": ("layers.0", "out"),
    }
    assert all(seam.layout == layout for seam in first.seams)
    assert {tap.name for tap in first.taps} == {"block.in", "block.mid", "block.out"}


@pytest.mark.parametrize(
    ("block", "seams", "taps"),
    [
        (InPlace, ALL, {"block.in", "block.out"}),
        (NormInSkip, ("block.out", "stage.out"), {"block.out"}),
        (SharedNorm, ("block.out", "stage.out"), {"block.out"}),
        (Parallel, ALL, {"block.in", "block.out"}),
    ],
)
def test_only_confirmed_seams_are_offered(block: type[nn.Module], seams: tuple[str, ...], taps: set[str]) -> None:
    anatomy = vitlab.describe(net(block), SIZE)
    assert anatomy.seams == seams
    assert {tap.name for tap in anatomy.blocks[0].taps} == taps


def test_describing_does_not_change_the_model() -> None:
    model = net(PreNorm).train()
    state = torch.get_rng_state()
    vitlab.describe(model, SIZE)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("attention", [Attention, MultiHead])
def test_record(attention: Callable[[int], nn.Module]) -> None:
    model = net(lambda dim: PreNorm(dim, attention))
    plain = model(images())
    with vitlab.record(model, input_size=SIZE) as tape:
        assert torch.equal(model(images()), plain)
    assert set(tape) == {"layers.0", "layers.1"}
    assert tape["layers.1"].shape[-2:] == (26, 26)
    assert (tape["layers.1"].sum(-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("seam", ALL)
def test_retrofit_and_restore(seam: str) -> None:
    model = net(PreNorm)
    plain, anatomy = model(images()), vitlab.describe(model, SIZE)
    vitlab.retrofit(model, Mixing(), at=seam, input_size=SIZE)
    assert (model(images()) - plain).abs().max() > 1e-4
    assert vitlab.describe(model, SIZE) == anatomy  # the same seams are available to a second part
    assert torch.equal(vitlab.restore(model)(images()), plain)


def test_a_timm_family_without_an_adapter() -> None:
    import timm

    settings = {"depths": (1, 1, 1, 2), "embed_dims": (8, 8, 16, 16), "num_vit": 1}
    model = timm.create_model("efficientformer_l1", num_classes=5, **settings)
    anatomy = read(redraw(model), (224, 224))
    *maps, last = anatomy.blocks
    assert [block.stage for block in anatomy.blocks] == [0, 1, 2, 3, 3]
    assert all(block.mixer.queries is None and block.seam("block.out").layout.order == "BCHW" for block in maps)
    # They pool and do not attend, and a norm follows the last layer of their MLP.
    assert all({seam.name for seam in block.seams} - {"stage.out"} == MLP for block in maps)
    assert last.mixer.queries == TokenLayout((7, 7))
    assert {seam.name for seam in last.seams} == set(ALL)


def test_windows_are_not_mistaken_for_tokens() -> None:
    import timm

    model = timm.create_model("mobilevit_xxs", num_classes=5)  # splits its map into 2x2 patches, folded into the batch
    transformers = [block for block in read(model, (64, 64)).blocks if "transformer" in block.name]
    assert transformers and all(block.mixer.queries is None and not block.seams for block in transformers)


def test_a_model_without_attention() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    with pytest.raises(vitlab.VitlabError, match=r"no softmax between tokens .* write an adapter"):
        vitlab.describe(model, SIZE)


def test_on_the_meta_device_nothing_can_be_confirmed() -> None:
    anatomy = vitlab.describe(Net(PreNorm).to("meta"), SIZE)
    assert anatomy.seams == ("block.out", "stage.out")
