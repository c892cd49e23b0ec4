"""Context broadcast on a subset of the tokens of text and images, against loops over the tokens of each sample."""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ViltConfig, ViltForQuestionAnswering

import vitlab
from vitlab.core.errors import VitlabError
from vitlab.identity import identify
from vitlab.modules.context_broadcast import ContextBroadcast, ScaledContextBroadcast
from vitlab.modules.squeeze_excite import SqueezeExcite
from vitlab.modules.token_kinds import IMAGE, PADDING, TEXT, TokenKinds

SUBSETS = [None, "image", "text", "each"]
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def vilt(seed=0):
    torch.manual_seed(seed)
    config = ViltConfig(
        **TINY,
        vocab_size=20,
        image_size=16,
        patch_size=8,
        num_labels=5,
        max_position_embeddings=12,
        initializer_range=0.3,
    )
    return ViltForQuestionAnswering(config).eval()


def members_of(subset, kinds, i):
    """Positions whose mean token i receives; none if it receives no mean."""
    if kinds[i] == PADDING or (subset == "image" and kinds[i] != IMAGE) or (subset == "text" and kinds[i] != TEXT):
        return []
    same = {None: (TEXT, IMAGE), "image": (IMAGE,), "text": (TEXT,), "each": (kinds[i],)}[subset]
    return [j for j, kind in enumerate(kinds) if kind in same]


def brute_force(x, kinds, subset, scale):
    """CB (scale None) or CB_S, token by token."""
    result = x.clone()
    for b in range(len(x)):
        row = kinds[b].tolist()
        for i in range(x.shape[1]):
            members = members_of(subset, row, i)
            if members:
                mean = sum(x[b, j] for j in members) / len(members)
                result[b, i] = 0.5 * x[b, i] + 0.5 * mean if scale is None else x[b, i] + scale * mean
    return result


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from([PADDING, TEXT, IMAGE]), min_size=6, max_size=6), min_size=1, max_size=4))
def test_mean_and_broadcast_are_confined_to_the_subset(rows):
    current = torch.tensor(rows)
    x = torch.randn(len(rows), 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kinds = TokenKinds()
    kinds.set(current)
    for subset in SUBSETS:
        plain = ContextBroadcast(tokens=subset, kinds=kinds)
        scaled = ScaledContextBroadcast(3, init=0.7, tokens=subset, kinds=kinds).double()
        torch.testing.assert_close(plain(x), brute_force(x, current, subset, None))
        expected = brute_force(x, current, subset, scaled.scale.detach())
        torch.testing.assert_close(scaled(x), expected)


def test_values_of_padding_do_not_matter_even_if_not_finite():
    kinds = TokenKinds()
    kinds.set(torch.tensor([[TEXT, PADDING, IMAGE]]))
    x = torch.tensor([[[1.0], [torch.nan], [3.0]]])
    y = ContextBroadcast(kinds=kinds)(x)
    assert y[0, [0, 2], 0].tolist() == [1.5, 2.5]


# -- in ViLT ----------------------------------------------------------------------------------------------------------


def batch_of(lengths, text, extra=0, wide=()):
    """Inputs of ViLT: text of these lengths padded to `text` + `extra`; images with these heights of real pixels."""
    generator = torch.Generator().manual_seed(1)
    words = torch.zeros(len(lengths), text + extra, dtype=torch.long)
    mask = torch.zeros_like(words)
    for i, length in enumerate(lengths):
        words[i, :length] = torch.randint(1, 20, (length,), generator=generator)
        mask[i, :length] = 1
    pixels = torch.randn(len(lengths), 3, 16, 16, generator=generator)
    pixel_mask = torch.ones(len(lengths), 16, 16, dtype=torch.long)
    for i in wide:  # the lower half of these images is padding
        pixels[i, :, 8:] = 0
        pixel_mask[i, 8:] = 0
    return {"input_ids": words, "attention_mask": mask, "pixel_values": pixels, "pixel_mask": pixel_mask}


@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("part", ["ContextBroadcast", "ScaledContextBroadcast"])
def test_in_vilt_each_sample_has_its_own_subset(subset, part):
    """The input and the output of the part in a batch of different lengths and paddings, against the loop."""
    settings = "init=0.7, " if part.startswith("Scaled") else ""
    model = vitlab.retrofit(vilt(), f"{part}({settings}tokens={subset!r})", blocks=[0])
    fitted = model.get_submodule(vitlab.parts(model)[0].path)
    seen = []
    fitted.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    with torch.no_grad():
        model(**batch_of([2, 5, 3], 5, wide=[1]))
    ((x, y),) = seen
    kinds = torch.tensor(
        [
            [TEXT] * 2 + [PADDING] * 3 + [IMAGE] * 5,
            [TEXT] * 5 + [IMAGE] * 3 + [PADDING] * 2,
            [TEXT] * 3 + [PADDING] * 2 + [IMAGE] * 5,
        ]
    )
    scale = fitted.scale.detach() if settings else None
    torch.testing.assert_close(y, brute_force(x, kinds, subset, scale))


PADDED = {
    **{f"ContextBroadcast(tokens={subset!r})": [] for subset in SUBSETS},
    **{f"ScaledContextBroadcast(init=0.7, tokens={subset!r})": [] for subset in SUBSETS},
    "SqueezeExcite": [],
}


@pytest.mark.parametrize("part", PADDED)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 6))
def test_more_padding_gives_the_same_answers(part, lengths, extra):
    model = vitlab.retrofit(vilt(), part).eval()
    with torch.no_grad():
        results = []
        for more in (0, extra):
            torch.manual_seed(0)
            results.append(model(**batch_of(lengths, max(lengths), more)).logits)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


