"""The lines of a shell script as written, for what the parsed launch no longer shows."""

from collections.abc import Iterator
from functools import lru_cache

import msgspec

from gonogo.evidence.source_file import Place, SourceFile

_OTHER_LANGUAGES = (".py", ".yaml", ".yml", ".json", ".toml", ".md", ".ipynb")


def is_shell_script(source: SourceFile) -> bool:
    """Whether a file is a shell script: not a Dockerfile, a config, or a typed command."""
    name = source.path.replace("\\", "/").rsplit("/", 1)[-1]
    return source.writable and not name.startswith("Dockerfile") and not name.lower().endswith(_OTHER_LANGUAGES)


class ShellLine(msgspec.Struct, frozen=True):
    """A line of a shell script: its text, its bytes ``start`` to ``end``, and the next line's start ``after``."""

    source: SourceFile
    number: int
    text: str
    start: int
    end: int
    after: int

    @property
    def comment(self) -> int | None:
        """The index in ``text`` at which a comment begins, or None."""
        if "#" not in self.text:
            return None
        quote = ""
        skip = False
        for index, character in enumerate(self.text):
            if skip:
                skip = False
            elif quote:
                skip = character == "\\" and quote == '"'
                quote = "" if character == quote else quote
            elif character in "'\"":
                quote = character
            elif character == "\\":
                skip = True
            elif character == "#" and (index == 0 or self.text[index - 1] in " \t;&|("):
                return index
        return None

    @property
    def code(self) -> str:
        """The text before its comment."""
        return self.text if self.comment is None else self.text[: self.comment]

    @property
    def continues_on_next_line(self) -> bool:
        """Whether the next line continues it: it ends in an unescaped backslash."""
        text = self.text
        return self.comment is None and (len(text) - len(text.rstrip("\\"))) % 2 == 1

    def place(self, start: int = 0, end: int | None = None) -> Place:
        """The place of the characters from ``start`` to ``end``."""
        stop = len(self.text) if end is None else end
        first = self.start + len(self.text[:start].encode("utf-8", "surrogateescape"))
        return Place(self.source, first, first + len(self.text[start:stop].encode("utf-8", "surrogateescape")))


def line_at(source: SourceFile, number: int) -> ShellLine | None:
    """The line with that number, counted from 1; None past the end."""
    start, after = source.line_start(number), source.line_start(number + 1)
    if number < 1 or start >= len(source.data):
        return None
    data = source.data[start:after]
    text = data.rstrip(b"\r\n").decode("utf-8", "surrogateescape")
    return ShellLine(source, number, text, start, start + len(data.rstrip(b"\r\n")), after)


def lines_from(source: SourceFile, number: int) -> Iterator[ShellLine]:
    """The lines from the one with that number on."""
    lines = _read_shell_lines(source)
    for index in range(max(number - 1, 0), len(lines)):
        yield lines[index]


@lru_cache(maxsize=4)  # one script is looked at by many hazards in a row
def _read_shell_lines(source: SourceFile) -> tuple[ShellLine, ...]:
    found: list[ShellLine] = []
    while (line := line_at(source, len(found) + 1)) is not None:
        found.append(line)
    return tuple(found)
