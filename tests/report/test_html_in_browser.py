"""The HTML page in a real Chromium: it opens without an error, charts draw, every control works, nothing of hostile
text runs, and axe-core finds nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pages import (
    charted_report,
    compared_report,
    cured_report,
    died_report,
    guarded_report,
    hostile_report,
    parted_report,
    result_report,
    roomy_report,
    solved_plan_report,
    what_if_report,
)
from whole_runs import CALLS, RUNS

from gonogo.finding import Text
from gonogo.finding.call import Invocation
from gonogo.report import render
from gonogo.report.answer.command_placeholders import with_invocation
from gonogo.report.html.frame import in_iframe

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")

pytestmark = [
    pytest.mark.very_slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: install Debian's chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a report's page; at the end nothing was complained of, and nothing asked of any network."""
    heard: list[str] = []
    asked: list[str] = []
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: asked.append(request.url))

    def open_(report: Any, language: str = "en") -> Any:
        path = tmp_path / "report.html"
        path.write_text(render(report, "html", language), encoding="utf-8")
        page.goto(path.as_uri())
        return page

    yield open_
    assert heard == []
    assert all(url.startswith("file:") for url in asked)
    page.close()


@pytest.mark.parametrize(
    "name",
    [*RUNS, "parted", "died", "guarded", "roomy", "compared", "what_if", "cured", "solved_plan", "result", "hostile"],
)
def test_every_report_opens_and_is_accessible(name: str, opened: Any, tmp_path: Path) -> None:
    """In both colours and languages, on a desk and on a phone."""
    from axe_playwright_python.sync_playwright import Axe

    (tmp_path / "logs").mkdir()
    own = {"parted": parted_report, "guarded": guarded_report, "roomy": roomy_report, "what_if": what_if_report}
    own |= {"cured": cured_report, "solved_plan": solved_plan_report, "result": result_report}
    own |= {"compared": lambda: compared_report(tmp_path), "hostile": hostile_report}
    made = {**RUNS, **own, "died": lambda: died_report(tmp_path / "logs")}[name]()
    address = "https://github.com/someone/a-project-with-a-name/blob/main/python/package/model/model_preset.py"
    made = msgspec.structs.replace(made, notes=(*made.notes, Text(address, address)))
    page = opened(made)
    assert page.locator("h1:visible").inner_text().endswith(made.command)
    for language, width in (("en", 1280), ("zh", 390)):
        page.set_viewport_size({"width": width, "height": 844})
        page.locator(f"[data-language={language}]").click()
        for colours in ("light", "dark"):
            page.emulate_media(color_scheme=colours)
            found = Axe().run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], (language, width, colours)
    page.set_viewport_size({"width": 360, "height": 800})  # a chart follows it in its own time
    page.wait_for_function("document.documentElement.scrollWidth <= 360")  # nothing but tables scrolls sideways


def test_what_if_is_answered_from_what_was_rehearsed_and_says_what_it_does_not_know(opened: Any) -> None:
    page = opened(what_if_report())
    part = page.locator(".what-if:visible")
    used, how, asks = (part.locator(name) for name in (".used", ".how", ".asks"))
    assert "Rehearsed with exactly these settings." in how.inner_text()
    assert not part.locator(".sure").is_visible()
    rehearsed = used.inner_text()

    batch = part.locator("[data-set='micro-batch']")
    batch.focus()
    batch.press("ArrowRight")
    batch.press("ArrowRight")  # 3, then 4
    assert batch.get_attribute("aria-valuetext") == "4"
    assert how.inner_text().startswith("Derived from the rehearsal")
    low, high = (float(size) for size in re.findall(r"([\d.]+) GiB", used.inner_text())[:2])
    assert float(re.findall(r"([\d.]+) GiB", rehearsed)[0]) < high
    assert low < high
    assert asks.inner_text() == (
        "gonogo rehearse --gpus 8xH100-80G --host-memory 2T --set micro-batch=4 -- bash 'launch $1.sh'"
    )
    page.locator("[data-language='zh']").click()
    assert page.locator(".what-if:visible [data-set='micro-batch']").get_attribute("aria-valuetext") == "4"
    page.locator("[data-language='en']").click()
    batch.press("ArrowLeft")
    batch.press("ArrowLeft")
    assert used.inner_text() == rehearsed

    part.locator("[data-set='stage']").select_option("3")
    assert "45.0 GiB" in used.inner_text(), "44 GiB that --also saw, and the context"
    part.locator("[data-set='stage']").select_option("1")
    assert how.inner_text().startswith("Not rehearsed")
    assert used.inner_text() == ""
    assert "--set stage=1" in asks.inner_text()
    part.locator("[data-set='stage']").select_option("2")
    part.locator("[data-set='gpu']").select_option("V100-16G")
    assert part.locator(".judged").inner_text() == "does not run: V100-16G has no bfloat16"
    accumulation = part.locator("[data-set='accumulation']")
    accumulation.press("Home")
    assert how.inner_text().startswith("Not derived")


