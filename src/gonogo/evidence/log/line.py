"""Restores a log line as the program wrote it: decoded, without colours and without launcher or cluster prefixes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from gonogo.evidence.log.unwrapped_lines import unwrap_lines
from gonogo.evidence.patterns import lazy_compile

if TYPE_CHECKING:
    from gonogo.evidence.log.sieve import Part

MAX_LINE_LENGTH = 8192
"""Characters kept of a line; for a progress bar, of its last state."""


class LogLine(msgspec.Struct, frozen=True):
    """One line; ``number`` counts from 1 in the log ``path``. ``rank`` and ``node`` are from its prefix, or None."""

    path: str
    number: int
    text: str
    rank: int | None = None
    node: str | None = None
    time: float | None = None
    """Seconds since 1970, by the clock of the machine that wrote the line; None if it has no timestamp."""


_MAX_PROGRESS_STATES = 200

_ANSI_ESCAPE_PATTERN = lazy_compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?"
)
_CONTROL_CHARACTER_PATTERN = lazy_compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
# ASCII bytes that are removed from a line, or split it: those of both patterns above, and the carriage return.
_NON_PRINTABLE_BYTES = bytes((*range(0x09), 0x0B, 0x0C, *range(0x0D, 0x20), 0x7F))

_ISO_TIME_PATTERN = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
# Prefixes that always identify themselves, in any log.
_RANK_PREFIX_PATTERN = lazy_compile(
    r"\[(?:rank|default|worker|trainer|local_?rank)[ :_-]?(\d{1,5})\]:? ?"  # torch >= 2.1; torchrun --tee
    r"|\[(\d{1,5})\]: ?"
    r"|\[\d{1,5},(\d{1,5})\]<std(?:out|err)>: ?"  # mpirun --tag-output
    # Ray's actors, of which some frameworks state rank and group in the name: (PolicyWorker[rank=0] pid=12)
    r"|\((?:[\w.:<>-]{1,80}(?:\[(?:rank[=:](\d{1,5}))?[^\]\n]{0,60}\])?[ ,] ?(?:[\w=.-]{1,40}[ ,] ?)?)?pid=\d+"
    r"(?:,? ip=[\d.a-f:]+)?(?:,? rank=(\d{1,5}))?\) ?|\(raylet(?:, ip=[\d.a-f:]+)?\) ?"
)
# Ray prints a line that many actors wrote only once, and says so at its end.
_RAY_REPEATED_PATTERN = lazy_compile(r" ?\[repeated \d+x across cluster\](?: \(Ray deduplicates logs.*)?$")
# vLLM's logger prefixes each line of a traceback that it prints: "ERROR 05-14 16:57:22 [core.py:396] "
_VLLM_ERROR_PATTERN = lazy_compile(r"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]{1,80}:\d{1,6}\] ?")
_TIMESTAMP_PREFIX_PATTERN = lazy_compile(
    rf"({_ISO_TIME_PATTERN}) (?:stdout|stderr) [FP] |({_ISO_TIME_PATTERN})[ \t](?=\S)"
    rf"|({_ISO_TIME_PATTERN})[ \t]?(?=[ \t]+File )|({_ISO_TIME_PATTERN})[ \t](?=[ \t]{{2}})"
)
_BRACKETED_TIME_PATTERN = lazy_compile(rf"\[({_ISO_TIME_PATTERN})\] ?(?=\[rank|\[\d+\]:)")
# Not a table row, which ends in a bar: rows of transformers' LOAD REPORT begin with a weight's name.
_CONTAINER_PATTERN = lazy_compile(
    r"[\w.-]{1,63} +\| ?(?!.*\|\s*$)|\[(?:pod/)?[\w./-]{1,200}\] (?=\[|Traceback| *File |\w+Error)"
)
# May also be the program's own output: only treated as a prefix if most lines of the log have it.
_SRUN_PREFIX_PATTERN = lazy_compile(r" {0,4}(\d{1,5}): ?")
_BACKTICK_PATTERN = lazy_compile(r"\s*`{1,3}(?=\s*(?:File \"|Traceback|\[?rank|[\w.]{1,80}(?:Error|Exception)\b))")
_QUOTE_PREFIX_PATTERN = lazy_compile(r"(?:> ?)+")
_NODE_PREFIX_PATTERN = lazy_compile(r"([A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3}): ?")
_TIME_INSIDE_PATTERN = lazy_compile(rf"\[?({_ISO_TIME_PATTERN})")


_MAX_DIGITS = 4000
"""Python refuses to parse integers of over 4,300 digits, since the time grows with the square of their length."""
_LONG_NUMBER_PATTERN = re.compile(rf"(\d{{{_MAX_DIGITS}}})\d+")


def clean_lines(path: str, rank: int | None, parts: Iterable[Part]) -> list[LogLine]:
    """The lines of the kept parts of a log. ``rank`` is that of the whole log, if its file name states one."""
    raw: list[tuple[int, str]] = []
    for part in parts:
        if (plain := _decode_if_plain(part.data)) is not None:
            raw += enumerate(plain, part.line)
            continue
        pieces = part.data.split(b"\n")
        if pieces and not pieces[-1]:
            pieces.pop()
        for offset, piece in enumerate(pieces):
            raw += [(part.line + offset, text) for text in _progress_states(piece)]
    raw = [(number, _shorten_numbers(text)) for number, text in unwrap_lines(raw)]
    ambiguous = _ambiguous_prefix([text for _, text in raw])
    return [_parse_line(path, number, text, rank, ambiguous) for number, text in raw]


def _shorten_numbers(text: str) -> str:
    """Truncate runs of digits to a length that Python can parse as an integer."""
    return _LONG_NUMBER_PATTERN.sub(r"\1", text) if len(text) > _MAX_DIGITS else text


def _decode_if_plain(data: bytes) -> list[str] | None:
    """The lines of a part without colours, carriage returns and control characters, else None: a fast path."""
    if not data.isascii() or len(data.translate(None, _NON_PRINTABLE_BYTES)) != len(data):
        return None
    lines = data.decode("ascii").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line[:MAX_LINE_LENGTH].rstrip() for line in lines]


def _progress_states(piece: bytes) -> list[str]:
    """The successive states of a line with carriage returns, without a progress bar's intermediate ones."""
    text = _ANSI_ESCAPE_PATTERN.sub("", decode_log_text(piece))
    states = [_CONTROL_CHARACTER_PATTERN.sub("", state) for state in text.split("\r")]
    states = [state for state in states if state.strip()]
    if not states:
        return [""]
    if len(states) > 2:
        begun = next((index for index, state in enumerate(states) if "Traceback (most" in state), len(states))
        errors = [state for state in states[: min(begun, len(states) - 1)] if "Error" in state]
        states = errors[:_MAX_PROGRESS_STATES] + (states[begun:][:_MAX_PROGRESS_STATES] or states[-1:])
    return [state[:MAX_LINE_LENGTH].rstrip() for state in states]


