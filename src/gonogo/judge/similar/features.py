"""Features by which two logs of the same failure are alike: exceptions, functions, files, words of messages.

Whatever differs between runs (numbers, folders, addresses, users' files) is left out. A feature is stored as the hash
of its text, so that an index contains nothing that was written in a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from zlib import crc32

from gonogo.evidence.library import is_library_path
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.progress import last_steps
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.traceback import LogFrame

Features = dict[int, float]
"""The weights of a log's features, by the hash of each feature."""

_MAX_ERRORS = 6
_MAX_FRAMES = 12
_MAX_LINES = 40
_MAX_LINE_LENGTH = 400
_MAX_WORDS = 60

# The weight of each kind of feature, which is multiplied by its rarity.
_TYPE, _WORD, _PAIR, _MESSAGE, _FRAME, _RAISED_IN = 0.5, 0.6, 1.0, 1.5, 0.7, 0.8

_ADDRESS_PATTERN = re.compile(r"https?://\S+|0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b")
_FOLDERS_PATTERN = re.compile(r"(?:[A-Za-z]:)?(?:[\w.~@+-]*[\\/])+")
_NUMBER_PATTERN = re.compile(r"\d{3,}|(?<![A-Za-z_])\d+")
_IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_#]+")
_PACKAGE_FOLDER_PATTERN = re.compile(r"(?:site|dist)-packages[\\/]|[\\/]lib[\\/]python3?\.\d+[\\/]")
_FAILURE_WORDS_PATTERN = re.compile(
    r"(?i)error|exception|fail|fatal|abort|assert|signal|killed|watchdog|time(?:d )?-?out|mismatch|cannot|can't|unable"
    r"|invalid|illegal|unsupported|not (?:found|supported|implemented|available)|no such|undefined|unexpected|overflow"
    r"|out of memory|missing|refused|core dumped"
)
# Lines of a healthy run that contain such words: options, failure counts, advice from a library.
_ROUTINE_LINE_PATTERN = re.compile(
    r"(?i)^\W*(?:warning|info|debug)\b|Warning:|\[(?:INFO|WARNING|DEBUG)\]|NCCL INFO| INFO "
)


def features_of(log: FailureLog) -> Features:
    """The features of a run's logs; empty if they show no failure."""
    found: Features = {}
    roots = [error for error in log.errors if error.role is Role.ROOT]
    for error in [*roots, *log.truncated_errors][:_MAX_ERRORS]:
        _add_features(found, _error_features(error))
    if not found:
        for text in islice(_distinctive_lines(log), _MAX_LINES):
            _add_features(found, message_features(text))
    return found


def traceback_features(errors: Iterable[LoggedError]) -> Features:
    """The features of tracebacks without their exceptions, for logs that were cut before the exception."""
    found: Features = {}
    for error in errors:
        _add_features(found, _features_of_error_frames(error))
        if error.frames and error.frames[-1].code:
            _add_features(found, [(f"c {normalize_message(error.frames[-1].code)}", _RAISED_IN)])
    return found


def _distinctive_lines(log: FailureLog) -> Iterator[str]:
    """Lines that may show a failure if there is no exception; not those that training went on after."""
    stepped = last_steps(log)
    for line in log.lines:
        if (
            line.number > stepped.get(line.path, 0)
            and _FAILURE_WORDS_PATTERN.search(line.text)
            and not _ROUTINE_LINE_PATTERN.search(line.text)
        ):
            yield line.text


def message_features(text: str) -> Iterator[tuple[str, float]]:
    """The features of the message of an exception, a line, or the title of a thread."""
    normalized = normalize_message(text)
    words = _IDENTIFIER_PATTERN.findall(normalized)[:_MAX_WORDS]
    for word in words:
        yield f"w {word}", _WORD
    for first, second in pairwise(words):
        yield f"b {first} {second}", _PAIR
    if len(words) > 2:
        yield f"m {' '.join(words)}", _MESSAGE


def normalize_message(text: str) -> str:
    """A message without what differs between runs: addresses, folders and numbers; in lower case."""
    text = _ADDRESS_PATTERN.sub(" ", text[:_MAX_LINE_LENGTH])
    return _NUMBER_PATTERN.sub("#", _FOLDERS_PATTERN.sub("", text)).lower()


def hash_features(features: Iterable[tuple[str, float]]) -> Features:
    """The highest weight of each feature, by the hash of its text."""
    found: Features = {}
    _add_features(found, features)
    return found


def _add_features(total: Features, features: Iterable[tuple[str, float]]) -> None:
    for text, weight in features:
        key = crc32(text.encode("utf-8", "replace"))
        total[key] = max(total.get(key, 0.0), weight)


def _error_features(error: LoggedError) -> Iterator[tuple[str, float]]:
    if error.type:
        yield f"t {error.type}", _TYPE
    lines = [line for line in error.message.splitlines() if line.strip()]
    for line in lines[:8]:
        yield from message_features(line)
    yield from _features_of_error_frames(error)


def _features_of_error_frames(error: LoggedError) -> Iterator[tuple[str, float]]:
    frames = [named for frame in error.frames if (named := _frame_feature(frame))]
    for name in frames[-_MAX_FRAMES:]:
        yield f"f {name}", _FRAME
    if frames:
        yield f"i {frames[-1]}", _RAISED_IN


def _frame_feature(frame: LogFrame) -> str:
    """A frame independent of the installation: ``file within its package:function``; empty if unknown."""
    path = frame.path.replace("\\", "/")
    if not frame.function or frame.function.startswith("<"):
        return ""
    inside = _PACKAGE_FOLDER_PATTERN.split(path)[-1] if is_library_path(path) else path.rpartition("/")[2]
    return f"{inside}:{frame.function}"