def test_what_if_says_what_a_step_would_take_between_bounds(opened: Any) -> None:
    page = opened(what_if_report())
    part = page.locator(".what-if:visible")
    besides = part.locator(".besides")
    assert "time per step: about 1.00 s (estimate), 8,192 tokens/s per GPU" in besides.inner_text()

    def seconds(**settings: object) -> list[float] | None:
        asked = {name.replace("_", "-"): value for name, value in settings.items()}
        return page.evaluate("set => timeOf({...data.whatIf.base, gpu: data.whatIf.own[0], ...set})", asked)  # type: ignore[no-any-return]

    assert seconds(micro_batch=4) == pytest.approx([1.8, 1.9])
    assert seconds(micro_batch=1) == pytest.approx([0.6, 0.7])
    assert seconds(accumulation=4) == pytest.approx([1.7, 2.0]), "collectives once or twice, the optimizer once"
    assert seconds(micro_batch=16) is None, "more than was reckoned"
    assert seconds(seq_len=4096) is None
    assert seconds(gpu="V100-16G") is None
    assert seconds(stage=3) == [3.0, 3.0], "that --also saw"
    batch = part.locator("[data-set='micro-batch']")
    batch.focus()
    batch.press("ArrowRight")
    batch.press("ArrowRight")
    assert "about 1.80 – 1.90 s (estimate), 8,623 – 9,102 tokens/s" in besides.inner_text()


def test_samples_of_several_lengths_widen_the_band(opened: Any) -> None:
    bands = []
    for shortest in (2048, 1024):
        page = opened(what_if_report(shortest))
        batch = page.locator(".what-if:visible [data-set='micro-batch']")
        batch.focus()
        batch.press("ArrowRight")
        assert batch.get_attribute("aria-valuetext") == "3"
        used = page.locator(".what-if:visible .used").inner_text()
        bands.append(tuple(float(size) for size in re.findall(r"([\d.]+) GiB", used)[:2]))
    (low, high), (low_of_several, high_of_several) = bands
    assert low_of_several == low
    assert high_of_several > high


