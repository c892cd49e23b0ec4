"""Acting on the model and comparing in real Chromium: ablations, overlays, causal trace, differences, address, PNG."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from cases.explorer_page import maps, numbers, open_page, serving, settle
from cases.exploring import MODELS, model_input, on_show
from vitlab.explore.server import ExplorerState

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[ExplorerState, str]]:
    with ExitStack() as stack:
        shown, thread = stack.enter_context(on_show(MODELS))
        yield shown, stack.enter_context(serving(shown, thread))


@pytest.fixture
def opened(browser_page: Any, served: tuple[ExplorerState, str]) -> Any:  # noqa: F811
    return open_page(browser_page, served[1])


def post(page: Any, address: str, **ask: Any) -> Any:
    """What the server answers, without the page."""
    root = page.url.partition("#")[0]
    return page.request.post(f"{root}api/{address}", data={"model": 0, "image": "0", **ask}).json()


def press(page: Any, selector: str, key: str = "Enter") -> None:
    page.locator(selector).first.focus()
    page.keyboard.press(key)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 800, 390])
def test_everything_by_keyboard_at_every_width(
    browser_page: Any,  # noqa: F811
    served: tuple[ExplorerState, str],
    width: int,
    scheme: str,
) -> None:
    page = open_page(browser_page, served[1], width, scheme)
    clean = numbers(page, 1)
    strip, first = (page.locator(each).first.bounding_box()["width"] for each in (".av-strip", ".av-map"))
    assert first >= min(96, strip / 3 - 4)  # three maps fill the width that they have
    if width < 960:
        assert page.locator("#severity").is_hidden()
        press(page, "#menu")
        assert page.locator("#menu").get_attribute("aria-expanded") == "true"
    press(page, "#severity", "End")
    settle(page)
    foggy = numbers(page, 1)
    assert foggy[:5] != clean
    press(page, "#ablate")
    if width < 960:
        page.keyboard.press("Escape")
        assert page.locator("#severity").is_hidden()
        assert page.evaluate("document.activeElement.id") == "menu"
    press(page, ".av-panel:nth-child(2) .av-map")
    settle(page)
    assert page.locator("#ablated li").count() == 2  # the panels are locked: in both models
    press(page, ".av-panel:nth-child(2) .av-ablate button[value=mlp]")
    settle(page)
    assert page.locator("#ablated li").count() == 4 and numbers(page, 1) != foggy
    assert page.locator(".av-change").count() >= 10
    labels = page.locator("button, select, input").evaluate_all(
        "all => all.map(e => e.ariaLabel || e.textContent.trim() || (e.labels[0] && e.labels[0].textContent))"
    )
    assert all(labels)
    if width < 960:
        press(page, "#menu")
    press(page, "#reset")
    settle(page)
    assert numbers(page, 1) == foggy and not page.locator("#ablated li").count()
    press(page, ".av-bar-top label:has-text('difference') input", "Space")
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_ablated_head_changes_the_prediction_as_a_hook_by_hand(opened: Any, served: Any) -> None:
    shown = served[0].models[0]
    opened.locator("label:has-text('lock panels') input").uncheck()
    opened.get_by_role("button", name="Ablate", exact=True).click()
    opened.locator(".av-panel").first.locator(".av-map").nth(3 + 1).click()  # layer 2, head 2
    settle(opened)
    assert opened.locator("#ablated li").all_text_contents() == ["layer 2, head 2 of deit_tiny_patch16_224×"]

    def zero(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        x = arguments[0].clone()
        x[..., 8:16] = 0
        return (x,)

    with torch.no_grad():
        whole = shown.model(model_input(shown))[0].softmax(-1)
        handle = shown.model.blocks[1].attn.proj.register_forward_pre_hook(zero)
        ablated = shown.model(model_input(shown))[0].softmax(-1)
        handle.remove()
    rows = opened.locator(".av-panel").first.locator(".av-predictions li")
    for row in (rows.nth(i) for i in range(rows.count())):
        index = shown.classes.index(row.locator(".av-class").text_content())
        assert row.locator(".av-number").text_content() == f"{100 * ablated[index]:.1f} %"
        change = float(row.locator(".av-change").text_content().replace("−", "-"))
        assert abs(change - 100 * float(ablated[index] - whole[index])) < 0.051
    opened.get_by_role("button", name="Restore layer 2, head 2 of deit_tiny_patch16_224").click()
    settle(opened)
    assert numbers(opened)[0] == f"{100 * whole.max():.1f} %" and not opened.locator(".av-change").count()


def values(answer: dict[str, Any], index: int, size: int = 16) -> np.ndarray:
    quantised = np.frombuffer(base64.b64decode(answer["maps"]), np.uint8).reshape(-1, size)
    return quantised[index] / 255 * answer["peaks"][index]


def hover(page: Any, selector: str, row: int, column: int) -> str:
    """Move to the middle of a cell of a 4 × 4 map and return the readout."""
    place = page.locator(selector).first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (column + 0.5) / 4, box["y"] + box["height"] * (row + 0.5) / 4)
    return page.locator(".av-readout").text_content()


def test_differences_and_values_on_hover(opened: Any) -> None:
    before = maps(opened)
    query = {"y": 0.625, "x": 0.625}  # row 3, column 3
    first, second = (values(post(opened, "rows", model=model, **query)[1], 0) for model in (0, 1))
    text = hover(opened, ".av-panel:nth-child(2) tbody tr:nth-child(2) .av-map canvas", 1, 3)
    assert text.startswith("layer 2, head 1, patch in row 2, column 4:")
    assert f"panel 1: {100 * first[7]:.1f} %" in text and f"panel 2: {100 * second[7]:.1f} %" in text
    opened.get_by_label("difference").check()
    settle(opened)
    after = maps(opened)
    assert after[:9] == before[:9] and all(a != b for a, b in zip(after[9:], before[9:], strict=True))
    text = hover(opened, ".av-panel:nth-child(2) tbody tr:nth-child(2) .av-map canvas", 1, 3)
    found = float(re.search(r"panel 2: difference (.*) points", text)[1].replace("−", "-"))
    assert abs(found - 100 * (second[7] - first[7])) < 0.051
    assert opened.get_by_label("lock panels").is_disabled()


def test_the_bar_of_the_entropy_shows_the_number_above_it(opened: Any) -> None:
    def bars(panel: int) -> list[tuple[float, float, float]]:
        """Number, length of the bar from 0 to 1, and largest entropy, of each layer."""
        cells = opened.locator(".av-panel").nth(panel).locator(".av-entropy").all()
        return [
            (
                float(cell.locator(".av-number").text_content().replace("−", "-")),
                float(cell.locator(".av-bar").evaluate("bar => parseFloat(bar.style.width)")) / 100,
                float(re.search(r"of at most ([\d.]+) nats", cell.get_attribute("title"))[1]),
            )
            for cell in cells
        ]

    first, second = bars(0), bars(1)
    opened.get_by_label("difference").check()
    settle(opened)
    for (number, share, bound), one, other in zip(bars(1), first, second, strict=True):
        assert abs(number - (other[0] - one[0])) < 0.021 and abs(share - abs(number) / bound) < 0.01 / bound
    assert all(abs(share - number / bound) < 0.01 / bound for number, share, bound in (*first, *second))


def test_locked_panels_move_together(opened: Any) -> None:
    pictures = opened.locator(".av-picture")
    pictures.nth(1).focus()
    opened.keyboard.press("ArrowLeft")
    settle(opened)
    assert all("row 3 of 4, column 2 of 4" in pictures.nth(i).get_attribute("aria-label") for i in (0, 1))
    opened.get_by_label("lock panels").uncheck()
    pictures.nth(1).focus()
    opened.keyboard.press("ArrowUp")
    settle(opened)
    assert "row 3 of 4" in pictures.nth(0).get_attribute("aria-label")
    assert "row 2 of 4" in pictures.nth(1).get_attribute("aria-label")
    opened.get_by_label("lock panels").check()
    settle(opened)
    assert "row 2 of 4" in pictures.nth(0).get_attribute("aria-label")


def test_overlays(opened: Any) -> None:
    picture = "document.querySelector('.av-picture').toDataURL()"
    plain = opened.evaluate(picture)
    opened.get_by_label("Overlay", exact=True).select_option("rollout")
    settle(opened)
    rollout = opened.evaluate(picture)
    expected = post(opened, "relevance", method="rollout")
    caption = opened.locator(".av-caption").first.text_content()
    assert caption == f"attention rollout up to layer 3; {100 * expected['prefix'][2]:.1f} % on prefix tokens"
    assert f"panel 1: {100 * values(expected, 2)[6]:.1f} %" in hover(opened, ".av-picture", 1, 2)
    press(opened, "#overlay-layer", "Home")
    assert f"panel 1: {100 * values(expected, 0)[6]:.1f} %" in hover(opened, ".av-picture", 1, 2)
    opened.get_by_label("Overlay", exact=True).select_option("gradient")
    settle(opened)
    chosen = opened.locator(".av-predictions .av-class").nth(3).text_content()
    opened.get_by_label("Class", exact=True).select_option(chosen)
    settle(opened)
    target = values(post(opened, "relevance", method="gradient", target=chosen), 0)
    assert f"for {chosen} up to layer 1" in opened.locator(".av-caption").first.text_content()
    assert f"panel 1: {100 * target[6]:.1f} %" in hover(opened, ".av-picture", 1, 2)
    assert len({plain, rollout, opened.evaluate(picture)}) == 3


def test_label_and_verdict_are_separate_and_in_words(browser_page: Any) -> None:  # noqa: F811
    with on_show(MODELS[:1]) as (shown, thread), serving(shown, thread) as place:
        model = shown.models[0]
        label = model.images.label_index("0")
        with torch.no_grad():
            ranked = model.model(model_input(model))[0].argsort(descending=True).tolist()
        cases = [(ranked[0], 0, "✓ right"), (ranked[2], 2, "✗ wrong"), (None, None, "not an output of this model")]
        for output, rank, text in cases:
            model.outputs = () if output is None else [output if i == label else 0 for i in range(25)]
            page = open_page(browser_page, place)
            panel = page.locator(".av-panel").first
            assert text in panel.locator(".av-verdict").text_content()
            lines = panel.locator(".av-truth p").all_text_contents()
            assert lines[:2] == [f"label{model.images.name_of(label)}", f"predicted{model.classes[ranked[0]]}"]
            tags = panel.locator(".av-predictions li").evaluate_all("all => all.map(e => !!e.querySelector('.av-tag'))")
            assert tags == [i == rank for i in range(5)]


def test_one_model_starts_with_clean_against_changed(browser_page: Any) -> None:  # noqa: F811
    with on_show(MODELS[:1]) as (shown, thread), serving(shown, thread) as place:
        page = open_page(browser_page, place)
        chosen = page.locator(".av-choices select").evaluate_all(
            "all => all.map(s => s.selectedOptions[0].textContent)"
        )
        assert chosen == ["clean", "changed"]


def test_the_logit_lens_is_faded_where_it_is_nearly_uniform(opened: Any, served: Any) -> None:
    """The last layer of the logit lens is the model: its entropy by hand."""
    faded = opened.locator(".av-lens").evaluate_all("all => all.map(e => e.classList.contains('av-faded'))")
    for number, model in enumerate(served[0].models):
        with torch.no_grad():
            probability = model.model(model_input(model))[0].double().softmax(-1)
        information = 1 + float((probability * probability.log()).sum()) / np.log(25)
        layers = post(opened, "view", model=number)["layers"]
        assert abs(layers[-1]["information"] - information) < 1e-5
        assert faded[3 * number : 3 * number + 3] == [layer["information"] < 0.1 for layer in layers]
    assert len(set(faded)) == 2


def test_the_causal_trace_of_the_shown_image(opened: Any) -> None:
    assert opened.locator("#causal-run").is_disabled()
    opened.get_by_label("Severity", exact=True).fill("5")
    settle(opened)
    press(opened, "#causal-run")
    until(opened, "document.querySelector('#causal-status').textContent === 'Done.'")
    expected = [post(opened, "causal", corruption="gaussian_noise", severity=5, layer=layer) for layer in range(3)]
    for layer, row in enumerate(expected):
        effects = [row["prefix"][0], row["attention"], row["mlp"], *row["heads"]]
        cells = opened.locator("#causal tbody tr").nth(layer).locator(".effect").all_text_contents()
        shown = [float(cell.replace("−", "-")) for cell in cells]
        assert np.allclose(shown, 100 * np.array(effects), atol=0.051)
    result = opened.locator("#causal-result").text_content()
    assert expected[0]["class"] in result and "ablation" not in result
    opened.get_by_label("Severity", exact=True).fill("4")  # a result of another input does not stay
    settle(opened)
    assert not opened.locator("#causal tbody tr").count()


def test_the_causal_trace_says_that_ablations_hold_in_both_runs(opened: Any) -> None:
    opened.get_by_label("Severity", exact=True).fill("5")
    opened.get_by_role("button", name="Ablate", exact=True).click()
    opened.locator(".av-panel").first.locator(".av-map").nth(1).click()
    settle(opened)
    assert "Change in points from the model without ablations" in opened.locator(".av-panel").first.text_content()
    press(opened, "#causal-run")
    until(opened, "document.querySelector('#causal-status').textContent === 'Done.'")
    assert "both with 1 ablation, so they differ" in opened.locator("#causal-result").text_content()


def test_the_causal_trace_shows_progress_and_can_be_stopped(opened: Any) -> None:
    held: list[Any] = []

    def hold_second_layer(route: Any) -> None:
        if route.request.post_data_json["layer"] == 1:
            held.append(route)
        else:
            route.continue_()

    opened.route("**/api/causal", hold_second_layer)
    opened.get_by_label("Severity", exact=True).fill("5")
    settle(opened)
    opened.get_by_role("button", name="Compute").click()
    until(opened, "document.querySelector('#causal-status').textContent === 'Layer 2 of 3'")
    until(opened, "document.querySelectorAll('#causal tbody tr').length === 1")
    assert abs(opened.locator("#causal-progress").evaluate("bar => bar.value") - 1 / 3) < 1e-6
    press(opened, "#causal-run")
    assert opened.locator("#causal-status").text_content() == "Stopped."
    held[0].continue_()
    opened.wait_for_timeout(300)
    assert opened.locator("#causal tbody tr").count() == 1
    assert opened.get_by_role("button", name="Compute").is_enabled()


def test_the_address_holds_the_view(opened: Any) -> None:
    opened.locator("#pictures button").nth(-2).click()
    opened.get_by_label("Corruption", exact=True).select_option("fog")
    opened.get_by_label("Severity", exact=True).fill("3")
    settle(opened)
    opened.get_by_role("button", name="Hide patches").click()
    opened.locator(".av-picture").first.focus()
    opened.keyboard.press("ArrowLeft")
    opened.keyboard.press("Space")
    opened.get_by_role("button", name="Ablate", exact=True).click()
    opened.locator(".av-panel").first.locator(".av-map").nth(2).click()
    settle(opened)
    opened.get_by_role("button", name="Ablate", exact=True).click()
    opened.get_by_label("Overlay", exact=True).select_option("gradient")
    opened.get_by_label("difference").check()
    settle(opened)
    opened.locator(".av-map").nth(4).click()
    opened.get_by_label("Condition of panel 1").select_option("clean")
    settle(opened)

    def state() -> list[Any]:
        opened.mouse.move(5, 5)
        opened.evaluate("document.activeElement.blur()")
        pictures = opened.locator(".av-picture").evaluate_all("all => all.map(c => c.toDataURL())")
        controls = opened.locator("aside select, aside input[type=range], .av-bar-top input").evaluate_all(
            "all => all.map(e => e.type === 'checkbox' ? e.checked : e.value)"
        )
        texts = opened.locator("#ablated li, .av-status").all_text_contents()
        return [numbers(opened), numbers(opened, 1), maps(opened), pictures, controls, texts]

    before, address = state(), opened.url
    opened.reload()
    opened.wait_for_selector(".av-map")
    settle(opened)
    assert state() == before and opened.url == address
    open_page(opened, address)  # a shared address
    assert state() == before


def test_an_invalid_address_is_reported_and_the_rest_is_used(browser_page: Any, served: Any) -> None:  # noqa: F811
    hostile = "#image=<b>7</b>&severity=9&query=1.0_1.0&ablate=0.0.norm&hidden=99&panels=5.5&overlay=saliency&options=x"
    page = open_page(browser_page, served[1] + hostile)
    text = page.locator("#error").text_content()
    assert all(name in text for name in ("image", "severity", "ablate", "hidden", "panels", "overlay", "options"))
    assert "query" not in text and "row 2 of 4, column 1 of 4" in page.locator(".av-status").text_content()
    assert page.locator("#pictures button[aria-pressed=true]").get_attribute("value") == "0"


def test_the_view_is_saved_as_png(opened: Any) -> None:
    with opened.expect_download() as waiting:
        press(opened, "#save")
    assert waiting.value.suggested_filename == "vitlab-explore.png"
    with Image.open(waiting.value.path()) as saved:
        assert saved.format == "PNG" and saved.width == 2 * (2 * (560 + 32) + 32)
        pixels = np.asarray(saved.convert("RGB")).astype(float)
    shown = opened.locator(".av-picture").first.evaluate("canvas => canvas.toDataURL()")
    picture = Image.open(io.BytesIO(base64.b64decode(shown.partition(",")[2]))).convert("RGB").resize((480, 480))
    found = pixels[2 * 80 : 2 * 80 + 480, 2 * 32 : 2 * 32 + 480]
    assert np.abs(found - np.asarray(picture).astype(float)).mean() < 4


def test_the_saved_view_says_all_that_was_changed(opened: Any) -> None:
    """The list beside the page and the picture show whole names; the picture also has the headings of its columns."""
    opened.locator("#severity").fill("3")
    press(opened, "#ablate")
    for layer in (1, 2):
        opened.get_by_label(f"Ablate the block of layer {layer}").last.click()
        settle(opened)
    opened.get_by_label("difference").check()
    settle(opened)
    names = opened.locator("#ablated span")
    assert names.evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")
    opened.evaluate("""() => {
        const drawing = CanvasRenderingContext2D.prototype, draw = drawing.fillText;
        window.drawn = [];
        drawing.fillText = function (text, ...place) { drawn.push(text); draw.call(this, text, ...place); };
    }""")
    with opened.expect_download():
        press(opened, "#save")
    drawn = opened.evaluate("drawn")
    assert {"layer", "heads", "entropy", "logit lens"} <= set(drawn)
    head = "; ".join(drawn[: drawn.index("layer")])
    changes = [f"without {name}" for name in names.all_text_contents()]
    assert len(changes) == 4 and all(each in head for each in ["of severity 3", *changes])
    assert "panel 2: maps minus those of panel 1" in head
