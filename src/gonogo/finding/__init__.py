"""The one data model: what gonogo finds, how sure it is, and the verdict that follows."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from gonogo.finding.text import Text as Text
from gonogo.finding.text import translated as translated

if TYPE_CHECKING:
    # Each is imported by those alone that make one or show one.
    from gonogo.finding.bisection import Bisection
    from gonogo.finding.call import Invocation
    from gonogo.finding.cured import Cure
    from gonogo.finding.environment import EnvironmentFacts
    from gonogo.finding.failure import FailureFacts
    from gonogo.finding.guarded_run import GuardedRunSummary
    from gonogo.finding.log_answer import Answer, Clue, SimilarThread
    from gonogo.finding.logs import Logs
    from gonogo.finding.planned import Plan
    from gonogo.finding.rehearsal import Rehearsal, RehearsalComparison
    from gonogo.finding.second_opinion.model_reading import ModelReading
    from gonogo.finding.second_opinion.upstream import UpstreamFact


class Certainty(str, Enum):
    """How sure a finding is: a ``certain`` error makes NO-GO, a ``likely`` one CANNOT-TELL; ``verdict_of`` decides."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Severity(str, Enum):
    """What happens to the run: it fails (error), may fail or wastes (warning), or is merely remarked on (note)."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Level(str, Enum):
    """How a finding is spoken of: an error that is merely possible is a risk."""

    ERROR = "error"
    RISK = "risk"
    WARNING = "warning"
    NOTE = "note"


class Applicability(str, Enum):
    """How a fix may be applied: by the tool alone, by the tool when asked for, or only by a person."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    MANUAL = "manual"


class Verdict(str, Enum):
    """The answer of a command, each with its exit status."""

    GO = "GO"
    NO_GO = "NO-GO"
    CANNOT_TELL = "CANNOT-TELL"

    @property
    def exit_status(self) -> int:
        """0 GO, 1 NO-GO, 3 CANNOT-TELL (2 and 70 belong to the command line itself)."""
        return {Verdict.GO: 0, Verdict.NO_GO: 1, Verdict.CANNOT_TELL: 3}[self]


class Span(msgspec.Struct, frozen=True):
    """A place in a file; ``line`` and ``column`` count from 1, ``label`` says what stands there."""

    path: str
    line: int
    column: int = 1
    text: str = ""
    label: Text | None = None
    end_line: int = 0
    """The last line, and with :attr:`end_column` where the place ends (the column after it); 0 where not known."""
    end_column: int = 0


class Edit(msgspec.Struct, frozen=True):
    """A change of one file: its bytes from ``start`` to before ``end``, which are ``before``, become ``after``."""

    path: str
    start: int
    end: int
    before: bytes
    after: bytes


class Fix(msgspec.Struct, frozen=True):
    """One way to cure a finding. ``diff`` is a unified diff of what ``edits`` do, or empty where there are none."""

    title: Text
    applicability: Applicability = Applicability.MANUAL
    diff: str = ""
    edits: tuple[Edit, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """One hazard met. ``spans[0]`` is the primary place; ``cure`` is a list of steps, best first."""

    hazard: str
    certainty: Certainty
    severity: Severity
    title: Text
    cause: Text
    cure: tuple[Text, ...] = ()
    spans: tuple[Span, ...] = ()
    ranks: tuple[int, ...] = ()
    module: str | None = None
    parameter: str | None = None
    fixes: tuple[Fix, ...] = ()
    sources: tuple[str, ...] = ()
    confirm: tuple[Text, ...] = ()
    """What would make sure of a finding that is not certain."""

    @property
    def level(self) -> Level:
        """What the finding is called in reports: its severity, but for an error that is merely possible."""
        if self.severity is Severity.ERROR and self.certainty is Certainty.POSSIBLE:
            return Level.RISK
        return Level(self.severity.value)

    @property
    def remaining_confirmations(self) -> tuple[Text, ...]:
        """What would make sure of it: nothing, where it is certain."""
        return () if self.certainty is Certainty.CERTAIN else self.confirm


class Skipped(msgspec.Struct, frozen=True):
    """Something that was not checked, and why. A check that did not run is never a pass."""

    what: Text
    why: Text


class Report(msgspec.Struct, frozen=True):
    """What a command answers, with what it saw beside findings: each command fills one of the fields below them."""

    command: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    covered: tuple[Text, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    rehearsal: Rehearsal | None = None
    log: Logs | None = None
    environment: EnvironmentFacts | None = None
    bisection: Bisection | None = None
    guarded_run: GuardedRunSummary | None = None
    plan: Plan | None = None
    cure: Cure | None = None
    notes: tuple[Text, ...] = ()
    similar: tuple[SimilarThread, ...] = ()
    """Public threads that look like a log whose cause is not certain, most alike first."""
    upstream: tuple[UpstreamFact, ...] = ()
    """What other releases of the failing package show, where they were asked."""
    reading: ModelReading | None = None
    """What a language model made of it, where one was asked."""
    pack: str = ""
    """The evidence of a failure for a reader, where it was asked for."""
    answer: Answer | None = None
    """One sentence on a log: why it failed, where, and what to change."""
    clues: tuple[Clue, ...] = ()
    """What speaks for it: facts of the log joined with each other and with the run's settings."""
    failure: FailureFacts | None = None
    """What a log tells of the failure, taken apart; None where it tells of none."""
    regressed: tuple[Text, ...] = ()
    """What is worse than in the earlier report that it was held against: it does not pass, whatever its verdict."""
    comparison: RehearsalComparison | None = None
    """What became of the earlier report, where there was one."""
    call: Invocation | None = None

    @property
    def exit_status(self) -> int:
        """The verdict's; 1 where it is worse than the earlier report, on which alone that of a comparison hangs."""
        if self.command == "compare":
            return 1 if self.regressed else 0
        return 1 if self.regressed else self.verdict.exit_status


_CERTAINTY_ORDER = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.POSSIBLE: 2}
_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of the contract: errors before warnings, surer before less sure, else as they came."""
    return tuple(sorted(findings, key=lambda f: (_SEVERITY_ORDER[f.severity], _CERTAINTY_ORDER[f.certainty])))


def verdict_of(findings: tuple[Finding, ...], *, complete: bool) -> Verdict:
    """NO-GO where an error is certain; CANNOT-TELL where one is likely, or not all that was asked for was covered; GO.

    A risk, which is an error that is merely possible, leaves the verdict as it is: docs/verdict.md.
    """
    sureness = {finding.certainty for finding in findings if finding.severity is Severity.ERROR}
    if Certainty.CERTAIN in sureness:
        return Verdict.NO_GO
    return Verdict.GO if complete and Certainty.LIKELY not in sureness else Verdict.CANNOT_TELL
