"""Restores the lines that the program wrote: out of a collector's JSON or a box, unwrapped, and dedented.

Logs are often copied from a terminal, a cluster's collector or an issue tracker. Each of these changes most lines of
a log in the same way, by which it is recognised.
"""

from __future__ import annotations

import json

from gonogo.evidence.patterns import lazy_compile

NumberedLines = list[tuple[int, str]]
"""Lines with their numbers, which count from 1."""

_MIN_JSON_SHARE = 0.8
"""Share of a log's lines that must be such JSON."""
_TEXT_KEYS = ("log", "message", "msg", "textPayload", "line", "text", "body")
_COLLECTOR_KEY_PATTERN = lazy_compile(
    r'"(?:@?time(?:stamp)?|ts|stream|level|severity|date|container_name|kubernetes)":'
)
_BOX_CONTENT_PATTERN = lazy_compile(r"[│┃|] ?(.*?) *[│┃|]$")
_BOX_BORDER_PATTERN = lazy_compile(r"[╭╰┏┗┌└+][─━═╌-].*[╮╯┓┛┐┘+]$")
# Text that always begins a new line, never continues a wrapped one.
_LINE_START_PATTERN = lazy_compile(
    r" *(?:File \"|Traceback \(most|During handling|The above exception|\[rank"
    r"|\([\w.:-]+(?:\[[^\]\n]{0,60}\])? pid=|[\w.]+(?:Error|Exception):"
    r"|[\w./-]+: |\[?\d{4}-\d\d-\d\d|[\[{]|\d+%\||[~^]+$|❱? *\d+ [│|])"
)
_RULER_PATTERN = lazy_compile(r"[-=+| ]{8,}$")
_CODE_FENCE_PATTERN = lazy_compile(r" *```+[\w+-]*\s*$")
_PLAUSIBLE_WIDTHS = range(60, 260)
_COMMON_TERMINAL_WIDTHS = frozenset({80, 100, 120, 132, 140, 160, 200, 240})


def unwrap_lines(lines: NumberedLines) -> NumberedLines:
    """The lines as the program wrote them, without wrapping by a terminal, Rich or a log collector."""
    return _dedent_tracebacks(_unwrap_lines(_unwrap_boxes(_unwrap_json(lines))))


def _unwrap_json(lines: NumberedLines) -> NumberedLines:
    """The text fields of JSON objects, one per line, as Docker and log collectors store them."""
    found: NumberedLines = []
    full = taken = 0
    for number, line in lines:
        full += bool(line.strip())
        text = _text_of_object(line)
        taken += text is not None
        found += [(number, line)] if text is None else [(number, part) for part in text.rstrip("\n").split("\n")]
    return found if taken and taken >= _MIN_JSON_SHARE * full else lines


def _text_of_object(line: str) -> str | None:
    """The text field of a JSON object on a line, or None."""
    if not line.startswith("{") or not line.endswith("}") or not _COLLECTOR_KEY_PATTERN.search(line):
        return None
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return next((content[key] for key in _TEXT_KEYS if isinstance(content.get(key), str)), None)


def _unwrap_boxes(lines: NumberedLines) -> NumberedLines:
    """The contents of boxes such as Rich draws, with wrapped lines joined."""
    if not any(line.lstrip().startswith("╭") for _, line in lines) or any("❱" in line for _, line in lines):
        return lines  # Rich's own tracebacks are parsed as they are: see traceback.py
    found: NumberedLines = []
    width = 0
    for number, line in lines:
        if _BOX_BORDER_PATTERN.match(line.strip()):
            width = len(line.strip()) - 4
            continue
        inside = _BOX_CONTENT_PATTERN.match(line.strip()) if width else None
        if inside is None:
            width = 0
            found.append((number, line))
        elif found and _was_wrapped(found[-1][1], inside[1], width):
            found[-1] = (found[-1][0], _rejoin_line(found[-1][1], inside[1], width))
        else:
            found.append((number, inside[1]))
    return found


def _was_wrapped(before: str, text: str, width: int) -> bool:
    """Whether the text was wrapped onto a line of its own because its first word didn't fit after ``before``."""
    last = before[-width:] if len(before) > width else before
    word = text.split(" ", 1)[0]
    return bool(word) and len(last) + 1 + len(word) > width and not _LINE_START_PATTERN.match(text)


def _rejoin_line(before: str, text: str, width: int) -> str:
    between = "" if len(before) % width == 0 else " "
    return f"{before}{between}{text}"


def _unwrap_lines(lines: NumberedLines) -> NumberedLines:
    """Lines that a terminal wrapped at its last column, joined again."""
    lengths = [len(line) for _, line in lines]
    width = max(lengths, default=0)
    at_the_edge = lengths.count(width)
    if width not in _PLAUSIBLE_WIDTHS or (at_the_edge < 3 and width not in _COMMON_TERMINAL_WIDTHS):
        return lines
    found: NumberedLines = []
    before = ""
    for number, line in lines:
        if len(before) == width and _continues_line(before, line, alone=at_the_edge == 1):
            between = " " if before[-1] in ")]}.,;:" and line[0].isalpha() else ""  # the terminal cut it off
            found[-1] = (found[-1][0], f"{found[-1][1]}{between}{line}")
        else:
            found.append((number, line))
        before = line
    return found


def _continues_line(before: str, line: str, *, alone: bool) -> bool:
    """Whether a line may continue a full one. ``alone``: no other line has full width, so it may be coincidence."""
    if not line or line.startswith("  ") or line[:12] == before[:12] or _LINE_START_PATTERN.match(line):
        return False
    if _RULER_PATTERN.match(line) or _RULER_PATTERN.match(before):
        return False  # a table
    if before[0] in "{[" and before[-1] in "}]":
        return False  # a complete record
    ended = before[-1] in ".!?:;)]}\"'" and (line[0].isupper() or line[0] in "[{(<")
    return not ended and not (alone and line[0].isupper())


def _dedent_tracebacks(lines: NumberedLines) -> NumberedLines:
    """Remove the indentation of tracebacks that are in a list item or in a fenced Markdown block."""
    found: NumberedLines = []
    depth = 0
    fenced = False
    for number, line in lines:
        if _CODE_FENCE_PATTERN.match(line):
            fenced = not fenced
            depth = line.index("`") if fenced else 0
            found.append((number, ""))
            continue
        if line.endswith("Traceback (most recent call last):") and not line.lstrip().startswith(("|", "+")):
            depth = len(line) - len(line.lstrip(" "))
        elif depth and line.strip() and not line.startswith(" " * depth):
            depth = 0
        found.append((number, line[depth:]) if depth and line.startswith(" " * depth) else (number, line))
    return found
