from collections.abc import Iterable, Iterator

import msgspec

from gonogo.hazards.facts.shell_lines import ShellLine, is_shell_script, line_at, lines_from
from gonogo.hazards.rule import Edit, Findings, Hazard, Launch, Pattern, Place, Run, Text, translated

_OPTION_LINE_PATTERN = Pattern(r"^[ \t]*-{1,2}[A-Za-z][\w-]*(?:[= \t\\]|$)")
_BACKSLASH_AND_BLANKS_PATTERN = Pattern(r"\\[ \t]+$")
_EMPTY_LINE = translated("an empty line interrupts it")
_COMMENT_LINE = translated("a comment line interrupts it")
_COMMENT_AFTER = translated("a comment follows its backslash")
_COMMENT_AT_END = translated("it ends in a comment")
_TRAILING_WHITESPACE = translated("whitespace follows its backslash")
_NO_BACKSLASH = translated("it has no backslash at the end")


class _ContinuationBreak(msgspec.Struct, frozen=True):
    """Where the command ends too early: the place, what is wrong there, and the first line cut off."""

    place: Place
    what: Text
    cut_off: ShellLine
    edits: tuple[Edit, ...]


_MAX_SHOWN_BREAKS = 20
_MAX_EDITS = 500
"""The most lines; nobody writes a longer command."""


class LaunchBrokenContinuation(Hazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """The lines from the command's first to the last option that was meant for it."""
        if not is_shell_script(launch.source):
            return
        breaks = list(_find_breaks(launch.source.line_of(launch.place.start), launch))
        if not breaks:
            return
        first = breaks[0]
        edits = list(_merge_edits(edit for one in breaks for edit in one.edits))
        cut_off = translated("this line is cut off, and the shell runs it as the command `{word}`")
        yield self.finding(
            self.texts["cause"].format(
                line=first.place.line,
                what=first.what,
                word=first.cut_off.text.split()[0],
                next=first.cut_off.number,
                more=Text(f"; it is cut {len(breaks) - 1} more time(s) below", f"；后面还有 {len(breaks) - 1} 处")
                if len(breaks) > 1
                else "",
            ),
            spans=tuple(
                span
                for one in breaks[:_MAX_SHOWN_BREAKS]
                for span in (
                    one.place.span(one.what),
                    one.cut_off.place().span(cut_off.format(word=one.cut_off.text.split()[0])),
                )
            ),
            fixes=self.fix(translated("repair the line continuation"), *(edits if len(edits) <= _MAX_EDITS else ())),
        )


def _find_breaks(number: int, launch: Launch) -> Iterator[_ContinuationBreak]:
    """Everything that cuts off the command beginning on that line, as if each earlier cut were fixed."""
    source = launch.source
    first = line_at(source, number)
    if first is None:
        return
    above = Place(source, first.start, first.start)
    indent = first.text[: len(first.text) - len(first.text.lstrip())]
    quotes = 0
    for line in lines_from(source, number):
        quotes += line.code.count('"') - line.code.count('\\"')
        if quotes % 2:
            return  # the command is in a quoted string, whose lines need no backslash
        if line.number > number and not line.code.strip():
            continue
        between, following = _next_nonblank_line(line)
        if following is None or not _OPTION_LINE_PATTERN.search(following.text):
            if line.continues_on_next_line and not between:
                continue  # an operand, or the program, on a line of its own
            return
        comments = [one.text.strip(" \t\\") for one in between if one.text.strip()]
        edits = [Place(source, one.start, one.after).edit("") for one in between]
        code = line.code.rstrip(" \t")
        at, what = line.place(max(len(code) - 1, 0)), None
        if line.continues_on_next_line:
            if not between:
                continue
            at = between[0].place()
            what = _EMPTY_LINE if not comments or between[0].text.strip() == "" else _COMMENT_LINE
        elif _BACKSLASH_AND_BLANKS_PATTERN.search(line.code):
            edits.append(line.place(len(code), len(line.text)).edit(""))
            what = _TRAILING_WHITESPACE if line.comment is None else _COMMENT_AFTER
        elif between:
            return  # the option below may not belong to this command
        else:
            edits.append(line.place(len(code), len(line.text)).edit(" \\"))
            what = _NO_BACKSLASH if line.comment is None else _COMMENT_AT_END
        if line.comment is not None:
            comments.append(line.text[line.comment :].rstrip(" \t\\"))
        edits += [above.edit(f"{indent}{comment}\n") for comment in comments]
        yield _ContinuationBreak(at, what, following, tuple(edits))


def _next_nonblank_line(line: ShellLine) -> tuple[list[ShellLine], ShellLine | None]:
    """The empty and comment lines after a line, and the next line with code."""
    between: list[ShellLine] = []
    for following in lines_from(line.source, line.number + 1):
        if following.text.strip() and not following.text.lstrip().startswith("#"):
            return between, following
        between.append(following)
    return between, None


def _merge_edits(edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """The edits, with insertions at the same place merged into one."""
    insertions: list[Edit] = []
    others: list[Edit] = []
    for edit in edits:
        (insertions if edit.start == edit.end and edit.after.endswith(b"\n") else others).append(edit)
    if not insertions:
        return tuple(others)
    one = insertions[0]
    return (Edit(one.path, one.start, one.end, b"", b"".join(edit.after for edit in insertions)), *others)
