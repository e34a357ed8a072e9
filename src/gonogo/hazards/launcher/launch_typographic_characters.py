from collections.abc import Iterator

from gonogo.hazards.facts.shell_lines import ShellLine, is_shell_script, lines_from
from gonogo.hazards.rule import Edit, Findings, Hazard, Launch, Run, Text, translated

_DASHES = "‐‑‒–—―−﹣－"
_DOUBLE_QUOTES = "“”„‟″＂"
_SINGLE_QUOTES = "‘’‚‛′＇"
_SPACES = "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"
_INVISIBLE_CHARACTERS = "\u200b\u200c\u200d\u2060\ufeff"
_CHARACTER_NAMES = {
    **dict.fromkeys(_DASHES, translated("a typographic dash")),
    **dict.fromkeys(_DOUBLE_QUOTES + _SINGLE_QUOTES, translated("a typographic quote")),
    **dict.fromkeys(_SPACES, translated("a space that does not separate words")),
    **dict.fromkeys(_INVISIBLE_CHARACTERS, translated("an invisible character")),
}


class LaunchTypographicCharacters(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Typographic characters in the command's lines, outside quotes and comments."""
        source = launch.source
        if not is_shell_script(source) or source.data.isascii():
            return
        found: list[tuple[ShellLine, int]] = []
        for line in lines_from(source, source.line_of(launch.place.start)):
            if not line.text.isascii():
                found += [(line, index) for index in _unquoted_positions(line)]
            if not line.continues_on_next_line and line.end >= launch.place.end:
                break
        if not found:
            return
        line, index = found[0]
        character = line.text[index]
        yield self.finding(
            self.texts["cause"].format(
                what=Text(_CHARACTER_NAMES[character].en.capitalize(), _CHARACTER_NAMES[character].zh),
                code=ord(character),
                character=character if character.strip() and character not in _INVISIBLE_CHARACTERS else " ",
                line=line.number,
                more=Text(f", and {len(found) - 1} more like it", f"，此外还有 {len(found) - 1} 处")
                if len(found) > 1
                else "",
            ),
            spans=tuple(one.place(at, at + 1).span(_CHARACTER_NAMES[one.text[at]]) for one, at in found[:8]),
            fixes=self.fix(
                translated("use ASCII characters instead"), *(_replace_with_ascii(one, at) for one, at in found)
            ),
        )


def _unquoted_positions(line: ShellLine) -> Iterator[int]:
    """The positions of typographic characters; a dash only at the beginning of a word, as in an option."""
    quote = ""
    text = line.code
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _DASHES:
            before = text[:index].rstrip("-" + _DASHES)
            after = text[index + 1 :].lstrip("-" + _DASHES)
            if (not before or before[-1] in " \t" + _SPACES) and after[:1].isascii() and after[:1].isalpha():
                yield index
        elif character in _CHARACTER_NAMES:
            yield index


def _replace_with_ascii(line: ShellLine, index: int) -> Edit:
    character = line.text[index]
    if character in _DASHES:
        alone = line.text[index - 1 : index] != "-" and line.text[index + 1 : index + 2] not in ("-", *_DASHES)
        alone = alone and line.text[index - 1 : index] not in tuple(_DASHES)
        name = line.text[index + 1 :].split()[0] if line.text[index + 1 :].split() else ""
        replacement = "--" if alone and len(name.partition("=")[0]) > 1 else "-"
    elif character in _SPACES:
        replacement = " "
    else:
        replacement = '"' if character in _DOUBLE_QUOTES else "'" if character in _SINGLE_QUOTES else ""
    return line.place(index, index + 1).edit(replacement)
