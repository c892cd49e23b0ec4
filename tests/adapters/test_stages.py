"""Models that are described by their stages: the axis order of maps, and modules that return a list of maps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import vitlab
from vitlab.adapters.stages import map_layout


class Half(nn.Module):
    """A part that halves every token."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x


@pytest.mark.parametrize("channels", [38, 40, 55, 57, 64, 83])
def test_channels_close_to_a_grid_side_are_not_taken_as_a_side(channels: int) -> None:
    first, last = (map_layout((224, 224), shape) for shape in ((2, channels, 56, 56), (2, 56, 56, channels)))
    assert first is not None and (first.order, first.grid) == ("BCHW", (56, 56))
    assert last is not None and (last.order, last.grid) == ("BHWD", (56, 56))


def test_a_cube_has_the_declared_order_or_none() -> None:
    cube = (2, 56, 56, 56)
    assert map_layout((224, 224), cube) is None
    for name, order in (("NCHW", "BCHW"), ("NHWC", "BHWD")):
        found = map_layout((224, 224), cube, output_format=name)
        assert found is not None and found.order == order
    found = map_layout((224, 160), (2, 56, 40, 44), channels=44)
    assert found is not None and (found.order, found.grid) == ("BHWD", (56, 40))


@pytest.mark.parametrize(("name", "channels"), [("hrnet_w18", 18), ("hrnet_w40", 40), ("hrnet_w64", 64)])
def test_every_width_of_hrnet_is_described(name: str, channels: int) -> None:
    with torch.device("meta"):
        found = vitlab.describe(timm.create_model(name))
    places = [block.seam("block.out") for block in found.blocks]
    assert len(places) == 3
    assert {(place.layout.order, place.layout.grid, place.dim) for place in places if place} == {
        ("BCHW", (56, 56), channels)
    }


def test_a_part_changes_the_first_map_of_a_list() -> None:
    """The output of HRNet's stages is a list of maps, from the highest resolution to the lowest."""
    torch.manual_seed(0)
    model, images = timm.create_model("hrnet_w18_small", num_classes=5).eval(), torch.randn(2, 3, 64, 64)

    def halve(module: nn.Module, arguments: Any, output: list[Tensor]) -> list[Tensor]:
        return [output[0] / 2, *output[1:]]

    stages = [model.stage2[-1], model.stage3[-1], model.stage4[-1]]
    with torch.no_grad():
        plain = model(images)
        handles = [stage.register_forward_hook(halve) for stage in stages]
        expected = model(images)
        for handle in handles:
            handle.remove()
        vitlab.retrofit(model, Half(), at="block.out", input_size=64)
        with vitlab.record(model, "features", input_size=64) as tape:
            assert torch.equal(model(images), expected)
        vitlab.restore(model)
        assert torch.equal(model(images), plain) and not torch.equal(plain, expected)
    assert all(tape[block.name].shape == (2, 256, 16) for block in vitlab.describe(model, 64).blocks)


def test_the_error_names_the_stages_that_were_found() -> None:
    class Declared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(3, 4, 3)
            self.feature_info = [{"module": "other", "num_chs": 4, "reduction": 1}]

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).mean((2, 3))

    with pytest.raises(vitlab.VitlabError, match="none of the stages in its feature_info is one module"):
        vitlab.describe(Declared(), 32)


class Detector(nn.Module):
    """A convolution, a transformer over its cells, and a decoder whose queries are as many as the cells."""

    def __init__(self, queries: int = 16) -> None:
        super().__init__()
        settings = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True}
        self.stem = nn.Conv2d(3, 8, 8, 8)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(**settings) for _ in range(2)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(**settings)])
        self.queries = nn.Parameter(torch.randn(queries, 8))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).mT
        for layer in self.encoder:
            tokens = layer(tokens)
        queries: Tensor = self.decoder[0](self.queries.expand(len(x), -1, -1), tokens)
        return queries


def test_tokens_of_an_earlier_map_have_a_seam_and_queries_have_none() -> None:
    torch.manual_seed(0)
    model, images = Detector().eval(), torch.randn(2, 3, 32, 32)
    found = vitlab.describe(model, 32)
    places = {block.name: block.seam("block.out") for block in found.blocks}
    assert places["decoder.0"] is None
    assert all(places[f"encoder.{i}"].layout.grid == (4, 4) for i in range(2))
    assert all(places[f"encoder.{i}"].layout.shuffled for i in range(2))  # the order is not confirmed
    with torch.no_grad():
        plain = model(images)
        handles = [layer.register_forward_hook(lambda module, given, output: output / 2) for layer in model.encoder]
        expected = model(images)
        for handle in handles:
            handle.remove()
        vitlab.retrofit(model, Half(), at="block.out", blocks=["encoder.0", "encoder.1"], input_size=32)
        assert torch.equal(model(images), expected) and not torch.equal(plain, expected)
        vitlab.restore(model)
        assert torch.equal(model(images), plain)


def test_a_model_without_any_seam_raises_with_the_reason() -> None:
    class Queries(Detector):
        def forward(self, x: Tensor) -> Tensor:
            queries: Tensor = self.decoder[0](self.queries.expand(len(x), -1, -1), self.stem(x).flatten(2).mT)
            return queries

    with pytest.raises(vitlab.VitlabError, match="return neither maps nor the tokens of an image"):
        vitlab.describe(Queries(), 32)


def test_tokens_without_a_grid_are_a_sequence_of_unknown_order() -> None:
    """As of ViTMAE, which drops tokens, and Deformable DETR, which joins the cells of several maps."""

    class Joined(Detector):
        def forward(self, x: Tensor) -> Tensor:
            tokens = torch.cat([self.stem(x).flatten(2).mT, self.stem(x[..., :16, :16]).flatten(2).mT], dim=1)
            result: Tensor = self.encoder[0](tokens)
            return result

    (block,) = vitlab.describe(Joined(), 32).blocks
    place = block.seam("block.out")
    assert place is not None and place.layout.tokens == 16 + 4 and place.layout.shuffled


def test_depth_pro_is_described_at_the_smallest_size_that_it_takes() -> None:
    from vitlab.adapters import built_size

    model = nn.Module()
    model.config = SimpleNamespace(scaled_images_ratios=[0.25, 0.5, 1], patch_size=384)  # type: ignore[assignment]
    assert built_size(model) == (1536, 1536)  # a quarter of it is one patch
