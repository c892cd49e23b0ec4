"""Classification: the loss against formulas written out, the accuracy against a loop, and `quick` from end to end.

Shape legend: B batch, C classes.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn

import vitlab
from cases import CASES, VIT
from vitlab import describe, zoo
from vitlab.core import plugins
from vitlab.core.errors import VitlabError
from vitlab.core.recipe import Augment, Objective, Recipe, change
from vitlab.core.store import Run
from vitlab.data.catalogue import open_data
from vitlab.data.images import DataSet, ImageArray
from vitlab.data.resident import Resident
from vitlab.data.workers import Workers
from vitlab.identity import identify
from vitlab.losses.attention_diversification import attention_diversification
from vitlab.recording.tape import record
from vitlab.reporting import read
from vitlab.tasks import classification
from vitlab.tasks.attention_tape import attention_tape
from vitlab.tasks.classification import (
    Accuracy,
    Patched,
    batches,
    make_loss,
    mixed_cross_entropy,
    outputs,
    run,
    with_classes,
)
from vitlab.training.distributed import World


def batch(seed: int = 0, patched: bool = False) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(4, 3, 32, 32, generator=generator)
    labels = torch.randint(7, (4,), generator=generator)
    found = (images, labels, labels.flip(0), torch.full((4,), 0.7))
    return (*found, torch.randn(4, 3, 32, 32, generator=generator)) if patched else found


def sharp_vit() -> nn.Module:
    """A tiny ViT whose attention is far from uniform, so that ADL is not trivial."""
    model = CASES[0].model()
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(12)
    return model.train()


# -- the objective ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(2, 6), st.floats(0, 0.9), st.integers(0, 99))
def test_mixed_cross_entropy_is_that_of_soft_labels(b: int, c: int, smoothing: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(b, c, generator=generator, dtype=torch.float64)
    labels, partners = torch.randint(c, (2, b), generator=generator)
    weights = torch.rand(b, generator=generator, dtype=torch.float64)
    soft = torch.zeros(b, c, dtype=torch.float64)
    for i in range(b):
        soft[i, labels[i]] += weights[i]
        soft[i, partners[i]] += 1 - weights[i]
    soft = (1 - smoothing) * soft + smoothing / c
    expected = -(soft * torch.log(logits.exp() / logits.exp().sum(1, keepdim=True))).sum(1).mean()
    found = mixed_cross_entropy(logits, labels, partners, weights, smoothing)
    assert found.item() == pytest.approx(expected.item(), abs=1e-9)


def maps_by_hand(model: nn.Module, images: Tensor) -> list[Tensor]:
    """softmax(q kᵀ / √d) of each block, from the output of its qkv layer."""
    seen: list[Tensor] = []
    hooks = [block.attn.qkv.register_forward_hook(lambda *given: seen.append(given[2])) for block in model.blocks]
    model(images)
    for hook in hooks:
        hook.remove()
    heads, found = VIT["num_heads"], []
    for qkv in seen:
        q, k, _ = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        found.append((q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1))
    return found


def recorded(objective: Objective, model: nn.Module) -> Any:
    """The tape of a training run."""
    return attention_tape(objective, model, describe(model, (32, 32)))


@pytest.mark.parametrize("maps", [False, True])
@pytest.mark.parametrize("form", ["paper", "released"])
def test_diversification_equals_the_loss_of_the_maps(form: str, maps: bool) -> None:
    """Also from recorded calls, which an extension's loss needs."""
    model, given_batch = sharp_vit(), batch()
    plain = make_loss(Objective())(model, given_batch)
    named = dict(model.named_parameters())
    without = torch.autograd.grad(plain, list(named.values()))
    objective = Objective(diversification=0.5, tau=1.5, diversification_form=form)
    recorder = record(model, gradients=True, input_size=(32, 32)) if maps else recorded(objective, model)
    with recorder as tape:
        make_loss(objective, tape=tape)(model, batch(1))  # an earlier batch must not be heard
        value = make_loss(objective, tape=tape)(model, given_batch)
        gradients = torch.autograd.grad(value, list(named.values()))
    term = 0.5 * attention_diversification(maps_by_hand(model, given_batch[0]), tau=1.5, form=form)
    by_hand = torch.autograd.grad(term, list(named.values()), allow_unused=True)
    assert term.item() > 0.05 and value.item() == pytest.approx((plain + term).item(), abs=1e-5)
    for name, old, new, theirs in zip(named, without, gradients, by_hand, strict=True):
        assert torch.allclose(new - old, torch.zeros_like(old) if theirs is None else theirs, atol=2e-5), name
    difference = {name: new - old for name, old, new in zip(named, without, gradients, strict=True)}
    last = f"blocks.{len(model.blocks) - 1}"
    queries_and_keys, values = difference[f"{last}.attn.qkv.weight"].split([2 * 24, 24])
    assert queries_and_keys.abs().max() > 1e-4 and values.abs().max() < 1e-6
    assert all(difference[f"{last}.{name}.weight"].abs().max() < 1e-6 for name in ("attn.proj", "mlp.fc1", "mlp.fc2"))