def test_charts_follow_pointer_keyboard_and_choice(opened: Any) -> None:
    page = opened(charted_report())
    over = page.locator(".over-time:visible .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    peak = box["x"] + box["width"] * 61_803 / 100_000
    said = page.locator(".at:visible")
    texts = []
    for offset in (-6, -4, -2, 0, 2, 4, 6):
        page.mouse.move(peak + offset, box["y"] + 60)
        page.wait_for_timeout(60)
        texts.append(said.inner_text())
    assert (
        "61.0 GiB: optimizer step (step 1), caused by activations, model.layers.7.mlp, aten.mm.default, "
        "at model.py:7 forward"
    ) in texts

    page.mouse.move(0, 0)
    rest = (
        "▼ peak 61.0 GiB: optimizer step (step 1), caused by activations, model.layers.7.mlp, aten.mm.default, "
        "at model.py:7 forward"
    )
    assert said.inner_text() == rest, "without a pointer it tells of the peak"
    assert "parameters20.0 GiB" in page.locator(".u-legend:visible").inner_text()

    scale = "document.querySelector('.tongue:not([hidden]) .over-time').plot.scales.x"
    whole = page.evaluate(f"({scale}).max - ({scale}).min")
    page.mouse.move(box["x"] + 100, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert page.evaluate(f"({scale}).max - ({scale}).min") < whole / 2
    page.locator(".over-time:visible").focus()
    page.keyboard.press("0")
    assert page.evaluate(f"({scale}).max - ({scale}).min") == pytest.approx(whole)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    assert page.evaluate(f"({scale}).max - ({scale}).min") < whole
    page.locator("[data-zoom=all]:visible").click()
    assert page.evaluate(f"({scale}).max - ({scale}).min") == pytest.approx(whole)
    page.locator("[data-zoom=in]:visible").click()
    assert page.evaluate(f"({scale}).max - ({scale}).min") == pytest.approx(whole / 2, rel=0.01)

    page.locator(".chooser:visible select").select_option("1")
    assert page.locator(".over-time:visible .u-wrap canvas").count() == 1
    canvas = "document.querySelector('.tongue:not([hidden]) canvas')"
    pixels = f"[...{canvas}.getContext('2d').getImageData(300, 100, 400, 400).data]"
    assert len(set(page.evaluate(pixels))) > 10, "something is drawn"

    page.locator("[data-language=zh]").click()
    assert page.locator("html").get_attribute("lang") == "zh"
    assert page.locator(".chooser:visible select").input_value() == "1"
    assert "显存" in page.locator("main").inner_text()


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_on_paper_the_verdict_has_its_colour_and_the_chart_dark_ink(colours: str, opened: Any, tmp_path: Path) -> None:
    page = opened(charted_report())
    page.emulate_media(color_scheme=colours, media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('.verdict')).printColorAdjust") == "exact"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    inks = "[...document.querySelectorAll('.over-time')].map((one) => one.plot?.axes[0].stroke()).filter(Boolean)"
    page.evaluate(f"addEventListener('beforeprint', () => {{ document.title = {inks}; }})")
    page.pdf(path=tmp_path / "report.pdf")
    assert page.title() == "#1f2328"
    assert page.locator(".hint:visible").count() == 0


def test_two_rehearsals_are_compared_moment_by_moment(opened: Any, tmp_path: Path) -> None:
    page = opened(compared_report(tmp_path))
    assert page.locator("h1:visible .verdict").inner_text() == "REGRESSED"
    compared = page.locator('.over-time[data-kind="compared"]:visible')
    held = page.locator('.over-time[data-kind="held"]:visible')
    assert (compared.count(), held.count()) == (1, 1)
    said = page.locator(".at:visible").first
    # The peak of 61 GiB has 41 GiB of activations, of which there are half as many again.
    assert said.inner_text() == "peak optimizer step (step 1): before 61.0 GiB, after 81.5 GiB, activations +20.5 GiB"
    compared.focus()
    page.keyboard.press("ArrowRight")
    assert said.inner_text().startswith("load: before 21.0 GiB, after 21.5 GiB")
    box = compared.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
    page.wait_for_timeout(100)
    assert re.match(r"forward \(step 0\): before [\d.]+ GiB, after [\d.]+ GiB, activations \+", said.inner_text())
    page.locator("[data-language=zh]").click()
    assert "两次排练" in page.locator("main").inner_text()
    page.locator(".chooser:visible select").first.select_option(label="rank 1, cpu")
    page.locator("[data-language=en]").click()
    chosen = [select.evaluate("one => one.selectedOptions[0].text") for select in page.locator("select:visible").all()]
    assert chosen == ["rank 1, cpu", "rank 0, cuda:0"], "each chart keeps its own choice"


def test_a_finding_leads_to_its_moment_and_lanes_follow_the_pointer(opened: Any) -> None:
    from playwright.sync_api import expect

    page = opened(charted_report())
    said = page.locator(".at:visible")
    page.locator(".chooser:visible select").select_option(label="rank 1, cpu")
    page.locator(".moment:visible").click()
    page.wait_for_timeout(300)
    assert page.locator(".chooser:visible select").input_value() == "0"
    assert re.search(r": save, caused by activations", said.inner_text()), "where it ended"
    lanes = page.locator(".module-lanes:visible")
    box = lanes.bounding_box()
    assert box["height"] == 36, "layers and what is in them: what all have in common has no lane"
    canvas = "document.querySelector('.tongue:not([hidden]) .module-lanes canvas')"
    pixels = f"[...{canvas}.getContext('2d').getImageData(0, 0, 400, 30).data]"
    assert len(set(page.evaluate(pixels))) > 10, "something is drawn"
    lanes.hover(position={"x": box["width"] * 0.35, "y": 8})  # waits until the page has scrolled to its end
    expect(said).to_contain_text("forward (step 0)")


def test_modules_open_and_close_and_tables_sort(opened: Any) -> None:
    page = opened(charted_report())
    parts = page.locator(".icicle:visible button")
    before = parts.count()
    assert before >= 4
    told = page.locator(".icicle:visible + .part")
    assert told.inner_text().startswith("all: ")
    parts.nth(before - 1).hover()
    assert re.match(
        r"model\.layers\.\d\.mlp \(3\): [\d.]+ GiB = parameters [\d.]+ GiB \+ activations", told.inner_text()
    )
    parts.nth(before - 1).focus()
    page.keyboard.press("Enter")
    assert parts.count() < before
    assert page.evaluate("document.activeElement.closest('.icicle') !== null"), "the keyboard stays where it is"
    parts.first.click()
    assert parts.count() == before
    page.locator(".chooser:visible select").select_option(label="rank 1, cpu")
    assert parts.all_inner_texts() == ["all 7.0 GiB", "model 7.0 GiB", "embed_tokens 7.0 GiB"]
    page.locator(".chooser:visible select").select_option("0")
    assert parts.count() == before
    head = page.locator("table:visible th button").first
    head.click()
    assert head.locator("xpath=..").get_attribute("aria-sort") == "descending"


def test_choosing_a_strategy_shows_its_config_and_copies_its_command(opened: Any) -> None:
    page = opened(RUNS["plan"]())
    points = page.locator(".scatter:visible a")
    assert points.count() > 3
    points.nth(1).focus()
    page.keyboard.press("Enter")
    chosen = page.locator("details#strategy-2-en")
    assert chosen.get_attribute("open") is not None
    assert '"zero_optimization"' in chosen.locator("pre:visible").first.inner_text()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chosen.locator(".copy").nth(1).click()
    assert "deepspeed" in page.evaluate("navigator.clipboard.readText()")


def test_a_parted_report_shows_lanes_and_both_stacks(opened: Any) -> None:
    page = opened(parted_report())
    assert page.locator(".lanes:visible td.apart").count() >= 2
    assert page.locator(".stacks:visible pre").count() >= 1
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("[data-language=zh]").click()
    for cell in page.locator(".lanes:visible .apart").all():
        box = cell.bounding_box()
        assert box["x"] + box["width"] <= 390, "where they part is in sight"
    assert "各 rank 并排" in page.locator("main").inner_text()


def test_a_page_works_in_a_notebooks_frame(opened: Any, tmp_path: Path) -> None:
    page = opened(charted_report())
    path = tmp_path / "notebook.html"
    path.write_text(in_iframe(render(charted_report(), "html", "zh")), encoding="utf-8")
    page.goto(path.as_uri())
    inside = page.frame_locator("iframe")
    over = inside.locator(".over-time:visible .u-over")
    over.hover()
    inside.locator(".at:visible").filter(has_text="GiB").wait_for()
    inside.locator("[data-language=en]").click()
    assert "Memory over time" in inside.locator("main").inner_text()
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None, "it is out of reach"


def test_hostile_text_is_shown_and_does_not_run(opened: Any) -> None:
    from playwright.sync_api import expect

    page = opened(hostile_report())
    assert "<script>alert(1)</script>" in page.locator("article:visible").first.inner_text()
    assert page.locator("img").count() == 0
    page.locator(".copy:visible").first.click()
    expect(page.locator(".copy:visible").first).to_have_text("✓")
    box = page.locator(".over-time:visible .u-over").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.wait_for_timeout(100)
    assert "onerror" in page.locator(".at:visible").inner_text()


def test_steps_of_a_guarded_run_are_drawn_and_told(opened: Any) -> None:
    page = opened(guarded_report())
    over = page.locator(".over-time:visible .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] * (1205 - 5) / (2000 - 5), box["y"] + 60)
    page.wait_for_timeout(100)
    said = page.locator(".at:visible").inner_text()
    assert said.startswith("step 1201-1205; slowest: 9.0 s (rank 2); median over ranks: 600 ms; rank 2 stalled for")
    page.locator(".chooser:visible select").select_option("gpu_bytes")
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 80)
    page.wait_for_timeout(100)
    assert "max: 47.0 GiB (rank 3); median over ranks: 46.0 GiB" in page.locator(".at:visible").inner_text()
    page.locator(".over-time:visible").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert "step 1996-2000" in page.locator(".at:visible").inner_text()
    page.locator("[data-language=zh]").click()
    assert page.locator(".chooser:visible select").input_value() == "gpu_bytes"
    assert "各 rank 的每一步" in page.locator("main").inner_text()


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", RUNS)
def test_the_answer_is_seen_on_a_phone_without_scrolling(name: str, language: str, opened: Any) -> None:
    """Verdict, reason, figures and the next command end within the first 600 pixels."""
    page = opened(with_invocation(RUNS[name](), CALLS.get(name, Invocation())), language)
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    for part in ("h1", ".reason", ".next"):
        box = page.locator(f"{part}:visible").first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 600, part
