"""Reads a hazard's page: ``<theme>/<name>.md``, one Markdown file with its declarations and its text.

::

    +++
    title.en = "…"                  TOML: the title, and what a log, a config or versions show it by
    title.zh = "…"
    +++

    # English

    A line that says what it is.

    ## What happens
    …
    # 中文
    …

Which keys the head may have depends on the kind of hazard: each class names its struct (``Hazard.declares``). What is
the same in all languages is written once, in the English part, and is copied into the Chinese one here: the example,
and the addresses of the sources (``- ADDRESS: what it shows``), for which the Chinese part has the descriptions in
the same order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import msgspec

from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, UserError, translated
from gonogo.finding.text import join_texts

Head = TypeVar("Head", bound=msgspec.Struct)

HEADINGS = (
    translated("What happens"),
    translated("Why"),
    translated("Example"),
    translated("Cure"),
    translated("When it is safe"),
    translated("Sources"),
)
"""The sections of a page, in order; each heading is a line of its own, ``## heading``."""
ENGLISH, CHINESE = "# English", "# 中文"
"""The lines with which the two parts of a page begin."""

_EXAMPLE, _CURE = HEADINGS[2], HEADINGS[3]
_SECTION_PATTERN = lazy_compile(r"^## (.+)$", re.MULTILINE)
_EXAMPLE_PATTERN = re.compile(rf"^## {_EXAMPLE.en}\n(.*?)\n+^## ", re.MULTILINE | re.DOTALL)
_SOURCE_LINK_PATTERN = re.compile(r"^- (https://\S+?):(?=\s)", re.MULTILINE)
_ITEM_PATTERN = re.compile(r"^- ", re.MULTILINE)
_CHINESE_LINE_BREAK_PATTERN = lazy_compile(r"(?<=[^\x00-\x7f])\s*\n\s*(?=[^\x00-\x7f])")
_PAGE_PATTERN = lazy_compile(
    rf"\+\+\+\n(?P<head>.*?)^\+\+\+\n\s*^{ENGLISH}\n(?P<english>.*?)^{CHINESE}\n(?P<chinese>.*)\Z",
    re.MULTILINE | re.DOTALL,
)
_AT_PATTERN = lazy_compile(r" - at `\$\.?(.*)`$")
_SHARED_REFERENCE_PATTERN = lazy_compile(r"@(\w+)")


