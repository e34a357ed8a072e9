"""Parses Python tracebacks from one rank's lines: plain, Rich's or IPython's; chained, grouped or truncated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import lazy_compile


class LogFrame(msgspec.Struct, frozen=True):
    """A frame of a traceback. ``line`` is 0 and ``function`` is empty if the log doesn't state them."""

    path: str
    line: int
    function: str
    code: str = ""


class RaisedError(msgspec.Struct, frozen=True):
    """An exception in one rank's log; ``at`` is the line with its type, ``message`` may have several lines.

    If the traceback was cut off before that line, ``qualified`` and ``message`` are empty and ``at`` is its last one.
    """

    qualified: str
    message: str
    frames: tuple[LogFrame, ...]
    at: LogLine
    cause: RaisedError | None = None
    """The exception that this one was raised from, or during whose handling it was raised."""
    ignored: bool = False
    """True if Python reports it as ignored, during cleanup."""

    @property
    def type(self) -> str:
        """The exception's type without its module."""
        return self.qualified.rpartition(".")[2]


_HEADER_PATTERN = lazy_compile(r"Traceback \(most recent call last\)|─ Traceback|^-{20,}$")
# faulthandler's dumps (most recent call first) write "line 3 in f" without the comma: not part of an exception.
_FRAME_PATTERN = lazy_compile(r'^\s*(?:> ?)?File "([^"]{1,1000})", line (\d{1,9})(?:, in (.{1,300})|\s*$)')
_FRAME_INLINE_PATTERN = lazy_compile(r'File "([^"]{1,1000})", line (\d{1,9}), in (\S{1,200})')
_FRAME_AFTER_CODE_PATTERN = lazy_compile(
    r'^\s*(\S.{0,300}?) {2,}File "([^"]{1,1000})", line (\d{1,9}), in (\S{1,200})\s*$'
)
_IPYTHON_FRAME_PATTERN = lazy_compile(
    r"^(?:File )?(?P<path>[^\s:]{1,500}\.py|Cell In ?\[\d+\]|Input In ?\[\d+\]|<ipython-input-[\w-]+>)"
    r"(?::(?P<a>\d{1,9}))?(?:, line (?P<b>\d{1,9}))?(?:,? in (?P<function>[\w.<>]{1,200})(?:\(|$)|:?$)"
)
_BOX_FRAME_PATTERN = lazy_compile(r"^(.{0,500}\S):(\d{1,9}) in (\S.{0,200})$")
_BOX_CODE_PATTERN = lazy_compile(r"^(?:❱|>)\s*\d+\s(?:│\s)?(.*)$")
_BOX_END_PATTERN = lazy_compile(r"^\s*╰─")
_ARROW_CODE_PATTERN = lazy_compile(r"^-+> \d+ (.*)$")
# Notebook output as copied from VS Code: "[line 10](vscode-notebook-cell:...)"
_MARKDOWN_LINK_PATTERN = lazy_compile(r"\[([^\]\[]{1,300})\]\((?:file|vscode|https?)[^)\s]{0,1000}\)")
_MARKER_LINE_PATTERN = lazy_compile(r"^[\s~^|]+$")
_EXCEPTION_GROUP_PATTERN = lazy_compile(r"^ {2,}(?:\| ?|\+-+.*$|\+ )")
_DOTTED_NAME_PATTERN = r"(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Za-z_]\w{0,80}"
_EXCEPTION_LINE_PATTERN = lazy_compile(rf"^({_DOTTED_NAME_PATTERN}(?:\(\w+\))?)(?::(?: (.*))?)?$")
_NON_EXCEPTION_PATTERN = lazy_compile(
    r"^(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|FATAL|Epoch|Step|Loss|Note|NOTE)$|Warning$|^(?:self|cls)\."
)
_EXCEPTION_NAME_PATTERN = lazy_compile(r"\.\w+$|^[A-Z]\w*$")
_EXCEPTION_SUFFIX_PATTERN = r"(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Mismatch)"
_BARE_EXCEPTION_PATTERN = lazy_compile(
    r"^(?:E +)?((?:[A-Za-z_]\w{0,80}\.){0,8}_?[A-Z]\w{0,80}"
    rf"{_EXCEPTION_SUFFIX_PATTERN}(?:\(\w+\))?|(?:[a-z_]\w{{0,80}}\.){{1,8}}(?:Error|(?:exc|exceptions|errors)\.[A-Z]\w{{0,80}})"
    r"|StopIteration)(?::(?: ?(.*))?)?$"
)
_INLINE_PATTERN = lazy_compile(
    r"(?:^|[^A-Za-z0-9_./-])((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80}(?:Error|Exception)): ?(\S.*)$"
)
_CHAIN_PATTERN = lazy_compile(r"^(?:The above exception was the direct cause|During handling of the above exception)")
_MESSAGE_END_PATTERN = lazy_compile(
    r"Traceback \(most recent|^\[?\d{4}-\d\d-\d\d|^\[[A-Z]\d{4}|^(?:INFO|WARNING|ERROR|DEBUG)\b|^wandb:"
    r'|^\s*\d{1,3}%\||^╭|^\s*File "|^During handling|^The above exception|^-{20,}$'
    r"|^={20,}$|^Root Cause|^\[rank|^\w+:\d+:\d+ \[\d+\] NCCL"
    r"|^Exception ignored in|^failed \(exitcode|^Sending process \d|^[EFIW]\d{4} \d\d:|^Killed\b|^srun: "
    r"|^slurmstepd: |^Failures:$"
)
_MAX_MESSAGE_LENGTH = 40
_MAX_FRAMES = 400
"""Of a deep recursion only the outermost and the innermost frames are kept."""
_MAX_INTERLEAVED_LINES = 120
"""Maximum number of unrelated lines interleaved with a traceback's own."""


