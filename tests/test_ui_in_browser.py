"""``gonogo ui`` in a real Chromium: every control works, by keyboard and on a phone too, and nothing hostile runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: install Debian's chromium"),
]

HOSTILE = "<img src=x onerror=alert(1)>"
LOG = (
    f"[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: </script><script>alert(2)</script>{HOSTILE}\n"
)
LONG = "x" * 10_000_000 + "\x1b[2J\u202e\n"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server on a folder with hostile names."""
    folder = tmp_path / "project"
    (folder / HOSTILE).mkdir(parents=True)
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 9}}')
    (folder / "launch.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds.json\n")
    (folder / "train.py").write_text("import time\ntime.sleep(600)\n")
    (folder / f"{HOSTILE}.sh").write_text("true\n")
    (folder / f"{HOSTILE}\x1b[31m\n.log").write_text(LOG)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "GONOGO_CACHE_SIZE": "100M"}
    server = subprocess.Popen(
        [sys.executable, "-m", "gonogo", "ui", str(folder), "--no-open", "--lang", "en"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert server.stderr is not None
    said = re.search(r"http://127\.0\.0\.1:\d+/\S+/", server.stderr.readline())
    assert said is not None
    yield said[0]
    server.terminate()
    server.communicate(timeout=60)


@pytest.fixture
def page(address: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    heard: list[str] = []
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1300, "height": 900})
        opened.on("console", lambda message: None if "Failed to load" in message.text else heard.append(message.text))
        opened.on("pageerror", lambda error: heard.append(str(error)))
        opened.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(address)
        opened.locator(".files button").first.wait_for()
        yield opened
        assert heard == []
        begin = address.split("/")[2]
        assert all(url.startswith(f"http://{begin}/") for url in asked)
        browser.close()


def serious(page: Any) -> list[Any]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def verdict(page: Any) -> str:
    """Of the report that is shown, once it is."""
    shown = page.frame_locator("iframe").locator("h1:visible .verdict")
    shown.wait_for(timeout=200_000)
    return str(shown.inner_text())


def test_a_script_is_chosen_and_checked_by_keyboard_alone(page: Any) -> None:
    script = page.locator(".files .launch button").filter(has_text="launch.sh")
    script.focus()
    page.keyboard.press("Enter")
    assert page.locator("#command").input_value() == "bash launch.sh"
    page.locator("button[value=check]").focus()
    page.keyboard.press("Enter")
    assert verdict(page) == "NO-GO"
    frame = page.frame_locator("iframe")
    assert frame.locator(".switches").is_hidden(), "what is around it says the language"
    page.locator("[data-language=zh]").click()
    frame.get_by_text("原因").first.wait_for()
    assert page.locator("#tab-before").inner_text() == "运行之前"
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None, "it is out of reach"
    own = page.locator(".frame-bar a")
    with page.context.expect_page() as tab:
        own.click()
    tab.value.locator("h1:visible").wait_for()
    assert "gonogo check" in tab.value.locator("h1:visible").inner_text()
    page.reload()
    page.locator(".reports button").first.click()
    assert verdict(page) == "NO-GO"


def test_it_is_accessible_in_both_colours_and_on_a_phone(page: Any) -> None:
    """The start in both tabs, and a result beside the list of what was done before."""

    def check() -> None:
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 844})
            for colours in ("light", "dark"):
                page.emulate_media(color_scheme=colours)
                assert serious(page) == [], (width, colours)

    for tab in ("after", "before"):
        page.locator(f"#tab-{tab}").click()
        check()
    page.locator("button[value=check]").click()
    verdict(page)
    assert page.locator(".reports button").count() > 0
    check()
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#tab-before").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tab-after").get_attribute("aria-selected") == "true"
    assert page.locator("#log").is_visible()


def test_a_rehearsal_with_other_settings_is_asked_for(page: Any) -> None:
    page.locator("#command").fill("bash launch.sh")
    page.get_by_text("Rehearse with other settings").click()
    page.get_by_label("samples per micro-batch").fill("4")
    page.get_by_label("optimizer states on").select_option("cpu")
    sent: list[Any] = []
    for beside in (False, True):
        page.locator("#beside").set_checked(beside)
        with page.expect_request("**/api/jobs") as asked:
            page.locator("button[value=rehearse]").click()
        sent.append(asked.value.post_data_json)
        page.locator("#shown button").filter(has_text="Cancel").or_(page.locator("#shown .chip")).first.click()
    settings = {"micro-batch": "4", "offload-optimizer": "cpu"}
    assert (sent[0]["settings"], sent[1]["also"]) == (settings, [settings])
    assert "--also micro-batch=4,offload-optimizer=cpu" in page.locator(".reports .what").first.inner_text()
    assert serious(page) == []


def test_a_rehearsal_says_what_it_does_and_is_cancelled(page: Any) -> None:
    page.locator("#command").fill("python train.py")
    page.locator("button[value=rehearse]").click()
    page.locator(".doing").filter(has_not_text="starting").wait_for(timeout=100_000)
    assert page.locator(".reports .chip.running").count() == 1
    page.locator(".live .ranks li").wait_for(timeout=100_000)
    assert "rank 0" in page.locator(".live .ranks").inner_text()
    assert serious(page) == []
    page.locator("#shown button").filter(has_text="Cancel").click()
    page.locator("#shown .chip").filter(has_text="cancelled").wait_for(timeout=60_000)


def test_hostile_names_and_logs_are_shown_as_text(page: Any) -> None:
    names = page.locator(".files .name").all_inner_texts()
    assert f"{HOSTILE}/" in names
    page.locator(".files .folder button").filter(has_text=HOSTILE).click()
    assert HOSTILE in page.locator("#crumbs").inner_text()
    page.locator("#crumbs button").first.click()
    page.locator(".files .log button").click()
    assert "onerror" in page.locator("#chosen").inner_text()
    page.locator("#log").evaluate("(box, text) => { box.value = text }", LONG + LOG)
    page.locator("button[value=diagnose]").click()
    verdict(page)
    assert "<script>alert(2)</script>" in page.frame_locator("iframe").locator("main").inner_text()
    assert page.locator("img").count() == 0
    page.locator("#tab-before").click()
    page.locator("#command").fill(f"python '{HOSTILE}'")
    page.locator("button[value=rehearse]").click()
    page.locator("#shown .chip").filter(has_text="could not").or_(page.locator("iframe")).wait_for(timeout=200_000)
    assert page.locator("img").count() == 0


def test_a_refusal_and_an_ended_server_are_said(page: Any) -> None:
    page.locator("#command").fill("bash ../x.sh '")
    page.locator("button[value=check]").click()
    page.locator("#refused").filter(has_text="an unclosed quote").wait_for()
    page.route("**/api/**", lambda route: route.abort())
    page.locator("#command").fill("bash launch.sh")
    page.locator("button[value=check]").click()
    page.locator("#refused").filter(has_text="gonogo ui has stopped").wait_for()