def decode_log_text(data: bytes) -> str:
    """Text decoded as UTF-8, else as GB18030 (as Chinese consoles write), else with replacement characters."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _ambiguous_prefix(texts: list[str]) -> re.Pattern[str] | None:
    """The prefix of ``srun --label``, of pdsh or of a quotation (``>``), if most lines have it."""
    full = [text for text in texts if text.strip()]
    if full and all(text.startswith(">") for text in full):
        return _QUOTE_PREFIX_PATTERN
    if len(full) < 4:
        return None
    if sum(bool(_SRUN_PREFIX_PATTERN.match(text)) for text in full) > 0.8 * len(full):
        return _SRUN_PREFIX_PATTERN
    if sum(text.startswith(">") for text in full) > 0.8 * len(full):
        return _QUOTE_PREFIX_PATTERN
    nodes = Counter(found.group(1) for text in full if (found := _NODE_PREFIX_PATTERN.match(text)))
    names = [name for name in nodes if re.search(r"\d", name) and not name.endswith(("Error", "Exception"))]
    if sum(nodes[name] for name in names) > 0.8 * len(full):
        return _NODE_PREFIX_PATTERN
    return None


def _parse_line(path: str, number: int, text: str, rank: int | None, prefix_pattern: re.Pattern[str] | None) -> LogLine:
    node: str | None = None
    time: float | None = None
    if prefix_pattern is not None and (found := prefix_pattern.match(text)):
        if prefix_pattern is _SRUN_PREFIX_PATTERN:
            rank = int(found.group(1))
        elif prefix_pattern is _NODE_PREFIX_PATTERN:
            node = found.group(1)
        text = text[found.end() :]
    if "across cluster]" in text:
        text = _RAY_REPEATED_PATTERN.sub("", text)
    if "`" in text and (found := _BACKTICK_PATTERN.match(text)):
        text = text[found.end() :]
    for _ in range(5):
        if not text or text[0] in " \t":
            break  # no prefix begins with whitespace: a traceback's frame or its code
        if found := _RANK_PREFIX_PATTERN.match(text):
            digits = next((group for group in found.groups() if group), None)
            rank = int(digits) if digits else rank
        elif found := _TIMESTAMP_PREFIX_PATTERN.match(text) or _BRACKETED_TIME_PATTERN.match(text):
            time = _parse_timestamp(next(group for group in found.groups() if group))
        else:
            found = _VLLM_ERROR_PATTERN.match(text) or _CONTAINER_PATTERN.match(text)
        if not found or found.end() == 0:
            break
        text = text[found.end() :]
    if time is None and text[:1] not in " \t" and (found := _TIME_INSIDE_PATTERN.match(text)):
        time = _parse_timestamp(found.group(1))
    return LogLine(path, number, text, rank, node, time)


def _parse_timestamp(stamp: str) -> float | None:
    whole, _, rest = stamp.replace("T", " ").replace(",", ".").partition(".")
    digits = re.match(r"\d+", rest)
    try:
        moment = datetime.strptime(whole[:19], "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
    return moment.timestamp() + (float(f"0.{digits.group()}") if digits else 0.0)