class _OpenTraceback(msgspec.Struct):
    """A traceback whose final line has not been read yet."""

    frames: list[LogFrame] = []
    at: LogLine | None = None
    """The last line of it so far."""
    strange: int = 0
    merged: bool = False
    """True if frames of several tracebacks are mixed, from ranks whose lines have no prefix."""
    arrows: bool = False
    """True for IPython's format, which shows the lines around a frame's line and marks that one with an arrow."""
    wrapped: str = ""
    """The first part of a path that Rich wrapped onto two lines."""
    indent: int = 0
    """Indentation of the last frame's line: the line that ends the traceback is indented less."""
    flush: bool = False
    """True if the last frame's line lost its indentation when pasted; then its code has none either."""


def parse_tracebacks(lines: Iterable[LogLine]) -> Iterator[RaisedError]:
    """The exceptions in one rank's lines, in order, including those without a traceback and truncated ones."""
    reader = _TracebackReader()
    for line in lines:
        yield from reader.read_line(line)
    yield from reader.finish()


def _strip_box(text: str) -> str | None:
    """The text inside Rich's box, or None if the line isn't part of one. The right border may be missing."""
    text = text.lstrip()
    if not text.startswith("│"):
        return None
    text = text[1:].rstrip()
    text = text[1:] if text[:1].isspace() else text
    return text.removesuffix("│").rstrip()


