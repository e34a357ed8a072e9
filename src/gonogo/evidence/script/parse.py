"""Parses Python source, whatever its bytes: into a syntax tree, or the problem with the file and its place."""

from __future__ import annotations

import ast
import gc
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from gonogo.evidence.patterns import Pattern
from gonogo.evidence.source_file import Place, SourceFile
from gonogo.finding import Text, translated

MAX_SCRIPT_BYTES = 512 << 10
"""In bytes. Python itself accepts larger scripts, but they are generated: a syntax tree takes 700 bytes per source
byte, and before 3.11 Python can crash on deep nesting in them."""
_MAX_LINE_LENGTH_BEFORE_3_11 = 64 << 10
_MAX_IMPORT_LENGTH = 8 << 10
_MODULE_NAME_PATTERN = Pattern(r"\b(?:import|from)\s+\.*\w+(?:\s*\.\s*\w+){200}")

_ENCODING_COOKIE_PATTERN = Pattern(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_UTF8_NAMES = frozenset({"utf-8", "utf8", "utf-8-sig", "u8", "ascii", "us-ascii"})
# Stateless codecs, and none whose decoder is slow on crafted input, as punycode's is.
_ENCODINGS = frozenset(
    {
        *("gbk", "gb2312", "gb18030", "cp936", "big5", "cp950", "big5hkscs"),
        *("euc-jp", "shift-jis", "cp932", "euc-kr", "cp949", "koi8-r"),
        *("latin-1", "latin1", "iso-8859-1", "iso8859-1", "iso-8859-2", "iso-8859-15", "iso8859-15"),
        *("cp1250", "cp1251", "cp1252", "windows-1251", "windows-1252"),
    }
)

# (since, pattern of the line at which the parser stopped)
_NEWER_SYNTAX: Sequence[tuple[tuple[int, int], Pattern]] = (
    ((3, 14), Pattern(r"(?i)(?:^|[^\w.])(?:rt|tr|t)(?:\"|')")),
    ((3, 12), Pattern(r"^\s*type\s+\w+(?:\[.*\])?\s*=")),
    ((3, 12), Pattern(r"^\s*(?:(?:async\s+)?def|class)\s+\w+\s*\[")),
    ((3, 11), Pattern(r"^\s*except\s*\*")),
    ((3, 11), Pattern(r"\[[^\]\"']*\*\w+[^\]\"']*\]")),
)


class ScriptProblem(msgspec.Struct, frozen=True):
    """Why a script could not be parsed.

    ``kind`` is ``"syntax"``, ``"encoding"``, ``"null-byte"``, ``"too-deep"``, ``"too-large"``; or
    ``"newer-python"``, which is no fault of the script: the Python that runs gonogo is older than :attr:`needs`.
    """

    kind: str
    place: Place
    message: Text
    needs: str | None = None

    @property
    def is_rejected_by_python(self) -> bool:
        """Whether Python itself would refuse to run the script."""
        return self.kind in ("syntax", "encoding", "null-byte")


class ParsedSource(msgspec.Struct, frozen=True):
    """A syntax tree or a problem, and the encoding unless it is UTF-8."""

    tree: ast.Module | None
    problem: ScriptProblem | None
    encoding: str | None = None


def parse(source: SourceFile) -> ParsedSource:
    """Parse the source as Python does. Never raises, however broken, deep or large it is."""
    data = source.data
    if len(data) > MAX_SCRIPT_BYTES or (sys.version_info < (3, 11) and _may_crash_the_parser(data)):
        message = _TOO_LARGE.format(size=len(data) >> 10, limit=MAX_SCRIPT_BYTES >> 10)
        return ParsedSource(None, ScriptProblem("too-large", source.place(0, 0), message))
    null = data.find(b"\0")
    if null >= 0:
        return ParsedSource(None, ScriptProblem("null-byte", source.place(null, null + 1), _CONTAINS_NULL_BYTE))
    encoding, problem = _encoding(source)
    if problem is not None:
        return ParsedSource(None, problem)
    if encoding is not None:
        try:
            text = data.decode(encoding)
        except (UnicodeError, LookupError):
            message = _NOT_IN_ENCODING.format(encoding=encoding)
            return ParsedSource(None, ScriptProblem("encoding", source.place(0, 0), message))
    elif not source.is_utf8:
        at = _offset_of_undecodable_byte(data)
        return ParsedSource(None, ScriptProblem("encoding", source.place(at, at + 1), _NOT_UTF8))
    else:
        text = source.text
    if _has_endless_module_name(data):
        return ParsedSource(None, ScriptProblem("too-deep", source.place(0, 0), _TOO_DEEP))
    try:
        with gc_disabled(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # don't print warnings about "\d" in the user's strings
            return ParsedSource(ast.parse(text), None, encoding)
    except (RecursionError, MemoryError):
        return ParsedSource(None, ScriptProblem("too-deep", source.place(0, 0), _TOO_DEEP))
    except SyntaxError as error:
        return ParsedSource(None, _syntax_problem(source, error))
    except (ValueError, OverflowError) as error:  # for example an int literal with more digits than Python converts
        message = _SYNTAX_ERROR_TEXT.format(message=str(error))
        return ParsedSource(None, ScriptProblem("syntax", source.place(0, 0), message))


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection while many objects are created and none are freed: it takes a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _has_endless_module_name(data: bytes) -> bool:
    """Whether a line may import ``a.a.a…`` of thousands of parts, for which Python takes memory quadratic in them."""
    if len(data) <= _MAX_IMPORT_LENGTH:
        return False
    return any(
        len(line) > _MAX_IMPORT_LENGTH and _MODULE_NAME_PATTERN.search_bytes(line) is not None
        for line in data.split(b"\n")
    )


def _may_crash_the_parser(data: bytes) -> bool:
    return any(len(line) > _MAX_LINE_LENGTH_BEFORE_3_11 for line in data.split(b"\n"))


def _encoding(source: SourceFile) -> tuple[str | None, ScriptProblem | None]:
    """The encoding declared by a PEP 263 comment, None for UTF-8."""
    end = source.data.find(b"\n")
    end = source.data.find(b"\n", end + 1) if end >= 0 else -1
    head = source.data[: end if end >= 0 else None][:1000]
    if b"coding" not in head:
        return None, None
    lines = head.decode("latin-1").removeprefix("\xef\xbb\xbf").splitlines()[:2]
    for number, line in enumerate(lines):
        match = _ENCODING_COOKIE_PATTERN.match(line)
        if match is not None:
            name = match.group(1).lower().replace("_", "-")
            if name in _UTF8_NAMES or name.startswith("utf-8-"):
                return None, None
            if name in _ENCODINGS:
                return name, None
            start = source.line_start(number + 1)
            place = source.place(start, start + len(line.rstrip()))
            return None, ScriptProblem("encoding", place, _UNKNOWN_ENCODING.format(encoding=name))
        if number == 0 and line.strip() and not line.lstrip().startswith("#"):
            break
    return None, None


def _offset_of_undecodable_byte(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _syntax_problem(source: SourceFile, error: SyntaxError) -> ScriptProblem:
    line = max(error.lineno or 1, 1)
    text = source.line_bytes(line).decode("utf-8", "replace")
    column = max((error.offset or 1) - 1, 0)
    start = source.offset_of_character(line, min(column, len(text.rstrip("\r\n"))))
    end = max(start, source.line_start(line) + len(source.line_bytes(line).rstrip(b"\r\n")))
    place = source.place(start, end)
    message = error.msg or "invalid syntax"
    needs = _required_python_version(text, message)
    if needs is not None:
        version = ".".join(map(str, needs))
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return ScriptProblem("newer-python", place, _NEWER_PYTHON_TEXT.format(needs=version, running=running), version)
    return ScriptProblem("syntax", place, _SYNTAX_ERROR_TEXT.format(message=message))


def _required_python_version(line: str, message: str) -> tuple[int, int] | None:
    """The Python version since which this line may be valid, if it is newer than the running one."""
    running = sys.version_info[:2]
    for since, pattern in _NEWER_SYNTAX:
        if running < since and pattern.search(line[:2000]):
            return since
    if running < (3, 12) and message.startswith("f-string"):
        return (3, 12)  # quotes, backslashes and comments inside the braces
    if running < (3, 14) and message.startswith("multiple exception types must be parenthesized") and "as" not in line:
        return (3, 14)
    return None


_TOO_LARGE = translated(
    "the file has {size} KiB, and gonogo reads Python files only up to {limit} KiB: move data and generated "
    "code to other files"
)
_TOO_DEEP = translated("the file's expressions are nested too deeply for Python's parser")
_CONTAINS_NULL_BYTE = translated("the file contains a null byte, which Python rejects")
_NOT_UTF8 = translated(
    "the file is not UTF-8 and declares no other encoding: save it as UTF-8, or declare the encoding in its first line"
)
_NOT_IN_ENCODING = translated("the file's content is not in its declared encoding {encoding}")
_UNKNOWN_ENCODING = translated("gonogo doesn't support the file's declared encoding {encoding}")
_SYNTAX_ERROR_TEXT = translated("Python can't parse the file: {message}")
_NEWER_PYTHON_TEXT = translated(
    "this line may need Python {needs}, but gonogo runs on Python {running}: run gonogo with the script's own Python"
)
