"""The site of ``make docs``: every document and hazard is a page of it in both languages, and links lead to pages."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gonogo.hazards.index import all_hazards

ROOT = Path(__file__).parent.parent
SITE = ROOT / "scripts" / "docs_site"


@pytest.fixture(scope="module")
def pages() -> Any:
    spec = importlib.util.spec_from_file_location("docs_site_pages", SITE / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(SITE))  # it imports what lies beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SITE))
    return module


def in_menu(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    entries = entry if isinstance(entry, list) else entry.values()
    return [path for one in entries for path in in_menu(one)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_document_and_hazard_is_a_page_in_the_menu(pages: Any, tmp_path: Path, language: str) -> None:
    menu = in_menu(pages.write_pages(ROOT, tmp_path, language))
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")}
    assert set(menu) == written
    assert len(menu) == len(written)
    documents = {path.name for path in (ROOT / "docs").glob("*.md") if ".zh-CN" not in path.name}
    assert documents - {"README.md"} | {"documents.md"} <= written
    for name in written:
        assert "<!-- table:" not in (tmp_path / name).read_text(encoding="utf-8"), name
    names = {path.rpartition("/")[2] for path in written if path.startswith("hazards/")}
    assert names - {"index.md"} == {f"{hazard.name}.md" for hazard in all_hazards()}
    for name in written:
        text = re.sub(r"^```.*?^```", "", (tmp_path / name).read_text(encoding="utf-8"), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#\s]+\.(?:md|png))", text):
            if not target.startswith("http"):
                assert (tmp_path / name).parent.joinpath(target).exists(), f"{name}: {target}"
        assert "zh-CN.md)" not in text


@pytest.mark.very_slow
@pytest.mark.skipif(
    importlib.util.find_spec("material") is None or importlib.util.find_spec("jieba") is None,
    reason="mkdocs-material and jieba are not here: pip install -c constraints.txt -e '.[docs]'",
)
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SITE), "--output", str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    for site in (tmp_path, tmp_path / "zh"):
        hazards = list((site / "hazards").rglob("*.html"))
        assert len(hazards) == len(list(all_hazards())) + 1
        found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
        assert {"check.html", "ui.html"} <= {entry["location"] for entry in found["docs"]}
        _search(site / "index.html", "invalid gradient")
    zh = (tmp_path / "zh" / "hazards" / "index.html").read_text(encoding="utf-8")
    assert 'href="../../hazards/index.html"' in zh, "the switch leads to the same page"


def _search(page_file: Path, words: str) -> None:
    """In a real Chromium, where there is one: opened as a file, without a server, the site finds its pages."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        hazards = page_file.parent / "hazards"
        for shown in (hazards / "index.html", next(hazards.glob("*/*.html")), page_file):
            page.goto(shown.as_uri())
            for width, colours in ((1280, "light"), (390, "dark")):
                page.set_viewport_size({"width": width, "height": 844})
                page.emulate_media(color_scheme=colours)
                found = Axe().run(page).response["violations"]
                wrong = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
                assert wrong == [], (shown, width, colours)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.reload()
        page.locator("iframe").wait_for(state="attached")  # where its index is
        page.locator(".md-search__input").click()
        page.wait_for_timeout(3000)
        page.keyboard.insert_text(words)
        page.keyboard.press("End")
        page.locator(".md-search-result__item").first.wait_for(timeout=60_000)
        browser.close()