def test_a_compiled_step_has_one_output() -> None:
    """Recorded queries and keys that stay on the tape would be outputs, with a gradient each, of the compiled step."""
    model, counts = sharp_vit(), []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        counts.append(len(next(iter(graph.graph.find_nodes(op="output"))).args[0]))
        return graph

    objective = Objective(diversification=0.5, tau=1.5)
    with recorded(objective, model) as tape:
        loss = make_loss(objective, tape=tape)
        compiled = torch.compile(loss, backend=backend, fullgraph=True)
        values = [compiled(model, batch()).item() for _ in range(3)]
        assert values == pytest.approx([loss(model, batch()).item()] * 3, abs=1e-5)
    assert counts == [1]


def distilled() -> tuple[nn.Module, nn.Module]:
    student = CASES[2].model().train()
    student.set_distilled_training(True)
    return student, CASES[0].model(seed=5).requires_grad_(False)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_distillation_equals_the_formula_of_deit(kind: str, weight: float) -> None:
    """(1 − α) CE(class head, labels) + α teacher, where soft is T² KL (DeiT, Eqs. 2 and 3)."""
    student, teacher = distilled()
    images, labels, *_ = given_batch = (*batch()[:3], torch.ones(4))
    objective = Objective(smoothing=0.0, distillation=kind, distillation_weight=weight, temperature=2.0)
    own, other = student(images)
    assert not torch.equal(own, other)
    lesson = teacher(images)
    if kind == "hard":
        taught = -other.log_softmax(1)[range(4), lesson.argmax(1)].mean()
    else:
        p, logs = (lesson / 2).softmax(1), (other / 2).log_softmax(1)
        taught = 4 * (p * (p.log() - logs)).sum() / 4  # T² = 4, B = 4
    expected = (1 - weight) * -own.log_softmax(1)[range(4), labels].mean() + weight * taught
    found = make_loss(objective, teacher)(student, given_batch)
    assert found.item() == pytest.approx(expected.item(), abs=1e-5)
    ours, theirs = (torch.autograd.grad(v, student.head_dist.weight, retain_graph=True)[0] for v in (found, expected))
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_patched_batch_adds_its_own_loss() -> None:
    model = sharp_vit()
    images, labels, partners, weights, patched = batch(patched=True)
    loss = make_loss(Objective())
    separate = loss(model, (images, labels, partners, weights)) + loss(model, (patched, labels, partners, weights))
    assert loss(model, (images, labels, partners, weights, patched)).item() == pytest.approx(separate.item(), abs=1e-5)


def test_diversification_sees_the_clean_images_only() -> None:
    model, objective = sharp_vit(), Objective(diversification=1.0, tau=1.5)
    *clean, patched = batch(patched=True)
    with recorded(objective, model) as tape:
        loss = make_loss(objective, tape=tape)
        together, alone = loss(model, (*clean, patched)), loss(model, tuple(clean))
    extra = make_loss(Objective())(model, (patched, *clean[1:]))
    assert together.item() == pytest.approx((alone + extra).item(), abs=1e-5)


