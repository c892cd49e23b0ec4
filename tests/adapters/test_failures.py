"""Errors of adapters and models become one line with the model, the module and the remedy."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import timm
import torch
from torch import Tensor, nn

import vitlab
from vitlab.adapters import _adapters_by_class, describe
from vitlab.adapters.failures import adapter_error, model_error
from vitlab.core.batches import Batches
from vitlab.core.errors import VitlabError
from vitlab.core.extensions import _REGISTERED
from vitlab.core.measurement import Card
from vitlab.core.registration import register

TINY = "timm/vit_tiny_patch16_224(img_size=32, patch_size=8, embed_dim=24, depth=2, num_heads=3)"


class Unusual(nn.Module):
    """A model without the attribute that its adapter reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, images: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](images[..., :4]))


class careless_adapter:  # noqa: N801
    """An adapter that expects convolutions."""

    FAMILIES = {"unusual": "Unusual()"}  # noqa: RUF012
    CLASSES = (f"{__name__}.Unusual",)
    ABSENT = {}  # noqa: RUF012

    @staticmethod
    def family(model: nn.Module) -> str:
        return "unusual"

    @staticmethod
    def blocks(model: nn.Module, flow: object) -> list[object]:
        return [layer.kernel_size for layer in list(model.layers)[1:]]


@pytest.fixture
def _registered():
    register("adapters", "careless_adapter", careless_adapter)
    yield
    del _REGISTERED["adapters", "careless_adapter"]
    _adapters_by_class.cache_clear()


@pytest.mark.usefixtures("_registered")
def test_an_error_of_an_adapter_names_the_model_and_the_block() -> None:
    with pytest.raises(VitlabError, match="Unusual cannot be described, at layers.1 .AttributeError: ") as caught:
        describe(Unusual(), 8)
    message = str(caught.value)
    assert "\n" not in message and "write an adapter" in message and "VITLAB_DEBUG=1" in message
    assert isinstance(caught.value.__cause__, AttributeError)


def raised_by(model: nn.Module, images: Tensor) -> Exception:
    with pytest.raises(RuntimeError) as caught:
        model(images)
    return caught.value


def test_an_error_of_a_model_names_its_expression_and_its_innermost_module() -> None:
    model = vitlab.load(TINY)
    model.blocks[1].attn.qkv = nn.Linear(5, 5)
    found = model_error(raised_by(model, torch.zeros(1, 3, 32, 32)))
    assert found is not None
    assert str(found).startswith(f"VisionTransformer of {TINY} failed in blocks.1.attn.qkv (RuntimeError: ")


def test_a_wrapped_model_has_the_names_of_the_model() -> None:
    model = timm.create_model("test_vit")
    model.norm = nn.LayerNorm(5)
    found = model_error(raised_by(nn.DataParallel(model), torch.zeros(1, 3, 160, 160)))
    assert str(found).startswith("VisionTransformer failed in norm (RuntimeError: ")


def test_other_errors_are_not_those_of_a_model() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0
    assert model_error(caught.value) is None


def test_a_long_reason_is_shortened() -> None:
    assert len(str(adapter_error(nn.Identity(), ValueError("x " * 5000)))) < 700


class Fragile(nn.Module):
    """A foreign model whose second layer fails in some mode."""

    def __init__(self, error: type[Exception] = KeyError) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), Failing(error))
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class Failing(nn.Module):
    """Raises an exception."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def forward(self, images: Tensor) -> Tensor:
        raise self.error("no entry\nof this name")


BATCHES = Batches([(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))], (0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize("error", [KeyError, AssertionError, ZeroDivisionError, RuntimeError])
@pytest.mark.parametrize(("use", "name"), [(vitlab.measure, "calibration"), (vitlab.stress, "patch_shuffle")])
def test_errors_of_foreign_models_are_one_line(use, name, error) -> None:
    with pytest.raises(
        VitlabError, match=rf"^Fragile failed in layers.1 \({error.__name__}: .*check its settings"
    ) as caught:
        use(name, Fragile(error), BATCHES)
    assert "\n" not in str(caught.value) and "VITLAB_DEBUG=1" in str(caught.value)
    assert isinstance(caught.value.__cause__, error)


def test_errors_of_an_instrument_itself_keep_their_traceback() -> None:
    class broken:  # noqa: N801
        CARD = Card(title="Broken", paper="", cost="none", inputs="images", passes="none")

        @staticmethod
        def measure(model: nn.Module, batches: object) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        vitlab.measure(broken, Fragile(), BATCHES)


class Dividing(nn.Module):
    """Fails as an error in the code of a module, or as a size that does not fit."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message", "advises_size"),
    [
        (ZeroDivisionError("division by zero"), "in blocks.1.mlp: ZeroDivisionError: division by zero.; check", False),
        (RuntimeError("the weights were not loaded"), "in blocks.1.mlp: the weights were not loaded.; check", False),
        (RuntimeError("height 224 must be a multiple of 48"), "in blocks.1.mlp: height 224 must be", True),
        (ValueError("input is not divisible by 7"), "in blocks.1.mlp: input is not divisible by 7.; give", True),
        (TypeError("size is None"), "in blocks.1.mlp: TypeError: size is None.; if it needs other inputs", False),
    ],
)
def test_an_error_in_a_block_names_it_and_advises_a_size_only_for_sizes(
    error: Exception, message: str, advises_size: bool
) -> None:
    class Foreign(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.Sequential(nn.Identity(), nn.Sequential(OrderedDict(mlp=Dividing(error))))

        def forward(self, x: Tensor) -> Tensor:
            return self.blocks(x)

    with pytest.raises(VitlabError, match=f"Foreign does not run on 224x224 images .{message}") as caught:
        describe(Foreign())
    assert ("input_size=" in str(caught.value)) == advises_size and "\n" not in str(caught.value)


@pytest.mark.parametrize("size", [100_000, 0, -1, (32, 9000)])
def test_invalid_image_sizes_raise(size: int | tuple[int, int]) -> None:
    with pytest.raises(VitlabError, match=r"^image size \S+: expected a height and a width from 1 to 8,192$"):
        vitlab.describe(timm.create_model("test_vit"), size)


def test_a_failed_allocation_has_a_plain_message() -> None:
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(
        VitlabError, match="^Large on 64x32 images does not fit into memory; give a smaller image size$"
    ):
        vitlab.describe(Large(), (64, 32))


@pytest.mark.parametrize("instrument", ["attention_entropy", "feature_variance", "calibration"])
def test_inputs_that_batches_of_images_do_not_have_are_named(instrument: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    model = transformers.Siglip2VisionModel(transformers.Siglip2VisionConfig(**sizes, patch_size=8, num_patches=16))
    batch = (torch.zeros(2, 3, 32, 32), torch.tensor([0, 1]))
    message = r"^Siglip2VisionModel needs pixel_attention_mask, spatial_shapes in addition to images; .* vitlab.record"
    with pytest.raises(VitlabError, match=message) as caught:
        vitlab.measure(instrument, model.eval(), [batch])
    assert "\n" not in str(caught.value)
