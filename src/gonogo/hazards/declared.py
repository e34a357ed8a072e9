"""A hazard whose failure says in a log what it is: which words, how sure they make it, and what to say of them.

A class with no line of logic, where nothing else decides::

    class RayVersionMismatch(DeclaredInLog):
        (page, name, title)
        signs = (Sign(Pattern(r"Version mismatch: The cluster was started with"), Certainty.CERTAIN),)
        cause = Text("…", "…")
        cure = (Text("…", "…"),)

A sign is the message's line; or, for tracebacks that were cut before their last line or have another one, frames that
only this failure passes. The first sign that is found decides, so the surest stands first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.rule import Pattern


class Sign(msgspec.Struct, frozen=True):
    """One way in which a log shows the failure; what is left out is not asked."""

    says: Pattern | None = None
    """What a line, or an exception's message, says."""
    certainty: Certainty = Certainty.LIKELY
    passes: tuple[tuple[str, ...], ...] = ()
    """Frames of one traceback: each group has a fragment that some frame's path, function or code has."""
    types: tuple[str, ...] = ()
    """Exceptions that count; ``""`` is a traceback without its last line."""
    beside: Pattern | None = None
    """What some other line, or the launch, the script or the config given with the log, has to say."""
    without: Pattern | None = None
    """What no line may say: it would be another failure."""
    cause: Text | None = None
    """What to say of it, where it is not what the hazard says of the others."""

    def found(self, log: FailureLog) -> Found | LoggedError | None:
        """The evidence, or None."""
        if self.beside is not None and log.find(self.beside) is None and not stated_beside(log, self.beside):
            return None
        if self.without is not None and log.find(self.without) is not None:
            return None
        if not self.passes and not self.types:
            return log.find(self.says) if self.says is not None else None
        return next((error for error in (*log.errors, *log.cut) if self._is(error)), None)

    def _is(self, error: LoggedError) -> bool:
        if self.types and error.type not in self.types:
            return False
        if self.says is not None and self.says.search(f"{error.type}: {error.message}") is None:
            return False
        return all(error.passes(*group) for group in self.passes)


class DeclaredInLog(Hazard):
    """The base of such hazards. The texts may name the groups of the pattern that matched: ``{asked}``."""

    signs: ClassVar[tuple[Sign, ...]]
    cause: ClassVar[Text]
    cure: ClassVar[tuple[Text, ...]]
    confirm: ClassVar[tuple[Text, ...]] = ()
    """How to make sure; shown where it isn't certain."""

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """The first sign that the log shows."""
        for sign in self.signs:
            if (evidence := sign.found(log)) is not None and (certainty := self.sureness(log, sign, evidence)):
                words = _groups(sign, evidence)
                yield self.log_finding(
                    evidence,
                    (sign.cause or self.cause).format(**words),
                    cure=tuple(text.format(**words) for text in self.cure),
                    certainty=certainty,
                    confirm=() if certainty is Certainty.CERTAIN else self.confirm,
                )
                return

    def sureness(self, log: FailureLog, sign: Sign, evidence: Found | LoggedError) -> Certainty | None:
        """How sure the sign makes it in this log; None where it doesn't count."""
        return sign.certainty


def stated_beside(log: FailureLog, pattern: Pattern) -> bool:
    """Whether the launch, the script or the config that was given with the log has the pattern."""
    setup = log.setup
    return any(pattern.search(text) for text in (setup.launch, setup.script, setup.deepspeed_config_text) if text)


def _groups(sign: Sign, evidence: Found | LoggedError) -> dict[str, object]:
    text = evidence.text if isinstance(evidence, Found) else f"{evidence.type}: {evidence.message}"
    match = sign.says.search(text) if sign.says is not None else None
    return {name: value or "?" for name, value in match.groupdict().items()} if match is not None else {}
