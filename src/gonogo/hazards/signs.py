"""Hazards of a log that are declared: by which words, frames and circumstances a log shows one, and how surely.

A class with no line of logic, where that decides::

    class Fsdp2TorchTooOld(LoggedHazard):
        (page, name, title, log_words)
        signs = (
            Sign(says=Pattern(r"cannot import name 'fully_shard'"), certainty=Certainty.CERTAIN),
            Sign(says=Pattern(r"'function' object has no attribute 'FSDPModule'"), frames=("fsdp",)),
        )
        cause = Text("…", "…")
        cures = (Text("…", "…"),)
        confirm = Text("…", "…")

The first sign that a log shows counts, so the surest stands first. Words and frames are looked for apart as well: logs
are pasted with the last line alone, or with the frames and without it.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.cut import cut_in
from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.log.match import one_line
from gonogo.evidence.patterns import Match, Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.rule import Findings

Evidence = LoggedError | Found


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a log shows a hazard: all that is given has to hold."""

    says: Pattern | None = None
    """What an exception says in its message, or else a line."""
    types: tuple[str, ...] = ()
    """Of which type it is; a lone line has none and isn't asked."""
    lines: bool = True
    """Whether a line counts that belongs to no exception of one of these types."""
    frames: tuple[str, ...] = ()
    """Fragments of a frame's path, function or code, one of which the way to it has."""
    innermost: tuple[str, ...] = ()
    """Fragments, one of which the frame that raised it has; held against it only where the log shows one."""
    outside: tuple[str, ...] = ()
    """Fragments that no frame has."""
    beside: Pattern | None = None
    """What the log, or the setup, says besides."""
    unless: Pattern | None = None
    """What neither of them says."""
    cut: tuple[tuple[str, str], ...] = ()
    """Places, as ``cut_in`` takes them, where a traceback was cut: instead of words."""
    within: int = 2
    """How many of a cut traceback's innermost frames count."""
    certainty: Certainty = Certainty.LIKELY

    def shown_in(self, log: FailureLog) -> Evidence | None:
        """What in the log shows it, or None."""
        if self.beside is not None and not told(log, self.beside):
            return None
        if self.unless is not None and told(log, self.unless):
            return None
        if self.cut:
            return cut_in(log, *self.cut, within=self.within)
        return self._error_in(log) or (self._line_in(log) if self.lines else None)

    def _error_in(self, log: FailureLog) -> LoggedError | None:
        for error in log.errors_of(*self.types):
            if self.says is not None and not self.says.search(one_line(error.message)):
                continue
            way: LoggedError | FailureLog = error if error.all_frames else log
            if self.frames and not way.passes(*self.frames):
                continue
            if self.outside and way.passes(*self.outside):
                continue
            last = error.innermost
            if self.innermost and last is not None:
                text = f"{last.path}\n{last.function}\n{last.code}"
                if not any(part in text for part in self.innermost):
                    continue
            return error
        return None

    def _line_in(self, log: FailureLog) -> Found | None:
        if self.says is None or (self.frames and not log.passes(*self.frames)):
            return None
        if self.outside and log.passes(*self.outside):
            return None
        if self.types and any(self.says.search(one_line(error.message)) for error in log.errors):
            return None  # it is an exception's line, of another type or from elsewhere
        return log.find(self.says)


class LoggedHazard(Hazard):
    """A hazard that a log shows by one of its signs."""

    signs: ClassVar[tuple[Sign, ...]]
    cause: ClassVar[Text]
    cures: ClassVar[tuple[Text, ...]]
    confirm: ClassVar[Text]
    anywhere: ClassVar[bool] = False
    """Whether it counts in the log of a program that doesn't train, too."""

    def in_log(self, log: FailureLog) -> Findings:
        """The first of the signs that the log shows."""
        if not self.anywhere and outside_training(log):
            return
        for sign in self.signs:
            evidence = sign.shown_in(log)
            if evidence is not None:
                yield self.shown(log, evidence, sign)
                return

    def shown(self, log: FailureLog, evidence: Evidence, sign: Sign) -> Finding:
        """The finding of a sign that the log shows."""
        return self.log_finding(
            evidence,
            self.cause_told(match_of(sign.says, evidence)),
            cure=self.cures,
            certainty=sign.certainty,
            confirm=self.confirm,
        )

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the values that the words tell; ``match`` is None where frames alone show it."""
        return self.cause


def match_of(says: Pattern | None, evidence: Evidence) -> Match | None:
    """Where the words stand in what shows them."""
    if says is None:
        return None
    return says.search(one_line(evidence.message if isinstance(evidence, LoggedError) else evidence.text))


def told(log: FailureLog, pattern: Pattern) -> bool:
    """Whether the log, or the setup given beside it, has the pattern; versions are written ``name==version``."""
    if log.says(pattern):
        return True
    setup = log.setup
    versions = "\n".join(f"{name}=={version}" for name, version in setup.version_texts.items())
    return any(pattern.search(text) for text in (setup.launch, setup.script, setup.deepspeed_config_text, versions))
