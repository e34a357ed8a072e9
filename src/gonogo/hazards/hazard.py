"""The base class of all hazards: keys that any page may declare, and the handlers for each kind of evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError, span_of_line
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.patterns import Pattern
from gonogo.finding import Applicability, Certainty, Edit, Finding, Fix, Severity, Span, Text, translated
from gonogo.hazards.page import HazardPage
from gonogo.hazards.refusal import Refusal

if TYPE_CHECKING:  # a log alone needs none of these
    from gonogo.evidence.config.deepspeed import DeepSpeedConfig
    from gonogo.evidence.environment.environment import Environment
    from gonogo.evidence.guarded.guarded_run import GuardedRun
    from gonogo.evidence.launch.launch import Launch
    from gonogo.evidence.rehearsal.rank_divergence import RankDivergence
    from gonogo.evidence.rehearsal.record import RehearsalRecord
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script
    from gonogo.finding.divergence import Side


_MAX_SPANS = 20
"""The most places shown for one finding: a broken host list has one per line."""

One = TypeVar("One", Text, Span, Fix)
Findings = Iterator[Finding]
"""What a handler returns."""


class PageDeclarations(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the head of any page may declare; each key becomes an attribute of its hazard with the same name."""

    from_sections: ClassVar[tuple[str, ...]] = ()
    """Keys that default to sections of the page."""

    title: Text
    fallback: bool | UnsetType = UNSET
    explains_failure: bool | UnsetType = UNSET
    raises: bool | UnsetType = UNSET
    refusal: Refusal | UnsetType = UNSET
    log_words: tuple[str, ...] | UnsetType = UNSET
    ends_at: tuple[tuple[str, str], ...] | UnsetType = UNSET
    traces: tuple[str, ...] | UnsetType = UNSET
    yields_to: tuple[str, ...] | UnsetType = UNSET
    consequence: bool | UnsetType = UNSET
    formerly: tuple[str, ...] | UnsetType = UNSET
    about: tuple[str, ...] | UnsetType = UNSET
    setting: str | UnsetType = UNSET
    needs: tuple[str, ...] | UnsetType = UNSET
    severity: Severity | UnsetType = UNSET
    certainty: Certainty | UnsetType = UNSET
    cures: tuple[Text, ...] | UnsetType = UNSET
    confirm: Text | tuple[Text, ...] | UnsetType = UNSET
    texts: dict[str, Text] | UnsetType = UNSET
    patterns: dict[str, Pattern] | UnsetType = UNSET


