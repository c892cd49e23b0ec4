"""The page in real Chromium: click, keys, slider, upload, paint; no console errors and no external requests."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from PIL import Image

from browser import browser_page, chromium, until  # noqa: F401 (fixtures)
from cases.explorer_page import maps, numbers, open_page, serving, settle
from cases.exploring import MODELS, on_show

HOSTILE = "<img src=x onerror=\"document.title='run'\"></script><script>document.title='run'</script>"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(serving(*stack.enter_context(on_show(MODELS))))


@pytest.fixture
def opened(browser_page: Any, address: str) -> Any:  # noqa: F811
    return open_page(browser_page, address)


def entropies(page: Any) -> list[str]:
    return page.locator(".av-panel").first.locator(".av-entropy").evaluate_all("cells => cells.map(c => c.title)")


def test_all_elements_are_present(opened: Any) -> None:
    assert opened.locator(".av-panel").count() == 2
    assert opened.locator(".av-map").count() == 2 * 3 * 3
    assert opened.locator(".av-lens .av-class").count() == 2 * 3
    assert opened.locator("#pictures button").count() == 6
    assert "CB Table 8" in opened.locator("#occlusion").text_content()
    names = opened.locator(".av-panel select").evaluate_all("all => all.map(s => s.selectedOptions[0].textContent)")
    plain = "deit_tiny_patch16_224"
    assert names == [plain, "changed", f"{plain} | ContextBroadcast", "changed"]
    last = opened.locator(".av-panel").first.locator(".av-lens").last.text_content()
    assert last.endswith(numbers(opened)[0])


def test_clicking_a_patch_sets_the_query_of_all_heads(opened: Any) -> None:
    before, was = entropies(opened), maps(opened)
    box = opened.locator(".av-picture").first.bounding_box()
    opened.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.1)
    settle(opened)
    assert "row 1 of 4, column 4 of 4" in opened.locator(".av-status").text_content()
    assert entropies(opened) != before and maps(opened) != was


def test_keys_move_the_patch_and_the_class_token_has_a_button(opened: Any) -> None:
    opened.locator(".av-picture").first.focus()
    for key in ("ArrowLeft", "ArrowUp", "ArrowLeft", "ArrowLeft"):  # from row 3, column 3; round the border
        opened.keyboard.press(key)
    settle(opened)
    assert "row 2 of 4, column 4 of 4" in opened.locator(".av-picture").first.get_attribute("aria-label")
    before = entropies(opened)
    opened.get_by_role("button", name="class token").first.click()
    settle(opened)
    assert "class token" in opened.locator(".av-status").text_content() and entropies(opened) != before


def test_the_slider_corrupts_the_changed_image_only(opened: Any) -> None:
    clean = numbers(opened)
    opened.locator("#severity").fill("5")
    settle(opened)
    assert opened.locator("#severity-value").text_content() == "5 of 5"
    noisy = numbers(opened)
    assert noisy != clean
    opened.get_by_label("Condition of panel 1").select_option("clean")
    settle(opened)
    assert numbers(opened) == clean
    opened.locator("#severity").fill("0")
    opened.get_by_label("Condition of panel 1").select_option("changed")
    settle(opened)
    assert numbers(opened) == clean


def test_painting_hides_patches_and_updates_the_prediction(opened: Any) -> None:
    clean = numbers(opened)
    opened.get_by_role("button", name="Hide patches").click()
    box = opened.locator(".av-picture").first.bounding_box()
    y = box["y"] + box["height"] * 0.4
    opened.mouse.move(box["x"] + 5, y)
    opened.mouse.down()
    opened.mouse.move(box["x"] + box["width"] - 5, y, steps=12)
    opened.mouse.up()
    settle(opened)
    painted = numbers(opened)
    assert painted != clean
    opened.locator(".av-picture").first.focus()
    opened.keyboard.press("Space")  # one more, by keyboard
    settle(opened)
    assert numbers(opened) not in (clean, painted)
    opened.get_by_role("button", name="Clear").click()
    settle(opened)
    assert numbers(opened) == clean


def test_valid_and_invalid_uploads(opened: Any) -> None:
    file = io.BytesIO()
    Image.effect_noise((50, 40), 90).convert("RGB").save(file, "PNG")
    before = numbers(opened)
    opened.locator("#upload").set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": file.getvalue()})
    until(opened, "document.querySelectorAll('#pictures button').length === 7")
    settle(opened)
    assert numbers(opened) != before and opened.locator("#error").is_hidden()
    assert opened.locator("#pictures button").first.get_attribute("aria-pressed") == "true"


def test_pinning_a_map_overlays_it_on_the_image(opened: Any) -> None:
    picture = "document.querySelector('.av-picture').toDataURL()"
    before = opened.evaluate(picture)
    opened.locator(".av-map").first.click()
    assert opened.locator(".av-map").first.get_attribute("aria-pressed") == "true"
    assert opened.evaluate(picture) != before
    opened.locator(".av-map").first.click()
    opened.mouse.move(5, 5)
    opened.evaluate("document.activeElement.blur()")
    assert opened.evaluate(picture) == before


def test_the_tab_key_reaches_everything(opened: Any) -> None:
    seen = []
    opened.evaluate("document.activeElement.blur()")
    for _ in range(30):
        opened.keyboard.press("Tab")
        seen.append(opened.evaluate("document.activeElement.id || document.activeElement.className"))
    order = ["upload", "corruption", "severity", "paint", "clear", "av-picture", "av-map"]
    places = [seen.index(name) for name in order]
    assert places == sorted(places)


def test_a_narrow_window_does_not_scroll_sideways(opened: Any) -> None:
    opened.set_viewport_size({"width": 480, "height": 800})
    opened.wait_for_timeout(200)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 480


def test_a_long_name_does_not_scroll_a_narrow_window_sideways(browser_page: Any) -> None:  # noqa: F811
    with on_show(MODELS) as (shown, thread):
        shown.models[1].name = "deit_tiny_patch16_224 | ContextBroadcast(identity_init=True, blocks='upper')"
        with serving(shown, thread) as place:
            page = open_page(browser_page, place, 390)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hostile_names_are_text(browser_page: Any) -> None:  # noqa: F811
    with on_show(MODELS[:1]) as (shown, thread):
        shown.models[0].name, shown.models[0].classes = HOSTILE, [HOSTILE] * 25
        shown.images.name_of = lambda label: HOSTILE
        with serving(shown, thread) as place:
            browser_page.goto(place)
            browser_page.wait_for_selector(".av-map")
            settle(browser_page)
            assert browser_page.title() == "vitlab explore" and not browser_page.locator("img[src=x]").count()
            assert HOSTILE in browser_page.locator(".av-predictions").first.text_content()


def test_a_bad_upload_is_explained(chromium: Any, address: str) -> None:  # noqa: F811
    page = chromium.new_page()  # Chromium itself notes the 422 in the console: not the page that must stay silent
    page.goto(address)
    page.wait_for_selector(".av-map")
    page.locator("#upload").set_input_files({"name": "<b>x</b>.png", "mimeType": "image/png", "buffer": b"no picture"})
    until(page, "!document.querySelector('#error').hidden")
    text = page.locator("#error").text_content()
    assert text.startswith("<b>x</b>.png: the file is not a supported image") and "PNG, JPEG" in text
    page.close()
