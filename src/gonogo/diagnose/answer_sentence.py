"""The answer at the top of a report: one sentence that says why the run failed, where, and what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gonogo.diagnose.explanations.topics import FailingPart
from gonogo.diagnose.statements import exception_statement
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Certainty, Finding, Severity, Text, translated
from gonogo.finding.failure import CodePlace, FailureFacts
from gonogo.finding.log_answer import Answer, Clue
from gonogo.finding.ranks import ranks_text
from gonogo.judge.cut_short import CUT_LOG_CAUSES

FALLBACKS = ("program-raises", "failure-elsewhere")
"""Hazards that only repeat the exception, or say that the cause is elsewhere."""
_CONFIDENT = (Certainty.CERTAIN, Certainty.LIKELY)
_OOM_PATTERN = lazy_compile(r"Tried to allocate [\d.]+ [KMGT]i?B")


def failure_answer(
    facts: FailureFacts,
    clues: Sequence[Clue],
    findings: Sequence[Finding],
    versions: Mapping[str, str],
    cut_place: CodePlace | None = None,
    parts: Sequence[FailingPart] = (),
) -> Answer | None:
    """The answer to "why did the run fail"; None if the log shows no failure."""
    first = next((one for one in findings if one.severity is Severity.ERROR and one.hazard not in FALLBACKS), None)
    told = first is None or first is findings[0] or first.certainty in _CONFIDENT  # not below what was raised
    cure = lower_first_letter(first.cure[0]) if first is not None and told and first.cure else None
    statement = exception_statement(facts, versions, parts, cure)
    apart = next((clue for clue in clues if clue.decides), None)
    if first is not None and first.cause in CUT_LOG_CAUSES and clues:
        # A leftover line of a truncated failure says less than the clues.
        first, apart = None, apart or clues[0]
    if first is None and statement is None and apart is None and clues:
        apart = clues[0]  # Nothing is known but what connects the lines.
    if first is not None and (first.certainty in _CONFIDENT or (statement is None and apart is None)):
        return Answer(
            because=_as_clause(first),
            at=_finding_or_failure_place(facts, first),
            change=lower_first_letter(first.cure[0]) if first.cure else None,
            sure=first.certainty is Certainty.CERTAIN or _is_certain_oom(facts, first),
            hedge=_HEDGE_WORDS.get(first.certainty),
            hazard=first.hazard,
        )
    if statement is not None and (statement.told or apart is None):
        return Answer(
            because=statement.because,
            at=_place_clause(facts, statement.at),
            change=statement.change,
            sure=statement.sure,
        )
    if apart is None:
        return _truncated_traceback_answer(cut_place) if cut_place is not None else None
    place = apart.places[0] if apart.places else None
    because, change = _split_first_sentence(apart.text)
    if change is None and first is not None and first.cure:
        change = first.cure[0]
    return Answer(
        because=lower_first_letter(because),
        at=Text(f"{place.path}:{place.line}", f"{place.path}:{place.line}") if place is not None else None,
        change=lower_first_letter(change) if change is not None else None,
        sure=apart.decides and "gpu-oom-activations" in apart.against and _shows_oom(facts),
    )


_ATTRIBUTE_READ_PATTERN = lazy_compile(r"(?<![\w.\"'])([A-Za-z_]\w*(?:\.\w+)+)(?![\w.]|\()")


def _truncated_traceback_answer(cut_place: CodePlace) -> Answer:
    """The answer if a traceback was cut off before its exception: the line of code that raised it."""
    code = " ".join(cut_place.code[:200].split())
    read = list(dict.fromkeys(_ATTRIBUTE_READ_PATTERN.findall(code)))[-1:]
    release = f"{cut_place.package} {cut_place.release}".strip()
    return Answer(
        because=translated("`{code}` raised an error, but the log was cut off before the line that names it").format(
            code=code or cut_place.function
        ),
        at=_place_of_code(cut_place),
        change=translated("{look}paste the line after it, which names the error{other}").format(
            look=Text(
                f"look at {read[0]} there (None, empty or of another type); ",
                f"请查看该处的 {read[0]}（None、空或类型不同）；",
            )
            if read
            else "",
            other=Text(
                f"; another release of {release} may not run this line", f"；{release} 的其他版本可能不会执行这一行"
            )
            if cut_place.package
            else "",
        ),
    )


def _place_of_code(place: CodePlace) -> Text:
    release = f"{place.package} {place.release}".strip()
    if place.owner == "user" or not release:
        return Text(f"{_location_text(place)}", f"{_location_text(place)}")
    return Text(f"{_location_text(place)} of {release}", f"{_location_text(place)}（{release}）")


def _split_first_sentence(text: Text) -> tuple[Text, Text | None]:
    """A clue's first sentence, which says what happened, and the rest, which says what to check."""
    first_en, _, rest_en = text.en.partition(". ")
    first_zh, _, rest_zh = text.zh.partition("。")
    if not rest_en or not rest_zh:
        return text, None
    return Text(first_en, first_zh), Text(rest_en, rest_zh)


