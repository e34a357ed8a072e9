"""The shared data model: findings, how certain they are, and the verdict that follows from them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from gonogo.finding.remedy import GapRemedy
from gonogo.finding.text import Text as Text
from gonogo.finding.text import translated as translated

if TYPE_CHECKING:
    # Each is only imported by the code that creates or renders it.
    from gonogo.finding.call import Invocation
    from gonogo.finding.environment import EnvironmentFacts
    from gonogo.finding.failure import FailureFacts
    from gonogo.finding.guarded_run import GuardedRunSummary
    from gonogo.finding.log_answer import Answer, Clue, SimilarThread
    from gonogo.finding.logs import Logs
    from gonogo.finding.rehearsal import Rehearsal, RehearsalComparison
    from gonogo.finding.second_opinion.model_reading import ModelReading
    from gonogo.finding.second_opinion.upstream import UpstreamFact
    from gonogo.finding.trials.bisection import Bisection
    from gonogo.finding.trials.cured import Cure
    from gonogo.finding.trials.planned import Plan


class UserError(Exception):
    """Unusable input: shown as one line, never as a traceback; the exit status is 2.

    ``text`` names the file, the value and the fix, in both languages.
    """

    def __init__(self, text: Text) -> None:
        super().__init__(text.en)
        self.text = text

    def reworded(self, text: Text) -> UserError:
        """The same error, of the same kind, with another text."""
        self.text, self.args = text, (text.en,)
        return self


class Certainty(str, Enum):
    """How certain a finding is: a ``certain`` error makes NO-GO, a ``likely`` one CANNOT-TELL; see ``verdict_of``."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Severity(str, Enum):
    """The consequence for the run: it fails (error), may fail or wastes resources (warning), or none (note)."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Level(str, Enum):
    """How a finding is labelled: an error that is merely possible is a risk."""

    ERROR = "error"
    RISK = "risk"
    WARNING = "warning"
    NOTE = "note"


class Applicability(str, Enum):
    """How a fix may be applied: automatically, automatically on request, or only by hand."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    MANUAL = "manual"


class Verdict(str, Enum):
    """The verdict of a command, which determines its exit status."""

    GO = "GO"
    NO_GO = "NO-GO"
    CANNOT_TELL = "CANNOT-TELL"

    @property
    def exit_status(self) -> int:
        """0 for GO, 1 for NO-GO, 3 for CANNOT-TELL (2 and 70 are used by the command line itself)."""
        return {Verdict.GO: 0, Verdict.NO_GO: 1, Verdict.CANNOT_TELL: 3}[self]


class Span(msgspec.Struct, frozen=True):
    """A place in a file; ``line`` and ``column`` count from 1, ``label`` describes what is there."""

    path: str
    line: int
    column: int = 1
    text: str = ""
    label: Text | None = None
    end_line: int = 0
    """With :attr:`end_column` (the column after the end), the last line of the place; 0 if unknown."""
    end_column: int = 0


class Edit(msgspec.Struct, frozen=True):
    """An edit of one file: it replaces ``before``, the bytes from ``start`` to before ``end``, by ``after``."""

    path: str
    start: int
    end: int
    before: bytes
    after: bytes


class Fix(msgspec.Struct, frozen=True):
    """One way to cure a finding. ``diff`` is the unified diff of ``edits``, empty if there are none."""

    title: Text
    applicability: Applicability = Applicability.MANUAL
    diff: str = ""
    edits: tuple[Edit, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """A hazard that was found. ``spans[0]`` is the primary place; ``cure`` is a list of steps, best first."""

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
    """How to confirm a finding that isn't certain."""

    @property
    def level(self) -> Level:
        """The finding's label in reports: its severity, except that a merely possible error is a risk."""
        if self.severity is Severity.ERROR and self.certainty is Certainty.POSSIBLE:
            return Level.RISK
        return Level(self.severity.value)

    @property
    def remaining_confirmations(self) -> tuple[Text, ...]:
        """How to confirm it; empty if it is certain."""
        return () if self.certainty is Certainty.CERTAIN else self.confirm


class Skipped(msgspec.Struct, frozen=True):
    """Something that was not checked, and why. A check that did not run is never a pass."""

    what: Text
    why: Text
    remedy: GapRemedy | None = None
    """What would close the gap; only of a gap that keeps the verdict from being GO or NO-GO, if anything is known."""
    beyond_request: bool = False
    """Whether the request leaves it out (other ranks, longer samples), so that it decides no verdict."""


class Report(msgspec.Struct, frozen=True):
    """The result of a command: verdict and findings, and what the command observed, in the field of its own."""

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
    """Public threads similar to a log whose cause isn't certain, most similar first."""
    upstream: tuple[UpstreamFact, ...] = ()
    """Facts from other releases of the failing package, if requested."""
    reading: ModelReading | None = None
    """A language model's interpretation, if requested."""
    pack: str = ""
    """The evidence of a failure, packed for a reader, if requested."""
    answer: Answer | None = None
    """One sentence on a log: why it failed, where, and what to change."""
    clues: tuple[Clue, ...] = ()
    """Evidence for the answer: facts of the log, combined with each other and with the run's settings."""
    failure: FailureFacts | None = None
    """The facts of the failure in a log; None if it shows none."""
    regressed: tuple[Text, ...] = ()
    """What is worse than in the earlier report used for comparison: if any, the run fails, whatever its verdict."""
    comparison: RehearsalComparison | None = None
    """The comparison with an earlier report, if there is one."""
    call: Invocation | None = None

    @property
    def exit_status(self) -> int:
        """The verdict's exit status, or 1 if anything regressed; for ``compare``, only the latter counts."""
        if self.command == "compare":
            return 1 if self.regressed else 0
        return 1 if self.regressed else self.verdict.exit_status


_CERTAINTY_ORDER = {Certainty.CERTAIN: 0, Certainty.LIKELY: 1, Certainty.POSSIBLE: 2}
_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """Findings in the documented order: errors before warnings, more certain ones first, else in the given order."""
    return tuple(sorted(findings, key=lambda f: (_SEVERITY_ORDER[f.severity], _CERTAINTY_ORDER[f.certainty])))


def verdict_of(findings: tuple[Finding, ...], *, complete: bool) -> Verdict:
    """NO-GO if an error is certain; CANNOT-TELL if one is likely or not everything was covered; else GO.

    A risk, that is, an error that is merely possible, doesn't affect the verdict: docs/verdict.md.
    """
    sureness = {finding.certainty for finding in findings if finding.severity is Severity.ERROR}
    if Certainty.CERTAIN in sureness:
        return Verdict.NO_GO
    return Verdict.GO if complete and Certainty.LIKELY not in sureness else Verdict.CANNOT_TELL