class HazardPage(msgspec.Struct, frozen=True, dict=True):
    """A parsed page of a hazard. ``head`` holds plain values, with references to ``[shared]`` resolved."""

    name: str
    theme: str
    head: dict[str, Any]
    english: str
    chinese: str
    has_code: bool = False
    """Whether ``<name>.py`` beside the page exists."""

    @property
    def module(self) -> str:
        """The dotted name of the module with the hazard's code, if it has any."""
        return f"gonogo.hazards.{self.theme}.{self.name.replace('-', '_')}"

    @property
    def file(self) -> str:
        """The page's path, as error messages name it."""
        return f"hazards/{self.theme}/{self.name.replace('-', '_')}.md"

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The URLs under the page's last heading."""
        return tuple(_SOURCE_LINK_PATTERN.findall(self.english.rpartition(f"## {HEADINGS[-1].en}\n")[2]))

    def text(self, language: str) -> str:
        """The page as Markdown in ``"en"`` or ``"zh"``: the introductory line, then the sections."""
        if language != "zh":
            return self.english
        body, heading, shown = self.chinese.rpartition(f"## {HEADINGS[-1].zh}\n")
        example = _EXAMPLE_PATTERN.search(self.english)
        if example is not None:
            body = body.replace(f"## {_CURE.zh}\n", f"## {_EXAMPLE.zh}\n{example[1]}\n\n## {_CURE.zh}\n", 1)
        addresses = iter(self.sources)
        return body + heading + _ITEM_PATTERN.sub(lambda _: f"- {next(addresses)}：", shown).rstrip()

    def section(self, heading: str, language: str) -> str:
        """A section, by its heading in English; empty if the page has none."""
        headings = next(one for one in HEADINGS if one.en == heading)
        _, _, rest = self.text(language).partition(f"## {headings.in_language(language)}\n")
        return rest.partition("\n## ")[0].strip()

    @property
    def why(self) -> Text:
        """The page's first line and its section ``Why`` as one paragraph."""
        first = Text(*(self.text(language).partition("\n")[0] for language in ("en", "zh")))
        why = Text(*(_as_one_line(self.section("Why", language)) for language in ("en", "zh")))
        return join_texts((first, why), " ", "")

    @property
    def cure(self) -> Text:
        """The section ``Cure`` as one paragraph."""
        return Text(*(_as_one_line(self.section(_CURE.en, language)) for language in ("en", "zh")))

    @property
    def cures(self) -> tuple[Text, ...]:
        """The items of the section ``Cure`` (all of it if it is no list), without backticks and final full stops."""
        both = (map(_strip_markup, _list_items(self.section(_CURE.en, language))) for language in ("en", "zh"))
        return tuple(Text(*pair) for pair in zip(*both, strict=True))

    def parse_head(self, kind: type[Head]) -> Head:
        """The head as one of the structs of :attr:`Hazard.declares`. Raises UserError if it doesn't match."""
        return self._convert_head(kind, _decode_pattern)

    def check_head(self, kind: type[msgspec.Struct]) -> None:
        """Raise UserError if a pattern in the head is invalid, or a text is missing in a language."""
        self._convert_head(kind, _decode_checked_pattern)
        for key in getattr(kind, "from_sections", ()):
            taken = (self.why,) if key == "cause" else self.cures
            if key not in self.head and any("{" in text.en + text.zh or "}" in text.en + text.zh for text in taken):
                self.refuse(
                    "## Why" if key == "cause" else "## Cure",
                    translated(
                        "this section has a brace, which would stand for a value in a finding: define {key} in the "
                        "head, or use no braces"
                    ).format(key=key),
                )
        for key, text in _texts_in(self.head):
            for language in ("en", "zh"):
                if not text[language].strip():
                    self.refuse(f"{key}.{language}", translated("this text is empty: write it"))

    def _convert_head(self, kind: type[Head], value_of: Callable[[type, Any], Any]) -> Head:
        try:
            return msgspec.convert(self.head, kind, dec_hook=value_of)
        except msgspec.ValidationError as error:
            message = str(error)
        self._refuse(message, kind)

    def refuse(self, key: str, reason: Text) -> NoReturn:
        """Raise a UserError that names the page's file, the key and what is wrong."""
        raise UserError(
            Text("{file}: {key}: {why}", "{file}：{key}：{why}").format(file=self.file, key=key or "+++", why=reason)
        )

    def check_both_languages(self) -> None:
        """Raise UserError if a part lacks a section, or if the lists of the two parts differ in length."""
        for language, start in (("en", ENGLISH), ("zh", CHINESE)):
            part = self.english if language == "en" else self.chinese
            wanted = [one.in_language(language) for one in HEADINGS if language == "en" or one != _EXAMPLE]
            if not part.partition("\n")[0].strip() or part.startswith("#"):
                self.refuse(start, translated("this part must begin with a line that says what the hazard is"))
            if _SECTION_PATTERN.findall(part) != wanted:
                self.refuse(
                    start,
                    translated("the sections of this part must be {wanted}, in this order").format(
                        wanted=", ".join(f"## {one}" for one in wanted)
                    ),
                )
        listed = len(_ITEM_PATTERN.findall(self.chinese.rpartition(f"## {HEADINGS[-1].zh}\n")[2]))
        if not self.sources or listed != len(self.sources):
            self.refuse(
                f"## {HEADINGS[-1].en}",
                translated(
                    "the English part lists {count} sources (`- https://…: what it shows`), and the Chinese part "
                    "{listed} (`- …`): list at least one, and the same number in both"
                ).format(count=len(self.sources), listed=listed),
            )
        cures = [len(_list_items(self.section(_CURE.en, language))) for language in ("en", "zh")]
        if cures[0] != cures[1]:
            self.refuse(
                f"## {_CURE.en}",
                translated("{en} items in English, {zh} in Chinese: the numbers must match").format(
                    en=cures[0], zh=cures[1]
                ),
            )

    def _refuse(self, message: str, kind: type[msgspec.Struct]) -> NoReturn:
        """Translate msgspec's error about the head into one about the page, and raise it."""
        at = _AT_PATTERN.search(message)
        where, text = (at[1], message[: at.start()]) if at else ("", message)
        named = re.search(r"`(\w+)`", text)
        if named and text.startswith("Object missing"):
            self.refuse(
                ".".join(filter(None, (where, named[1]))), translated("this key is missing: add it to the page's head")
            )
        if named and text.startswith("Object contains unknown"):
            known = _keys_at(kind, where)
            self.refuse(
                ".".join(filter(None, (where, named[1]))),
                translated("a page has no such key here; the known keys are {known}").format(known=", ".join(known)),
            )
        self.refuse(where, translated("{said}: correct the value").format(said=text))


def parse_toml(text: str) -> dict[str, Any]:
    """TOML as plain values. Raises ValueError if it is invalid."""
    import sys  # loaded on demand: pages are rarely read from their files

    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    values: dict[str, Any] = tomllib.loads(text)
    return values