_HEDGE_WORDS = {Certainty.LIKELY: translated("most likely"), Certainty.POSSIBLE: translated("possibly")}
_PROPER_NOUNS = ("Python", "Ray", "Triton", "NumPy", "Liger", "Accelerate", "Transformers")


def lower_first_letter(text: Text) -> Text:
    """A sentence as a clause: its first letter in lower case if it begins with an ordinary word."""
    first, _, rest = text.en.partition(" ")
    plain = (first[1:].islower() or len(first) == 1) and first.isalpha() and first not in _PROPER_NOUNS
    return Text(f"{first.lower()} {rest}".strip() if plain else text.en, text.zh)


_VERBLESS_PATTERN = lazy_compile(
    r"^(?:No|More|Several|Wrong|Missing|Different|Not|Too) (?!.*\b(?:is|are|was|were|does|do|has|have|can|can't|cannot"
    r"|join|waits?|reads?|exist)\b)"
)


_DESCRIBED_BY_CAUSE = (
    "python-package-version-mismatch",
    "torchvision-of-other-torch",
    "hydra-key-not-in-config-version",
    "checkpoint-recompute-differs",
)
"""Hazards with a general title, whose cause names the packages or the key."""


def _as_clause(finding: Finding) -> Text:
    title = finding.title
    if title.en.startswith("Out of GPU memory in"):
        sizes = _split_first_sentence(lower_first_letter(finding.cause))[0]  # its numbers say more than any kind
        return Text(f"GPU memory ran out: {sizes.en}", f"显存不足：{sizes.zh}")
    if title.en.startswith("Out of GPU memory"):
        return Text(title.en.replace("Out of GPU memory", "GPU memory ran out", 1), title.zh)
    if finding.hazard in _DESCRIBED_BY_CAUSE and finding.cause:
        return _split_first_sentence(lower_first_letter(finding.cause))[0]
    clause = lower_first_letter(title)
    return Text(f"of this: {clause.en}", clause.zh) if _VERBLESS_PATTERN.search(title.en) else clause


def _is_certain_oom(facts: FailureFacts, finding: Finding) -> bool:
    """Whether GPU memory certainly ran out, even if the reason is uncertain."""
    return finding.hazard.startswith("gpu-oom") and _shows_oom(facts)


def _shows_oom(facts: FailureFacts) -> bool:
    return any(_OOM_PATTERN.search(raised.message.text) is not None and raised.frames for raised in facts.chain)


def _finding_or_failure_place(facts: FailureFacts, finding: Finding) -> Text | None:
    """The place where the failure was raised if the finding is about it, or otherwise the finding's own place."""
    span = finding.spans[0] if finding.spans else None
    if span is None:
        return None
    if any((raised.log, raised.line) == (span.path, span.line) for raised in facts.chain) and facts.at is not None:
        return _place_clause(facts)
    return Text(f"{span.path}:{span.line}", f"{span.path}:{span.line}")


def _place_clause(facts: FailureFacts, code_place: CodePlace | None = None) -> Text | None:
    """The clause "in FILE, line N" of a place; None if the failure has none."""
    at, yours = code_place or facts.at, facts.your_line
    if at is None:
        raised = facts.chain[-1] if facts.chain else None
        return Text(f"{raised.log}:{raised.line}", f"{raised.log}:{raised.line}") if raised is not None else None
    ranks = facts.chain[-1].ranks
    named = f" ({ranks_text(ranks).en})" if ranks else ""
    if at.owner == "user":
        return Text(f"your {_location_text(at)}{named}", f"你自己的 {_location_text(at)}{named}")
    release = f"{at.package} {at.release}".strip()
    of = Text(f" of {release}", f"（{release}）") if release else Text("", "")
    called = (
        Text(f", called from your {_location_text(yours)}", f"，由你自己的 {_location_text(yours)} 调用")
        if yours is not None
        else Text("", "")
    )
    return Text(f"{_location_text(at)}{of.en}{called.en}{named}", f"{_location_text(at)}{of.zh}{called.zh}{named}")


def _location_text(place: CodePlace) -> str:
    file = place.path.replace("\\", "/").rpartition("/")[2] if place.owner != "user" else place.path
    line = f"{file}:{place.line}" if place.line else file
    return f"{place.function} ({line})" if place.function and not place.function.startswith("<") else line
