"""Hazards of a log declared in a page: signs with message, frames and context, each with its certainty.

In the head of a page, if nothing else decides::

    log_words = ["fully_shard", "FSDPModule"]
    confirm.en = "…"

    [[signs]]
    says = "cannot import name 'fully_shard'"
    certainty = "certain"

    [[signs]]
    says = "'function' object has no attribute 'FSDPModule'"
    frames = [["fsdp"]]

The first sign that a log shows counts, so the most certain comes first. Message and frames are also searched
separately: logs are often pasted with the last line only, or with the frames but without it. ``cause`` and ``cures``
are the page's sections *Why* and *Cure* unless the head has them; they may name groups of the pattern: ``{asked}``.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.match import collapse_whitespace
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.evidence.patterns import Match, Pattern
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Findings, Hazard, PageDeclarations

Evidence = LoggedError | LineMatch


class Sign(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way in which a log shows a hazard: all given conditions must hold."""

    says: Pattern | None = None
    """Pattern of an exception's message (possibly preceded by its type), or else of a line."""
    certainty: Certainty = Certainty.LIKELY
    types: tuple[str, ...] = ()
    """Types of the exception (``""``: a traceback without its last line); not checked for a lone line."""
    lines: bool = True
    """Whether a line outside of exceptions of these types counts."""
    frames: tuple[tuple[str, ...], ...] = ()
    """Groups of fragments: for each group, a frame has one of them in its path, function or code."""
    innermost: tuple[str, ...] = ()
    """Fragments, one of which is in the frame that raised it; not checked if the log shows no frame."""
    outside: tuple[str, ...] = ()
    """Fragments that no frame has."""
    beside: Pattern | None = None
    """Another pattern that the log or the setup must contain."""
    unless: Pattern | None = None
    """A pattern that neither of them may contain."""
    cut: tuple[tuple[str, str], ...] = ()
    """Places where a traceback was truncated, as for ``find_truncated_error``; used instead of a message."""
    within: int = 2
    """How many of a truncated traceback's innermost frames count."""
    cause: Text | None = None
    """The cause for this sign, if it differs from the hazard's."""
    cures: tuple[Text, ...] = ()
    """The cures for this sign, if they differ from the hazard's."""

    def find_evidence(self, log: FailureLog) -> Evidence | None:
        """The evidence for the sign in the log, or None."""
        if self.cut:
            shown: Evidence | None = find_truncated_error(log, *self.cut, max_frames=self.within)
        else:
            shown = self._find_error(log) or (self._find_line(log) if self.lines else None)
        if shown is None or (self.beside is not None and not log_mentions(log, self.beside)):
            return None
        return None if self.unless is not None and log_mentions(log, self.unless) else shown

    def _find_error(self, log: FailureLog) -> LoggedError | None:
        without_last_line = log.truncated_errors if "" in self.types or (self.frames and not self.types) else ()
        for error in (*log.errors_of(*self.types), *without_last_line):
            if self.says is not None and match_in_evidence(self.says, error) is None:
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

    def _find_line(self, log: FailureLog) -> LineMatch | None:
        if self.says is None or not all(log.passes(*group) for group in self.frames):
            return None
        if self.outside and log.passes(*self.outside):
            return None
        if self.types and any(match_in_evidence(self.says, error) for error in log.errors):
            return None  # the line belongs to an exception of another type or with other frames
        return log.find(self.says)


class LogPageDeclarations(PageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page of a :class:`LoggedHazard` may declare."""

    from_sections: ClassVar[tuple[str, ...]] = ("cause", "cures")

    signs: tuple[Sign, ...] | UnsetType = UNSET
    cause: Text | UnsetType = UNSET
    anywhere: bool | UnsetType = UNSET


class LoggedHazard(Hazard):
    """A hazard that a log shows by one of its signs."""

    declares = LogPageDeclarations

    signs: tuple[Sign, ...]
    cause: Text
    cures: tuple[Text, ...]
    anywhere: bool = False
    """Whether logs of programs that don't train count, too."""

    def in_log(self, log: FailureLog) -> Findings:
        """The first of the signs that the log shows."""
        if not self.anywhere and is_outside_training(log):
            return
        for sign in self.signs:
            evidence = sign.find_evidence(log)
            if evidence is not None and (certainty := self.certainty_for(log, sign, evidence)):
                yield self.finding_of_sign(log, evidence, sign, certainty)
                return

    def finding_of_sign(self, log: FailureLog, evidence: Evidence, sign: Sign, certainty: Certainty) -> Finding:
        """The finding of a sign that the log shows."""
        match = match_in_evidence(sign.says, evidence)
        words = {name: str(value or "?") for name, value in match.groupdict().items()} if match is not None else {}
        return self.log_finding(
            evidence,
            _fill_placeholders(sign.cause, words)
            if sign.cause is not None
            else _fill_placeholders(self.format_cause(match), words),
            cure=tuple(_fill_placeholders(text, words) for text in sign.cures or self.cures),
            certainty=certainty,
        )

    def certainty_for(self, log: FailureLog, sign: Sign, evidence: Evidence) -> Certainty | None:
        """The certainty of the sign in this log; None if it doesn't count."""
        return sign.certainty

    def format_cause(self, match: Match | None) -> Text:
        """The cause, with values from the message; ``match`` is None if only frames show it."""
        return self.cause


def _fill_placeholders(text: Text, words: dict[str, str]) -> Text:
    return text.format(**words) if words else text


def match_in_evidence(text: Pattern | None, evidence: Evidence) -> Match | None:
    """The match of the pattern in the evidence."""
    if text is None:
        return None
    if not isinstance(evidence, LoggedError):
        return text.search(collapse_whitespace(evidence.text))
    message = evidence.flat_message
    return text.search(message) or text.search(f"{evidence.type}: {message}")


def log_mentions(log: FailureLog, pattern: Pattern) -> bool:
    """Whether the log, or the setup given with it, contains the pattern; versions are written ``name==version``."""
    if log.says(pattern):
        return True
    setup = log.setup
    versions = "\n".join(f"{name}=={version}" for name, version in setup.version_texts.items())
    return any(pattern.search(text) for text in (setup.launch, setup.script, setup.deepspeed_config_text, versions))
