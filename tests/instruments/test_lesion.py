from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.stats import sem
from torch import nn

import vitlab
from cases.features import FAMILY, FEATURES, images, labels
from vitlab.adapters import describe
from vitlab.instruments.lesion import paired_change
from vitlab.interventions.units import removed, units

each = pytest.mark.parametrize("case", FEATURES, ids=lambda case: case.family)


def cut_by_hand(model, name):
    """A copy of a tiny model without one unit, made without hooks."""
    block, kind = name.split()
    twin = copy.deepcopy(model)
    module = twin.get_submodule(block)
    if kind == "Conv":
        with torch.no_grad():  # a kernel with a single 1, in the middle of its own channel
            module.weight.zero_()
            for channel in range(module.out_channels):
                own = channel % (module.in_channels // module.groups)
                module.weight[channel, own, module.kernel_size[0] // 2, module.kernel_size[1] // 2] = 1
            if module.bias is not None:
                module.bias.zero_()
    else:
        last = {"MSA": "attn.proj", "MLP": "mlp.fc2"}[kind]
        for parameter in module.get_submodule(last).parameters():
            nn.init.zeros_(parameter)
    return twin


@pytest.mark.parametrize("family", ["vit", "deit_distilled", "swin", "resnet", "convnext"])
def test_against_edited_weights(family):
    case = FAMILY[family]
    model, pictures, targets = case.model(), images(case, 5), labels(5)
    found = vitlab.measure("lesion", model, [(pictures[:3], targets[:3]), (pictures[3:], targets[3:])])
    with torch.no_grad():
        base = model(pictures)
        correct = (base.argmax(1) == targets).double().numpy()
        nll = nn.functional.cross_entropy(base, targets, reduction="none").double().numpy()
        assert found.values["baseline"] == correct.mean()
        for i, name in enumerate(found.axes["unit"]):
            logits = cut_by_hand(model, name)(pictures)
            difference = (logits.argmax(1) == targets).double().numpy() - correct
            lost = nn.functional.cross_entropy(logits, targets, reduction="none").double().numpy() - nll
            assert found.values["change"][i] == pytest.approx(difference.mean())
            assert found.values["standard_error"][i] == pytest.approx(sem(difference))
            assert found.values["accuracy"][i] == pytest.approx(correct.mean() + difference.mean())
            assert found.values["nll_change"][i] == pytest.approx(lost.mean(), abs=1e-5)
            assert found.values["nll_standard_error"][i] == pytest.approx(sem(lost), abs=1e-5)
        assert np.abs(found.values["nll_change"]).min() > 1e-6  # every unit counts


@pytest.mark.parametrize("family", ["vit", "deit_distilled", "swin", "swin_v2"])
def test_a_model_without_any_branch_is_its_stem(family):
    """With all branches removed, in Swin-V2 after their norms, every block of a stage leaves the stream unchanged."""
    case = FAMILY[family]
    model, pictures = case.model(), images(case, 2)
    with torch.no_grad():
        chosen = units(model, describe(model, case.size), pictures)
        with removed(model, *chosen), vitlab.record(model, "features", at=("block.in", "block.out")) as tape:
            model(pictures)
    names = {key[0] for key in tape}
    assert len(chosen) == 2 * len(names)
    for name in names:
        assert torch.equal(tape[name, "block.in"], tape[name, "block.out"])


@each
def test_every_unit_can_be_removed_and_is_restored(case):
    model, pictures = case.model(), images(case, 2)
    with torch.no_grad():
        plain = model(pictures)
        for conv in ("kernel", "block"):
            for unit in units(model, describe(model, case.size), pictures, conv):
                with removed(model, unit):
                    assert not torch.equal(model(pictures), plain), unit.name
                assert torch.equal(model(pictures), plain), unit.name


def test_whole_blocks_of_convolutions():
    case = FAMILY["convnext"]
    model, pictures, targets = case.model(), images(case, 4), labels(4)
    found = vitlab.measure("lesion", model, [(pictures, targets)], conv="block")
    twin = copy.deepcopy(model)
    twin.stages[3].blocks[1] = nn.Identity()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(one(pictures), targets) for one in (model, twin)]
    assert found.axes["unit"][-1] == "stages.3.blocks.1 Conv" and found.values["stage"][-1] == 3
    assert found.values["nll_change"][-1] == pytest.approx(float(losses[1] - losses[0]), abs=1e-5)


def test_subsampling_layers_are_kept():
    """LeViT's attention between stages has no skip path: without it the output is zero."""
    from cases.hierarchical import CASES
    from cases.variants import CASES as VARIANTS

    case = next(case for case in (*CASES, *VARIANTS) if case.family == "levit")
    found = vitlab.measure("lesion", case.model(), [(images(case, 2), labels(2))])
    assert not any("downsample MSA" in name for name in found.axes["unit"])
    assert any("downsample MLP" in name for name in found.axes["unit"])


def test_a_part_is_removed_with_its_unit():
    case = FAMILY["vit"]
    model, pictures, targets = case.model(), images(case, 4), labels(4)
    plain = vitlab.measure("lesion", model, [(pictures, targets)], images=4)
    vitlab.retrofit(model, "ContextBroadcast", at="mlp.out", blocks=[1])
    fitted = vitlab.measure("lesion", model, [(pictures, targets)])
    which = plain.axes["unit"].index("blocks.1 MLP")
    whole = [found.values["accuracy"][which] for found in (plain, fitted)]
    assert whole[0] == whole[1] and fitted.axes["unit"] == plain.axes["unit"]
    vitlab.restore(model)


def test_cost_is_units_and_one_forwards():
    case = FAMILY["vit"]
    model, pictures = case.model(), images(case, 6)
    seen = []
    handle = model.register_forward_hook(lambda module, given, output: seen.append(len(given[0])))
    vitlab.measure("lesion", model, [(pictures, labels(6))])
    handle.remove()
    assert seen.count(6) == 6 + 1 and sum(seen) - 6 * 7 <= 5  # one or two images to describe and to try


def test_paired_change_of_equal_predictions_is_certain():
    assert paired_change(np.ones(5), np.ones(5)) == (0, 0)


@pytest.mark.parametrize(("settings", "message"), [({"conv": "all"}, "kernel"), ({"images": 9}, "only 4")])
def test_settings(settings, message):
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match=message):
        vitlab.measure("lesion", case.model(), [(images(case, 4), labels(4))], **settings)


def test_one_image_is_refused():
    case = FAMILY["vit"]
    with pytest.raises(vitlab.VitlabError, match="two images"):
        vitlab.measure("lesion", case.model(), [(images(case, 1), labels(1))])