def read_page(
    text: str, name: str, theme: str, *, has_code: bool = False, shared: dict[str, Any] | None = None
) -> HazardPage:
    """Parse a page. Raises UserError if its form is invalid.

    ``shared`` holds values shared by the pages of the theme; a page's own ``[shared]`` takes precedence.
    """
    empty = HazardPage(name, theme, {}, "", "", has_code)
    parts = _PAGE_PATTERN.match(text)
    if parts is None:
        empty.refuse(
            "",
            translated(
                "a page is a head between two +++ lines, a part under the line `{english}` and one under the "
                "line `{chinese}`; `gonogo hazards --new NAME` creates one to fill in"
            ).format(english=ENGLISH, chinese=CHINESE),
        )
    try:
        head = parse_toml(f"\n{parts['head']}")  # the newline keeps line numbers as in the file
    except ValueError as error:
        empty.refuse("", translated("not valid TOML: {error}").format(error=error))
    named = {**(shared or {}), **head.pop("shared", {})}
    page = HazardPage(name, theme, {}, parts["english"].strip(), parts["chinese"].strip(), has_code)
    page.head.update({key: _resolve_shared(value, named, page, key) for key, value in head.items()})
    page.check_both_languages()
    return page


def read_shared(text: str, theme: str) -> dict[str, Any]:
    """The values shared by the pages of a theme, by name. Raises UserError if the text is invalid TOML."""
    try:
        return parse_toml(text)
    except ValueError as error:
        file = f"hazards/{theme}/_shared.toml"
        raise UserError(translated("{file}: not valid TOML: {error}").format(file=file, error=error)) from None


def _resolve_shared(value: Any, shared: dict[str, Any], page: HazardPage, key: str) -> Any:
    """Replace each ``"@name"`` by its value in ``[shared]``; within a list, a shared list is spliced in."""
    if isinstance(value, dict):
        return {part: _resolve_shared(one, shared, page, f"{key}.{part}") for part, one in value.items()}
    if isinstance(value, list):
        found: list[Any] = []
        for one in value:
            put = _resolve_shared(one, shared, page, key)
            found += put if isinstance(put, list) and isinstance(one, str) else [put]
        return found
    reference = _SHARED_REFERENCE_PATTERN.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return value
    if reference[1] not in shared:
        page.refuse(key, translated("{value} is not in [shared]: add it there").format(value=value))
    return shared[reference[1]]


def _decode_checked_pattern(kind: type, value: Any) -> Any:
    """As :func:`_decode_pattern`, after checking that RE2 accepts the pattern. Raises ValueError if it doesn't."""
    pattern = _decode_pattern(kind, value)
    try:
        pattern.search_bytes(b"")
        pattern.finditer("")
    except Exception as error:  # re2's own exceptions
        raise ValueError(f"RE2 takes no such pattern ({error})") from None
    return pattern


def _decode_pattern(kind: type, value: Any) -> Any:
    """A pattern, from its text or from a list of alternatives."""
    if kind is not Pattern:
        raise NotImplementedError(kind)
    alternatives = [value] if isinstance(value, str) else value
    if not isinstance(alternatives, list) or not all(isinstance(one, str) for one in alternatives):
        raise ValueError(f"Expected a pattern (a string, or a list of alternatives), got {type(value).__name__}")
    return Pattern("|".join(alternatives))


def _keys_at(kind: Any, key_path: str) -> tuple[str, ...]:
    """The keys of the struct at a path such as ``signs[...].cause``."""
    for part in filter(None, re.split(r"\.|\[[^\]]*\]", key_path)):
        kind = next(field.type for field in msgspec.structs.fields(kind) if field.name == part)
        kind = next(one for one in _structs_in(kind))
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def _structs_in(kind: Any) -> list[Any]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [kind]
    return [one for argument in getattr(kind, "__args__", ()) for one in _structs_in(argument)]


def _texts_in(value: Any, key: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """The texts in a head, with their keys."""
    if isinstance(value, dict):
        if value.keys() == {"en", "zh"}:
            yield key, value
        for part, one in value.items():
            yield from _texts_in(one, f"{key}.{part}" if key else part)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _texts_in(one, f"{key}[{number}]")


def _as_one_line(section: str) -> str:
    return " ".join(_CHINESE_LINE_BREAK_PATTERN.sub("", section).split())


def _list_items(section: str) -> list[str]:
    """The items of a section that is a list; else the section as the only item."""
    return _ITEM_PATTERN.split(section)[1:] if section.startswith("- ") else [section]


def _strip_markup(item: str) -> str:
    return _as_one_line(item).replace("`", "").removesuffix(".").removesuffix("。")
