"""The pages of the site, out of ``docs/``, the README and the hazards: for each language a folder of Markdown."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tables import with_tables

from gonogo.cli.explain import hazard_markdown
from gonogo.finding import Text
from gonogo.hazards.index import all_hazards
from gonogo.hazards.pack import stages_of

LANGUAGES = {"en": ".", "zh": "zh"}
"""Each language, and its folder in the site."""
TITLES = {
    "description": Text("Will this multi-GPU fine-tune run?", "多卡微调能不能跑起来？"),
    "dark": Text("Dark", "深色"),
    "light": Text("Light", "浅色"),
    "system": Text("As the system says", "跟随系统"),
    "overview": Text("Overview", "概览"),
    "hazards": Text("Hazards", "隐患"),
    "documents": Text("Documents", "文档"),
    "of hazards": Text(
        "{count} known ways in which a distributed fine-tune fails. The search looks into all of these pages: paste "
        "the words of an error. On the command line: `gonogo explain NAME`, `gonogo hazards`.",
        "分布式微调已知的 {count} 种失败方式。搜索会查找所有页面：可粘贴报错中的文字。"
        "命令行：`gonogo explain NAME`、`gonogo hazards`。",
    ),
    "name": Text("hazard", "隐患"),
    "met": Text("met in", "可见于"),
    "what": Text("what it is", "说明"),
}  # fmt: skip
_PART = re.compile(r"^## (.+)$", re.MULTILINE)
_DOCUMENT = re.compile(r"\]\((?:\.\./)?([\w-]+)(?:\.zh-CN)?\.md\)")
"""A part of ``docs/README.md``, which is the menu, and the documents that it lists."""
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```|^~~~.*?^~~~|^(?: {4}|\t)[^\n]*$|`+[^`\n]+`+)", re.MULTILINE | re.DOTALL)


def write_pages(root: Path, target: Path, language: str) -> list[Any]:
    """Write all pages of a language into a folder; the menu."""
    suffix = ".zh-CN.md" if language == "zh" else ".md"
    readme = root / f"README{suffix}"
    sources = {
        "index": readme,
        "documents": root / "docs" / f"README{suffix}",
        "contributing": root / "CONTRIBUTING.md",
        "changelog": root / "CHANGELOG.md",
        "security": root / "SECURITY.md",
    }
    for path in sorted((root / "docs").glob(f"*{suffix}")):
        if not path.name.startswith("README") and (language == "zh" or not path.name.endswith(".zh-CN.md")):
            sources[path.name.removesuffix(suffix)] = path
    hazards = {hazard.name: f"hazards/{hazard.theme}/{hazard.name}.md" for hazard in all_hazards()}
    at = {path.resolve(): f"{name}.md" for name, path in sources.items()}
    at |= {path.resolve(): f"pictures/{path.name}" for path in sorted((root / "docs" / "pictures").iterdir())}
    shutil.copytree(root / "docs" / "pictures", target / "pictures")
    for name, path in sources.items():
        text = with_tables(_without_switch(path), language)
        text = _outside_code(text, lambda part, source=path: _relinked(part, source, at))
        (target / f"{name}.md").write_text(_with_hazards(text, hazards, f"{name}.md"), encoding="utf-8")
    return _menu(sources, _write_hazards(target, hazards, language), language)


def _without_switch(path: Path) -> str:
    """A document without its link to itself in the other language: the site has a switch."""
    plain = path.name.removesuffix(".md").removesuffix(".zh-CN")
    text = re.sub(rf" ?\[[^\]\n]*\]\({plain}(?:\.zh-CN)?\.md\)", "", path.read_text(encoding="utf-8"))
    return f"---\nhide:\n  - navigation\n---\n{text}" if plain == "README" else text


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with all that is not code changed; a link may have code in it."""
    shelved: list[str] = []

    def shelve(match: re.Match[str]) -> str:
        shelved.append(match[0])
        return f"\x00{len(shelved) - 1}\x00"

    return re.sub(r"\x00(\d+)\x00", lambda match: shelved[int(match[1])], change(_CODE.sub(shelve, text)))


def _relinked(text: str, source: Path, at: dict[Path, str]) -> str:
    """Links to files as links within the site; to what is no part of it, as plain text."""

    def changed(match: re.Match[str]) -> str:
        picture, shown, address = match.groups()
        if re.match(r"[a-z]+:|#", address):
            return match[0]
        name, mark, anchor = address.partition("#")
        path = (source.parent / name).resolve()
        if path not in at and path.name.endswith(".md"):  # the other language's
            other = path.name.removesuffix(".md").removesuffix(".zh-CN")
            path = next((one for one in at if one.name in (f"{other}.md", f"{other}.zh-CN.md")), path)
        return f"{picture}[{shown}]({at[path]}{mark}{anchor})" if path in at else shown

    return _LINK.sub(changed, text)


def _with_hazards(text: str, hazards: dict[str, str], page: str) -> str:
    """The names of hazards, where they stand as code in the text, as links to their pages."""
    up = "../" * page.count("/")

    def linked(match: re.Match[str]) -> str:
        name = match[1]
        return f"[`{name}`]({up}{hazards[name]})" if name in hazards and hazards[name] != page else match[0]

    fenced = re.split(r"(^```.*?^```)", text, flags=re.MULTILINE | re.DOTALL)
    fenced[::2] = [re.sub(r"(?<![\[`])`([a-z0-9-]+)`(?![\]`])", linked, part) for part in fenced[::2]]
    return "".join(fenced)


def _write_hazards(target: Path, hazards: dict[str, str], language: str) -> list[Any]:
    """A page a hazard, and one that lists them; their part of the menu, by theme."""
    by_theme: dict[str, list[Any]] = {}
    rows: dict[str, list[str]] = {}
    for hazard in sorted(all_hazards(), key=lambda one: (one.theme, one.name)):
        path = hazards[hazard.name]
        theme = hazard.theme
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(_with_hazards(hazard_markdown(hazard, language), hazards, path), encoding="utf-8")
        title = hazard.title.in_language(language)
        by_theme.setdefault(theme, []).append({hazard.name: path})
        place = path.removeprefix("hazards/")
        what = title.replace("|", "\\|")
        rows.setdefault(theme, []).append(f"| [`{hazard.name}`]({place}) | {', '.join(stages_of(hazard))} | {what} |")
    head = "| " + " | ".join(TITLES[name].in_language(language) for name in ("name", "met", "what")) + " |"
    parts = [f"# {TITLES['hazards'].in_language(language)}"]
    parts.append(TITLES["of hazards"].format(count=len(hazards)).in_language(language))
    for theme, listed in rows.items():
        parts += [f"## {theme}", "\n".join([head, "| --- | --- | --- |", *listed])]
    (target / "hazards" / "index.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return ["hazards/index.md", *({theme: pages} for theme, pages in by_theme.items())]


def _menu(sources: dict[str, Path], hazards: list[Any], language: str) -> list[Any]:
    """The parts of ``docs/README.md`` in its order, with the hazards before the last; each document once."""
    menu: list[Any] = [{TITLES["overview"].in_language(language): ["index.md", "documents.md"]}]
    parts = _PART.split(sources["documents"].read_text(encoding="utf-8"))[1:]
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        menu.append({title: [f"{name.lower()}.md" for name in dict.fromkeys(_DOCUMENT.findall(text))]})
    menu.insert(-1, {TITLES["hazards"].in_language(language): hazards})
    return menu