def test_logits_are_found_inside_model_outputs() -> None:
    @dataclasses.dataclass
    class Wrapped:
        logits: Tensor

    x, y = torch.ones(1, 2), torch.zeros(1, 2)
    assert outputs((x, y)) == (x, y) and outputs(x) == (x, x) and outputs(Wrapped(x)) == (x, x)


# -- the metric -------------------------------------------------------------------------------------------------------


class Fixed(nn.Module):
    """Logits that depend on the image only; stores the mode of each call."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(3 * 4 * 4, classes, generator=torch.Generator().manual_seed(0)))
        self.modes: set[bool] = set()

    def forward(self, images: Tensor) -> Tensor:
        self.modes.add(self.training)
        return images.flatten(1) @ self.direction


def data_of(count: int, classes: int) -> DataSet:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (count, 3, 4, 4), dtype=torch.uint8, generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    test = ImageArray(images, labels, tuple(map(str, range(classes))))
    return DataSet("x", test, test, test.classes, test.mean, test.std)


@pytest.mark.parametrize("classes", [3, 11])
@pytest.mark.parametrize("through", ["resident", "workers"])
def test_accuracies_equal_a_loop(classes: int, through: str) -> None:
    data, model = data_of(37, classes), Fixed(classes)
    recipe = Recipe("timm/x", "x", image_size=(4, 4), batch_size=8)
    feed: Any = batches(recipe, data, World())
    assert isinstance(feed, Resident)
    if through == "workers":
        feed = Workers(data.train, (4, 4), batch_size=8, processes=0)
    total, first, five = 0.0, 0, 0
    images = (data.test.images / 255 - 0.5) / 0.5  # of the input size: neither resized nor cropped
    for image, label in zip(images, data.test.labels.tolist(), strict=True):
        logits = (image.flatten() @ model.direction).tolist()
        ranked = sorted(range(classes), key=lambda c: -logits[c])
        first, five = first + (ranked[0] == label), five + (label in ranked[:5])
        total += math.log(sum(math.exp(v - logits[label]) for v in logits))
    found = Accuracy(data, feed, World(), recipe)(model)
    assert found["top1"] == pytest.approx(100 * first / 37) and found["top5"] == pytest.approx(100 * five / 37)
    assert found["loss"] == pytest.approx(total / 37, rel=1e-5)
    assert model.modes == {False} and model.training


def test_broken_images_are_not_counted(tmp_path: Path) -> None:
    for c in range(2):
        (tmp_path / str(c)).mkdir()
        for i in range(3):
            Image.new("RGB", (8, 8), (250 * c,) * 3).save(tmp_path / str(c) / f"{i}.png")
    (tmp_path / "1/0.png").write_bytes(b"no picture")
    data = open_data(f"folder(path={str(tmp_path)!r})")
    feed = Workers(data.test, (4, 4), batch_size=4, processes=0)

    def always_the_second(images: Tensor) -> Tensor:
        return torch.tensor([[0.0, 1.0]]).expand(len(images), 2)

    model = Fixed(2)
    model.forward = always_the_second
    with pytest.warns(UserWarning, match="0.png"):
        found = Accuracy(data, feed, World(), Recipe("timm/x", "x"))(model)
    assert found["top1"] == pytest.approx(100 * 2 / 5) and found["top5"] == 100.0


def test_an_empty_test_set_is_an_error() -> None:
    data = data_of(8, 3)
    empty = dataclasses.replace(data, test=data.test.subset([]))
    feed = Workers(data.train, (4, 4), batch_size=4, processes=0)
    with pytest.raises(VitlabError, match="the test set is empty"):
        Accuracy(empty, feed, World(), Recipe("timm/x", "x"))(Fixed(3))


@pytest.mark.parametrize("maps", [False, True])
def test_evaluation_leaves_nothing_on_the_tape(maps: bool) -> None:
    data = open_data("scenes(train=8, test=20)", image_size=32)
    recipe = Recipe("timm/x", "x", image_size=(32, 32), batch_size=8)
    model = CASES[0].model()
    model.reset_classifier(25)
    recorder = (
        record(model, gradients=True, input_size=(32, 32)) if maps else recorded(Objective(diversification=1.0), model)
    )
    with recorder as tape:
        Accuracy(data, batches(recipe, data, World()), World(), recipe, tape)(model)
        with pytest.raises(VitlabError, match="nothing was recorded"):
            tape["blocks.0"] if maps else tape.loss()


# -- put together -----------------------------------------------------------------------------------------------------


def test_the_feed_is_chosen_by_the_images() -> None:
    data = open_data("scenes(train=8, test=4)", image_size=16)
    recipe = Recipe("timm/x", "scenes", image_size=(16, 16), batch_size=4)
    assert isinstance(batches(recipe, data, World()), Resident)
    assert isinstance(batches(change(recipe, {"image_size": (24, 24)}), data, World()), Workers)
    with pytest.raises(VitlabError, match="for evaluation only"):
        batches(recipe, dataclasses.replace(data, train=None), World())


def test_patched_batches_are_the_same_from_any_batch_on() -> None:
    data = open_data("scenes(train=12, test=4)", image_size=32)
    recipe = Recipe("timm/x", "scenes", image_size=(32, 32), batch_size=4, augment=Augment(patches=True))
    feed = batches(recipe, data, World())
    assert isinstance(feed, Patched) and len(feed) == 3
    whole, rest = list(feed.epoch(1)), list(feed.epoch(1, start_batch=2))
    assert all(torch.equal(a, b) for a, b in zip(whole[2], rest[0], strict=True)) and len(rest) == 1
    plain = list(feed.feed.epoch(1))
    assert all(torch.equal(a, b) for a, b in zip(whole[0][:4], plain[0], strict=True))
    assert whole[0][4].shape == whole[0][0].shape and not torch.equal(whole[0][4], whole[0][0])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("timm/x", "timm/x(num_classes=25)"),
        ("timm/x(a=1) | P(at='mlp.out')", "timm/x(a=1, num_classes=25) | P(at='mlp.out')"),
        ("timm/x(num_classes=1000)", "timm/x(num_classes=1000)"),
        ("hf/a/b", "hf/a/b(num_labels=25)"),
        ("hf/a/b(num_labels=25)", "hf/a/b(num_labels=25)"),
    ],
)
def test_a_model_has_the_number_of_classes_of_the_data(expression: str, expected: str) -> None:
    assert with_classes(expression, 25) == expected


def test_the_head_of_a_file_is_new_for_another_number_of_classes(tmp_path: Path) -> None:
    for classes in (25, 7):
        expression = f"timm/vit_tiny_patch16_224(num_classes={classes}, depth=1, embed_dim=6)"
        zoo.save(vitlab.load(expression), expression, str(tmp_path / f"my {classes}.safetensors"))
    assert with_classes(f"file/{tmp_path}/my 25.safetensors", 25) == f"file/{tmp_path}/my 25.safetensors"
    new = f"file/'{tmp_path}/my 7.safetensors'(num_classes=25) | P()"
    assert with_classes(f"file/{tmp_path}/my 7.safetensors | P()", 25) == new


def test_too_few_classes_raise() -> None:
    with pytest.raises(VitlabError, match="num_classes=10, but the data has 25 classes"):
        with_classes("timm/x(num_classes=10)", 25)


QUICK = "quick(images=64, epochs=1)"


def test_quick_from_end_to_end_with_and_without_diversification(tmp_path: Path) -> None:
    plain = run(plugins.recipe(QUICK), tmp_path / "plain", device="cpu")
    # With τ = 0 every entry passes, and rows that are almost uniform, as at the start, are almost alike: ADL is near 1.
    steered = change(plugins.recipe("quick(images=64, epochs=1, diversification=1.0)"), ["objective.tau=0"])
    found = run(steered, tmp_path / "steered", device="cpu")
    assert 0.9 < found["train_loss"] - plain["train_loss"] <= 1.0 + 1e-4
    for folder, row in (("plain", plain), ("steered", found)):
        assert Run(tmp_path / folder).metrics()[-1] == row and row["epoch"] == 1 and row["step"] == 4
        assert 2.5 < row["loss"] < 4.5 and 0 <= row["top1"] <= row["top5"] <= 100
        model = vitlab.load(f"file/{tmp_path}/{folder}/model.safetensors").eval()
        assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 25)


def test_a_part_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    recipe = change(plugins.recipe(QUICK), {"epochs": 2})
    recipe = dataclasses.replace(recipe, model=f"{recipe.model} | ScaledContextBroadcast()")
    run(recipe, tmp_path, device="cpu")
    model = vitlab.load(f"file/{tmp_path}/model.safetensors")
    parts = {name: p for name, p in model.named_parameters() if "vitlab_" in name}
    assert len(parts) == 6 and all(p.abs().max() > 0 for p in parts.values())  # they start at zero


def test_a_run_and_its_last_weights_are_one_model(tmp_path: Path) -> None:
    """The training curve that a report reads names the weights that `file/RUN` loads."""
    folder = tmp_path / "cb"
    recipe = change(plugins.recipe(QUICK), {"epochs": 1, "ema": 0.5})
    run(dataclasses.replace(recipe, model=f"{recipe.model} | ContextBroadcast"), folder, device="cpu")
    (curve,) = read([folder])
    assert curve.kind == "training" and curve.subject == "cb"
    for path in (folder, folder / "model.safetensors"):
        found = identify(vitlab.load(f"file/{path}"))
        assert curve.provenance["model"]["weights"] == found.weights
        assert curve.provenance["model"]["parts"] == found.parts
    averaged = identify(vitlab.load(f"file/{folder}/model_ema.safetensors"))
    assert averaged.weights != curve.provenance["model"]["weights"]
    (folder / "model.safetensors").unlink()
    assert "model" not in read([folder])[0].provenance, "a run that is not over has no weights yet"


def test_a_distilled_model_is_trained_on_both_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = "img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3"
    recipe = dataclasses.replace(
        plugins.recipe(QUICK),
        model=f"timm/deit_tiny_distilled_patch16_224({size})",
        objective=Objective(distillation="hard", teacher=f"timm/vit_tiny_patch16_224({size}, num_classes=25)"),
    )
    seen: list[nn.Module] = []
    monkeypatch.setattr(classification, "train", lambda recipe, model, *_, **__: seen.append(model) or {})
    run(recipe, tmp_path, device="cpu")
    images = torch.randn(2, 3, 32, 32)
    heads = seen[0].train()(images)
    assert isinstance(heads, tuple) and heads[0].shape == heads[1].shape == (2, 25)
    assert seen[0].eval()(images).shape == (2, 25)


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("data=nowhere", "no data set 'nowhere'; there are: scenes, cifar10"),
        ("data=scenes(trian=3)", "no setting of scenes 'trian'"),
        ("data=cifar100", "cifar100 is read from a folder"),
        ("model=timm/vit_tny", "no model 'vit_tny' in timm"),
        ("model=vit", "invalid model expression"),
        ("objective.distillation=hard", "distillation needs a teacher"),
        ("batch_size=512", "smaller than one batch of 512|512, but an epoch has 64 images"),
    ],
)
def test_mistakes_are_errors_before_training(
    setting: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VITLAB_DATA", raising=False)
    with pytest.raises(VitlabError, match=error):
        run(change(plugins.recipe(QUICK), [setting]), tmp_path, device="cpu")
    assert not (tmp_path / "metrics.jsonl").exists()
