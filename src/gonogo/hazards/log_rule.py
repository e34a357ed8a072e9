"""Hazards that a log shows by declared signs: words, frames and circumstances, and how sure each sign makes it.

In the head of a page, where nothing else decides::

    log_words = ["fully_shard", "FSDPModule"]
    confirm.en = "…"

    [[signs]]
    says = "cannot import name 'fully_shard'"
    certainty = "certain"

    [[signs]]
    says = "'function' object has no attribute 'FSDPModule'"
    frames = [["fsdp"]]

The first sign that a log shows counts, so the surest stands first. Words and frames are looked for apart as well: logs
are pasted with the last line alone, or with the frames and without it. ``cause`` and ``cures`` are the page's sections
*Why* and *Cure* unless the head has them; they may name groups of the pattern: ``{asked}``.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.match import collapse_whitespace
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import Match, Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard, PageDeclarations
from gonogo.hazards.rule import Findings

Evidence = LoggedError | LineMatch


class Sign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way in which a log shows a hazard: all that is given has to hold."""

    says: Pattern | None = None
    """What an exception says in its message (its type may stand before it), or else a line."""
    certainty: Certainty = Certainty.LIKELY
    types: tuple[str, ...] = ()
    """Of which type it is (``""``: a traceback without its last line); a lone line has none and isn't asked."""
    lines: bool = True
    """Whether a line counts that belongs to no exception of one of these types."""
    frames: tuple[tuple[str, ...], ...] = ()
    """Groups of fragments: the way to it has, of each group, one in a frame's path, function or code."""
    innermost: tuple[str, ...] = ()
    """Fragments, one of which the frame that raised it has; held against it only where the log shows one."""
    outside: tuple[str, ...] = ()
    """Fragments that no frame has."""
    beside: Pattern | None = None
    """What the log, or the setup, says besides."""
    unless: Pattern | None = None
    """What neither of them says."""
    cut: tuple[tuple[str, str], ...] = ()
    """Places, as ``find_truncated_error`` takes them, where a traceback was cut: instead of words."""
    within: int = 2
    """How many of a cut traceback's innermost frames count."""
    cause: Text | None = None
    """What to say of it, where it is not what the hazard says of its other signs."""
    cures: tuple[Text, ...] = ()
    """What to do about it, where that is not what the hazard's other signs need."""

    def shown_in(self, log: FailureLog) -> Evidence | None:
        """What in the log shows it, or None."""
        if self.cut:
            shown: Evidence | None = find_truncated_error(log, *self.cut, max_frames=self.within)
        else:
            shown = self._error_in(log) or (self._line_in(log) if self.lines else None)
        if shown is None or (self.beside is not None and not log_mentions(log, self.beside)):
            return None
        return None if self.unless is not None and log_mentions(log, self.unless) else shown

    def _error_in(self, log: FailureLog) -> LoggedError | None:
        without_last_line = log.cut if "" in self.types or (self.frames and not self.types) else ()
        for error in (*log.errors_of(*self.types), *without_last_line):
            if self.says is not None and match_of(self.says, error) is None:
                continue
            way: LoggedError | FailureLog = error if error.all_frames else log
            if not all(way.passes(*group) for group in self.frames):
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

    def _line_in(self, log: FailureLog) -> LineMatch | None:
        if self.says is None or not all(log.passes(*group) for group in self.frames):
            return None
        if self.outside and log.passes(*self.outside):
            return None
        if self.types and any(match_of(self.says, error) for error in log.errors):
            return None  # it is an exception's line, of another type or from elsewhere
        return log.find(self.says)


class LogPageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page of a :class:`LoggedHazard` may declare."""

    from_sections: ClassVar[tuple[str, ...]] = ("cause", "cures")

    signs: tuple[Sign, ...] | UnsetType = UNSET
    cause: Text | UnsetType = UNSET
    cures: tuple[Text, ...] | UnsetType = UNSET
    confirm: Text | tuple[Text, ...] | UnsetType = UNSET
    anywhere: bool | UnsetType = UNSET


class LoggedHazard(Hazard):
    """A hazard that a log shows by one of its signs."""

    declares = LogPageDeclarations

    signs: tuple[Sign, ...]
    cause: Text
    cures: tuple[Text, ...]
    confirm: Text | tuple[Text, ...] = ()
    """How to make sure of it; shown where it isn't certain."""
    anywhere: bool = False
    """Whether it counts in the log of a program that doesn't train, too."""

    def in_log(self, log: FailureLog) -> Findings:
        """The first of the signs that the log shows."""
        if not self.anywhere and outside_training(log):
            return
        for sign in self.signs:
            evidence = sign.shown_in(log)
            if evidence is not None and (certainty := self.certainty_for(log, sign, evidence)):
                yield self.shown(log, evidence, sign, certainty)
                return

    def shown(self, log: FailureLog, evidence: Evidence, sign: Sign, certainty: Certainty) -> Finding:
        """The finding of a sign that the log shows."""
        match = match_of(sign.says, evidence)
        words = {name: str(value or "?") for name, value in match.groupdict().items()} if match is not None else {}
        return self.log_finding(
            evidence,
            _fill_placeholders(sign.cause, words)
            if sign.cause is not None
            else _fill_placeholders(self.format_cause(match), words),
            cure=tuple(_fill_placeholders(text, words) for text in sign.cures or self.cures),
            certainty=certainty,
            confirm=() if certainty is Certainty.CERTAIN else self.confirm,
        )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """How sure the sign makes it in this log; None where it doesn't count."""
        return sign.certainty

    def format_cause(self, match: Match | None) -> Text:
        """The cause, with the values that the words tell; ``match`` is None where frames alone show it."""
        return self.cause


def _fill_placeholders(text: Text, words: dict[str, str]) -> Text:
    return text.format(**words) if words else text


def match_of(says: Pattern | None, evidence: Evidence) -> Match | None:
    """Where the words stand in what shows them."""
    if says is None:
        return None
    if not isinstance(evidence, LoggedError):
        return says.search(collapse_whitespace(evidence.text))
    message = collapse_whitespace(evidence.message)
    return says.search(message) or says.search(f"{evidence.type}: {message}")


def log_mentions(log: FailureLog, pattern: Pattern) -> bool:
    """Whether the log, or the setup given beside it, has the pattern; versions are written ``name==version``."""
    if log.says(pattern):
        return True
    setup = log.setup
    versions = "\n".join(f"{name}=={version}" for name, version in setup.version_texts.items())
    return any(pattern.search(text) for text in (setup.launch, setup.script, setup.deepspeed_config_text, versions))