class _TracebackReader:
    def __init__(self) -> None:
        self._open: _OpenTraceback | None = None
        self._last: RaisedError | None = None
        self._chained = False
        self._ignored = False
        self._message: tuple[str, list[str], tuple[LogFrame, ...], LogLine] | None = None

    def read_line(self, line: LogLine) -> Iterator[RaisedError]:
        text = line.text
        if "](" in text:
            text = _MARKDOWN_LINK_PATTERN.sub(r"\1", text)
        if text[:2] == "  " and (grouped := _EXCEPTION_GROUP_PATTERN.match(text)):
            text = text[grouped.end() :]
        if self._message is not None:
            if self._continues_message(line, text):
                self._message[1].append(text)
                return
            yield self._finish_error()
        if not text.strip(" \t`"):
            return  # blank, or a Markdown code fence
        if text.startswith("Exception ignored in"):
            self._ignored = True
        if _CHAIN_PATTERN.match(text):
            self._chained = True
        elif ("Traceback" in text or text.startswith("---")) and (header := _HEADER_PATTERN.search(text)):
            self._begin_frames()
            self._read_single_line(text[header.end() :], line)
        elif not self._consume_frame_line(text):
            self._consume_exception_line(text, line)
        elif self._open is not None:
            self._open.at = line

    def finish(self) -> Iterator[RaisedError]:
        """At the log's end: a message still being read, or a traceback cut off before its final line."""
        if self._message is not None:
            yield self._finish_error()
        elif self._open is not None and self._open.frames and self._open.at is not None:
            yield RaisedError("", "", tuple(self._open.frames), self._open.at, self._last if self._chained else None)

    def _begin_frames(self) -> None:
        """Start a traceback; one that is still open is another rank's, and both are read as one merged traceback."""
        if self._open is not None and self._open.frames:
            self._open.merged = True
        else:
            self._open = _OpenTraceback()

    def _read_single_line(self, rest: str, line: LogLine) -> None:
        """Parse a traceback whose line breaks were lost when it was pasted."""
        found = list(_FRAME_INLINE_PATTERN.finditer(rest))
        for frame in found:
            self._add_frame(*frame.groups())
        if found and (final := _INLINE_PATTERN.search(rest, found[-1].end())):
            self._begin_message(final.group(1), final.group(2), line)

    def _continues_message(self, line: LogLine, text: str) -> bool:
        """Whether a line continues the message of the exception above it."""
        assert self._message is not None
        if not text.strip() or len(self._message[1]) >= _MAX_MESSAGE_LENGTH or _MESSAGE_END_PATTERN.search(text):
            return False
        if line.time is not None and self._message[3].time is None:
            return False  # a logger's line: those of the exception itself have no timestamp
        return text[0] in " \t" or not (_BARE_EXCEPTION_PATTERN.match(text) and self._message[1][0])

    def _consume_frame_line(self, text: str) -> bool:
        """Consume the line if it belongs to a traceback's body; True if so."""
        if "File" in text and (found := _FRAME_PATTERN.match(text)):
            self._add_frame(found.group(1), found.group(2), found.group(3) or "")
            assert self._open is not None
            self._open.flush = text[0] not in " \t"
            self._open.indent = len(text) - len(text.lstrip())
            return True
        if self._open is not None and 'File "' in text and (found := _FRAME_AFTER_CODE_PATTERN.match(text)):
            # A line break was lost.
            self._add_code(found.group(1))
            self._add_frame(found.group(2), found.group(3), found.group(4))
            return True
        if text[0] not in " \t" and (found := _IPYTHON_FRAME_PATTERN.match(text)):
            self._add_frame(found["path"], found["a"] or found["b"] or "0", found["function"] or "<module>")
            if self._open is not None:
                self._open.arrows = True
            return True
        if self._open is None:
            # If a box was pasted without its top border, its first frame opens it.
            boxed = _strip_box(text)
            if boxed is None:
                return False
            self._open = _OpenTraceback()
            if not _BOX_FRAME_PATTERN.match(boxed):
                if not _BOX_CODE_PATTERN.match(boxed.strip()):
                    self._open = None
                    return False
                self._add_frame("", "0", "")  # the line with its path is above the pasted part
        if "╰" in text and _BOX_END_PATTERN.match(text):
            return True
        if (boxed := _strip_box(text)) is not None:
            self._consume_boxed_line(boxed)
            return True
        code = _ARROW_CODE_PATTERN.match(text) if text[0] == "-" else None
        if code or (text[0] in " \t" and self._open.frames and not self._is_indented_end(text)):
            if code or not (self._open.arrows or _MARKER_LINE_PATTERN.match(text)):
                self._add_code(code.group(1) if code else text)
            return True
        if self._open.flush and self._open.frames and not self._open.strange and not self._open.frames[-1].code:
            final = _EXCEPTION_LINE_PATTERN.match(text.strip())
            if final is None or not self._is_final_exception(final.group(1)):
                self._add_code(text)
                self._open.flush = False
                return True
        return False

    def _is_indented_end(self, text: str) -> bool:
        """True for the exception's line of a traceback that was indented as a whole when pasted."""
        assert self._open is not None
        left = len(text) - len(text.lstrip()) < self._open.indent
        return left and bool(self._open.frames[-1].code) and _BARE_EXCEPTION_PATTERN.match(text.strip()) is not None

    def _consume_boxed_line(self, line: str) -> None:
        assert self._open is not None
        joined = self._open.wrapped + (" " if self._open.wrapped.endswith(" in") else "") + line.strip()
        if found := _BOX_FRAME_PATTERN.match(joined):
            self._open.wrapped = ""
            self._add_frame(found.group(1), found.group(2), found.group(3))
        elif found := _BOX_CODE_PATTERN.match(line.strip()):
            self._add_code(found.group(1))
        else:
            self._open.wrapped = joined if line.startswith("/") or self._open.wrapped.startswith("/") else ""
            if len(self._open.wrapped) > 500:
                self._open.wrapped = ""

    def _add_frame(self, path: str, line: str, function: str) -> None:
        if self._open is None:
            self._open = _OpenTraceback()
        frame = LogFrame(path, int(line), function.strip())
        frames = self._open.frames
        # Ranks that write to one log without prefixes repeat each other's frames.
        known = frames if self._open.merged else frames[-1:]
        if not any((one.path, one.line, one.function) == (path, frame.line, frame.function) for one in known):
            if len(frames) >= _MAX_FRAMES:
                del frames[_MAX_FRAMES // 2]
            frames.append(frame)
        self._open.strange = 0

    def _add_code(self, text: str) -> None:
        if self._open is not None and self._open.frames and not self._open.frames[-1].code:
            last = self._open.frames[-1]
            self._open.frames[-1] = LogFrame(last.path, last.line, last.function, text.strip())

    def _consume_exception_line(self, text: str, line: LogLine) -> None:
        stripped = text.strip()
        if self._open is not None:
            found = _EXCEPTION_LINE_PATTERN.match(stripped)
            if found and self._is_final_exception(found.group(1)):
                self._begin_message(found.group(1), found.group(2) or "", line)
                return
            self._open.strange += 1
            if self._open.strange > _MAX_INTERLEAVED_LINES:
                self._open = None
        if found := _BARE_EXCEPTION_PATTERN.match(stripped) or _INLINE_PATTERN.search(stripped):
            self._begin_message(found.group(1), found.group(2) or "", line)

    def _is_final_exception(self, name: str) -> bool:
        """True for an exception's name; directly below the frames, other capitalised names count too."""
        assert self._open is not None
        if _BARE_EXCEPTION_PATTERN.match(name):
            return True
        below = bool(self._open.frames) and self._open.strange == 0
        return below and _EXCEPTION_NAME_PATTERN.search(name) is not None and not _NON_EXCEPTION_PATTERN.search(name)

    def _begin_message(self, qualified: str, message: str, line: LogLine) -> None:
        frames = tuple(self._open.frames) if self._open is not None else ()
        self._open = None
        self._message = (qualified, [message], frames, line)

    def _finish_error(self) -> RaisedError:
        assert self._message is not None
        qualified, message, frames, at = self._message
        self._message = None
        cause = self._last if self._chained else None
        self._chained = False
        self._last = RaisedError(qualified, "\n".join(message).strip(), frames, at, cause, self._ignored)
        self._ignored = False
        return self._last