def test_part_changes_the_answers_in_every_subset():
    torch.manual_seed(0)
    inputs = batch_of([2, 4], 4)
    models = [vilt(), *(vitlab.retrofit(vilt(), f"ContextBroadcast(tokens={subset!r})") for subset in SUBSETS)]
    logits = []
    for model in models:
        torch.manual_seed(0)
        logits.append(model(**inputs).logits)
    for i, one in enumerate(logits):
        assert all((one - other).abs().max() > 1e-5 for other in logits[:i])


def test_copies_have_their_own_kinds_and_restore_removes_everything():
    model = vilt()
    keys, tree = list(model.state_dict()), [name for name, _ in model.named_modules()]
    vitlab.retrofit(model, "ContextBroadcast(tokens='text')")
    before, inputs = identify(model).weights, batch_of([2, 4], 4)
    torch.manual_seed(0)
    expected = model(**inputs).logits
    assert identify(model).weights == before, "a forward does not change the identity"
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.compile(model, backend="eager")):
        model(**batch_of([1], 1))  # the kinds of the model change, those of its copies do not
        torch.manual_seed(0)
        torch.testing.assert_close(other(**inputs).logits, expected)
    kinds = [module for module in model.modules() if isinstance(module, TokenKinds)]
    assert len(kinds) == 1 and not any("token_kinds" in key for key in model.state_dict())
    vitlab.restore(model)
    assert list(model.state_dict()) == keys and [name for name, _ in model.named_modules()] == tree
    assert not any(module._forward_hooks or module._forward_hooks_with_kwargs for module in model.modules())


def test_a_given_module_receives_the_kinds():
    by_name, by_module = vitlab.retrofit(vilt(), "ContextBroadcast"), vitlab.retrofit(vilt(), ContextBroadcast())
    for model in (by_name, by_module):
        assert isinstance(model.get_submodule(vitlab.parts(model)[0].path).kinds, TokenKinds)
    moved = by_name.get_submodule(vitlab.parts(by_name)[0].path)
    again = vitlab.retrofit(vilt(1), moved)
    parts = [again.get_submodule(part.path) for part in vitlab.parts(again)]
    assert all(part.kinds is parts[0].kinds is not moved.kinds for part in parts)


def test_retrofit_again_shares_the_kinds():
    model = vitlab.retrofit(vilt(), "ContextBroadcast(tokens='text')", blocks=[0])
    vitlab.retrofit(model, "ScaledContextBroadcast(tokens='image')", blocks=[1])
    assert len([module for module in model.modules() if isinstance(module, TokenKinds)]) == 1
    model(**batch_of([3], 3))


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_text_tokens_of_an_image_model_raise():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1)
    with pytest.raises(VitlabError, match=r"invalid tokens='text' of ContextBroadcast.*omit tokens"):
        vitlab.retrofit(model, "ContextBroadcast(tokens='text')")
    with pytest.raises(VitlabError, match=r"invalid tokens='text'"):
        vitlab.retrofit(model, ContextBroadcast(tokens="text", kinds=TokenKinds()))
        model(torch.zeros(1, 3, 32, 32))


def test_an_unknown_subset_raises():
    with pytest.raises(VitlabError, match="'image', 'text', 'each'"):
        vitlab.retrofit(vilt(), "ContextBroadcast(tokens='images')")


def test_tokens_of_another_forward_raise():
    kinds = TokenKinds()
    with pytest.raises(VitlabError, match="not known"):
        ContextBroadcast(kinds=kinds)(torch.zeros(1, 3, 2))
    kinds.set(torch.ones(1, 4, dtype=torch.long))
    with pytest.raises(VitlabError, match="not known"):
        SqueezeExcite(2, kinds=kinds)(torch.zeros(1, 3, 2))


def test_gradients_reach_every_weight():
    model = vitlab.retrofit(vilt(), "ScaledContextBroadcast(tokens='text')").train()
    model(**batch_of([2, 4], 4)).logits.square().sum().backward()
    scales = [p.grad for name, p in model.named_parameters() if name.endswith("scale")]
    assert len(scales) == 2 and all(grad is not None and grad.abs().sum() > 0 for grad in scales)
