"""``make docs``: the documents and the hazards' pages as a site in both languages, which needs no network.

    python scripts/docs_site [--output site]

Links are checked, those between pages with their anchors; a page that fetches anything from elsewhere is an error.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from pages import LANGUAGES, TITLES, write_pages

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "site", help="where the site goes; emptied first")
    output = parser.parse_args().output.resolve()
    try:
        import jieba
        import material
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is not here: pip install -c constraints.txt -e '.[docs]'")
    jieba.setLogLevel(logging.WARNING)
    del material
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    shutil.rmtree(output, ignore_errors=True)
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory(prefix="gonogo-docs-") as folder:
            nav = write_pages(ROOT, Path(folder), language)
            build_one(Path(folder), output / LANGUAGES[language], language, nav)
        make_searchable(output / LANGUAGES[language])
    remote = [found for page in sorted(output.rglob("*.html")) for found in fetched_from_elsewhere(page)]
    if remote:
        sys.exit("\n".join(remote))
    pages = len(list(output.rglob("*.html")))
    print(f"{pages} pages: {output / 'index.html'}")


def build_one(source: Path, output: Path, language: str, nav: list[Any]) -> None:
    """One language. A warning (a link that leads nowhere, a page that is in no menu) ends it."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort
    from pymdownx.slugs import slugify

    for name in ("site.css", "iframe-worker.js", "iframe-worker.LICENSE"):
        shutil.copy(Path(__file__).parent / name, source / name)
    settings = source.parent / f"{source.name}.yml"
    settings.write_text("site_name: gonogo\n", encoding="utf-8")
    config = load_config(
        config_file=str(settings),
        docs_dir=str(source),
        site_dir=str(output),
        site_description=TITLES["description"].in_language(language),
        nav=nav,
        strict=True,
        use_directory_urls=False,
        theme={
            "name": "material",
            "language": language,
            "font": False,
            "icon": {"logo": "material/traffic-light"},
            "palette": _palette(language),
            "features": ["navigation.tabs", "navigation.prune", "navigation.top", "navigation.indexes", "toc.follow",
                         "search.highlight", "search.suggest", "content.code.copy"],
        },
        plugins=[{"search": {"lang": [language], "separator": r"[\s\u200b\-_/.,:;`()\[\]=，。；：（）、]+"}}],
        markdown_extensions=[
            "tables",
            "sane_lists",
            "pymdownx.superfences",
            "pymdownx.highlight",
            {"toc": {"permalink": True, "slugify": slugify(case="lower")}},
        ],
        extra_css=["site.css"],
        extra={
            "generator": False,
            "alternate": [
                {"name": "English", "lang": "en", "link": "#language-en"},
                {"name": "中文", "lang": "zh", "link": "#language-zh"},
            ],
        },
        hooks=[str(Path(__file__).with_name("same_page.py"))],
        validation={"nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
                    "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn",
                              "unrecognized_links": "warn"}},
    )  # fmt: skip
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    except Abort as error:
        sys.exit(f"{language}: {error}")
    finally:
        config.plugins.on_shutdown()
        settings.unlink()


def make_searchable(site: Path) -> None:
    """Have the index as a script too: a page that is opened as a file can load no other kind of file."""
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    (site / "search" / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


def _palette(language: str) -> list[dict[str, Any]]:
    """Light and dark as the system says, with a switch."""
    schemes = (
        ("", "default", "white", "brightness-auto", "light"),
        (": light", "default", "white", "weather-sunny", "dark"),
        (": dark", "slate", "black", "weather-night", "system"),
    )
    return [
        {"media": f"(prefers-color-scheme{media})", "scheme": scheme, "primary": primary, "accent": "blue",
         "toggle": {"icon": f"material/{icon}", "name": TITLES[following].in_language(language)}}
        for media, scheme, primary, icon, following in schemes
    ]  # fmt: skip


def fetched_from_elsewhere(page: Path) -> list[str]:
    """What a page would load of another host: scripts, styles, fonts, pictures, frames."""
    finder = _Fetched()
    finder.feed(page.read_text(encoding="utf-8"))
    return [f"{page}: loads {address}" for address in finder.found]


class _Fetched(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an address that is loaded, and not only linked to."""
        loads = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}.get(tag)
        given = dict(attrs)
        address = given.get(loads or "") or ""
        is_canonical = tag == "link" and given.get("rel") in ("canonical", "alternate", "next", "prev")
        if loads and not is_canonical and address.startswith(("http:", "https:", "//")):
            self.found.append(address)


if __name__ == "__main__":
    main()