class Hazard:
    """One known way in which a distributed fine-tune fails, with its page.

    A page alone needs no class of its own. If code has to decide, a subclass beside the page overrides the handlers
    (``in_…``) that apply; file, class and hazard share one name: ``zero3_moe_hang.md``, ``zero3_moe_hang.py``,
    ``Zero3MoeHang``, ``zero3-moe-hang``. Keys declared in the page become attributes of the hazard; what only code
    can express is an attribute of the class.
    """

    declares: ClassVar[type[PageDeclarations]] = PageDeclarations
    """What the head of its page may declare."""

    name: str
    title: Text
    formerly: tuple[str, ...] = ()
    """Names that it had in earlier releases, under which `gonogo explain` still finds it."""
    fallback: bool = False
    """Whether it is asked only if no other hazard has explained a failed rank."""
    explains_failure: bool = True
    """False if the hazard's errors may accompany the exception that ended a rank without explaining it."""

    raises: bool = False
    """True if the code that its errors in files point at always raises an exception, even on virtual accelerators.

    A rehearsal that got past that code then refutes the error.
    """

    refusal: Refusal | None = None
    """A library's error message for this: a log with it shows the hazard, unless ``in_log`` is overridden."""

    log_words: tuple[str, ...] = ()
    """Literals in the log lines that the hazard looks for, if ``failure_log.GENERIC_WORDS`` has none for them."""
    ends_at: tuple[tuple[str, str], ...] = ()
    """Where a traceback ends that was cut before the decisive line.

    A fragment of the innermost frame's path, and one of its function or code. The hazard is then possible if nothing
    else explains the log.
    """
    traces: tuple[str, ...] = ()
    """Literals of lines near the decisive one (further down its message, or the code that raises it).

    The hazard is possible if a log was cut so that only these are left.
    """
    yields_to: tuple[str, ...] = ()
    """Hazards whose confident finding in a log or a rehearsal already explains this one's more general finding."""
    consequence: bool = False
    """True if another rank's failure or an earlier error can cause the same lines in a log.

    Such an error takes precedence, and this hazard stays possible; likewise beside a hazard in ``yields_to``.
    """

    about: tuple[str, ...] = ()
    """Libraries and engines that it is about: a log that mentions none of them doesn't suggest it.

    :mod:`gonogo.judge.obligations` says by which words a log mentions them, where it isn't the name alone.
    """
    setting: str = ""
    """A setting without which it can't happen: it is only possible where nothing shows that setting."""
    needs: tuple[str, ...] | None = None
    """The obligations on which a certain finding in a rehearsal depends.

    None: derived from how it judges (:func:`gonogo.rehearse.limits.certificate.hazard_obligations`). Without
    ``made``, the text of generated rows has no part in it, and the columns of a published data set are the real ones.
    """

    severity: Severity = Severity.ERROR
    """The severity of its findings that don't say another; likewise the next three."""
    certainty: Certainty | None = None
    """None: certain, unless the kind of hazard derives it from something."""
    cures: tuple[Text, ...] = ()
    """None declared: the items of the page's section *Cure*."""
    confirm: Text | tuple[Text, ...] = ()
    """How to make sure; shown if the finding isn't certain."""
    texts: dict[str, Text]
    """Sentences of its findings, for code beside the page, by name."""
    patterns: dict[str, Pattern]
    """Patterns that code beside the page looks for, by name."""

    def __init__(self, page: HazardPage) -> None:
        """Raises UserError if the page's head does not match :attr:`declares`."""
        self.page = page
        self.name = page.name
        declared = page.parse_head(self.declares)
        for key in declared.__struct_fields__:
            value = getattr(declared, key)
            if value is not UNSET:
                setattr(self, key, value)
            elif key in declared.from_sections and not getattr(type(self), key, ()):
                setattr(self, key, page.why if key == "cause" else page.cures)

    @property
    def theme(self) -> str:
        """The folder that its page is in: device, zero3, memory …"""
        return self.page.theme

    @property
    def sources(self) -> tuple[str, ...]:
        """The addresses under the page's last heading."""
        return self.page.sources

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Findings in a run's DeepSpeed config."""
        yield from ()

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """Findings in the command that launches a run."""
        yield from ()

    def in_script(self, script: Script, run: Run) -> Findings:
        """Findings in one of a run's Python files."""
        yield from ()

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """Findings in the package versions and the machine of a run."""
        yield from ()

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Findings in a rehearsal's record."""
        yield from ()

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Fixes in the run's files for what :meth:`in_rehearsal` found, the smallest first.

        `gonogo cure` rehearses each of them; paths in ``record`` are absolute, those of ``run`` relative to its
        folder.
        """
        yield from ()

    def in_log(self, log: FailureLog) -> Findings:
        """Findings in a failed run's logs: by default, those of its ``refusal``."""
        shown = self.refusal.find_evidence(log) if self.refusal is not None else None
        if shown is not None:
            yield self.log_finding(
                shown[0], self.page.why, cure=self.page.cure, certainty=shown[1], severity=Severity.ERROR, confirm=()
            )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """Findings in what the guard of a live training recorded, while it runs or once it has ended."""
        yield from ()

    def finding(
        self,
        cause: Text | None = None,
        *,
        title: Text | None = None,
        certainty: Certainty | None = None,
        severity: Severity | None = None,
        cure: Text | tuple[Text, ...] | None = None,
        spans: Span | tuple[Span | None, ...] | None = (),
        ranks: tuple[int, ...] = (),
        module: str | None = None,
        parameter: str | None = None,
        confirm: Text | tuple[Text, ...] | None = None,
        fixes: Fix | tuple[Fix, ...] | None = (),
    ) -> Finding:
        """A finding of this hazard; what isn't passed is what the page declares: ``cause`` is its text of that name.

        A single value may be passed without a tuple, or as None, for example a span that is unknown or a fix that
        can't be made.
        """
        return Finding(
            hazard=self.name,
            certainty=certainty or self.certainty or Certainty.CERTAIN,
            severity=severity or self.severity,
            title=title or self.title,
            cause=self.texts["cause"] if cause is None else cause,
            cure=_as_tuple((self.cures or self.page.cures) if cure is None else cure),
            spans=_as_tuple(spans)[:_MAX_SPANS],
            ranks=ranks,
            module=module,
            parameter=parameter,
            sources=self.sources,
            confirm=_as_tuple(self.confirm if confirm is None else confirm),
            fixes=_as_tuple(fixes),
        )

    def divergence_finding(
        self, divergence: RankDivergence, side: Side, *, cure: Text | tuple[Text, ...], reason: Text | None = None
    ) -> Finding:
        """A finding about diverging ranks: what each does, why, and the result; ``telling``'s call comes first."""
        from gonogo.evidence.rehearsal.divergence_text import describe_divergence, divergence_spans

        call = side.call
        parameters = call.parameters if call is not None else ()
        return self.finding(
            describe_divergence(divergence, side, reason),
            certainty=divergence.certainty,
            cure=cure,
            spans=divergence_spans(divergence, side),
            ranks=divergence.ranks,
            module=call.module if call is not None else None,
            parameter=next((name for name in parameters if not name.startswith("#")), None),
        )

    @staticmethod
    def fix(title: Text, *edits: Edit | None, safe: bool = True) -> Fix:
        """A cure that gonogo can apply itself. ``safe``: it changes only what is certainly broken.

        If one of the edits can't be made (None, or without effect), the user has to apply it.
        """
        made = tuple(edit for edit in edits if edit is not None and edit.before != edit.after)
        if len(made) < len(edits) or not made:
            return Fix(title)
        return Fix(title, Applicability.SAFE if safe else Applicability.UNSAFE, edits=made)

    def log_finding(
        self,
        evidence: LoggedError | LineMatch | LogLine,
        cause: Text | None = None,
        *,
        cure: Text | tuple[Text, ...] | None = None,
        certainty: Certainty | None = None,
        severity: Severity | None = None,
        title: Text | None = None,
        extra_evidence: tuple[LoggedError | LineMatch | LogLine, ...] = (),
        ranks: tuple[int, ...] = (),
        module: str | None = None,
        parameter: str | None = None,
        confirm: Text | tuple[Text, ...] | None = None,
    ) -> Finding:
        """A finding in a log; its places are the evidence's lines, the most relevant first.

        Ranks default to the evidence's, the cause to the page's text ``cause_in_log`` or ``cause``.
        """
        return self.finding(
            self.texts.get("cause_in_log") if cause is None else cause,
            title=title,
            certainty=certainty,
            severity=severity,
            cure=cure,
            spans=tuple(_evidence_span(one) for one in (evidence, *extra_evidence)),
            ranks=ranks or _evidence_ranks(evidence),
            module=module,
            parameter=parameter,
            confirm=confirm,
        )


def _as_tuple(value: One | tuple[One | None, ...] | None) -> tuple[One, ...]:
    return tuple(one for one in (value if isinstance(value, tuple) else (value,)) if one is not None)


def _evidence_span(evidence: LoggedError | LineMatch | LogLine) -> Span:
    if isinstance(evidence, LoggedError):
        span = span_of_line(evidence.raised.at)
        frame = evidence.innermost
        if frame is None:
            return span
        place = f"{frame.path}:{frame.line}" if frame.line else frame.path
        label = translated("raised at {place} in {function}").format(place=place, function=frame.function or "?")
        return Span(span.path, span.line, text=span.text, label=label)
    return span_of_line(evidence.line if isinstance(evidence, LineMatch) else evidence)


def _evidence_ranks(evidence: LoggedError | LineMatch | LogLine) -> tuple[int, ...]:
    if isinstance(evidence, LoggedError):
        return evidence.ranks
    rank = (evidence.line if isinstance(evidence, LineMatch) else evidence).rank
    return () if rank is None else (rank,)
