"""The answer that opens a report: the verdict's scope, a one-sentence reason, the key figures, the next command."""

from __future__ import annotations

import msgspec

from gonogo.finding import Certainty, Finding, Report, Severity, Text, Verdict, translated
from gonogo.finding.ranks import capitalize_text
from gonogo.finding.rehearsal import Device, Rehearsal, RehearsalComparison
from gonogo.finding.text import join_texts
from gonogo.finding.words import PHASE_NAMES, size
from gonogo.report.answer.next_step import NextStep, next_step
from gonogo.report.trials.plan import strategy_name

_MAX_NOT_COVERED = 3
"""At most this many gaps are named at the top; all of them are listed under *Not covered*."""
_MAX_REASON_CHARS = 300
_MAX_COMPARED = 6
"""At most this many figures of a comparison are shown at the top, since every rank may differ."""
EVERYTHING = translated("all of the given files")
"""How a gap is named if it leaves nothing examined."""

FILES_ONLY = translated("files only")
REGRESSED = translated("REGRESSED")
_UNCHANGED_VALUE = translated("{now} (as before)")
_BADGES = {"same": translated("SAME"), "better": translated("BETTER"), "regressed": REGRESSED}


class Figure(msgspec.Struct, frozen=True):
    """One figure of the answer; ``share`` is a percentage if the figure is part of a whole."""

    name: Text
    value: Text
    share: float | None = None


class Headline(msgspec.Struct, frozen=True):
    """The answer of a report."""

    scope: Text | None
    """What the verdict covers; None if it says no more than the finding that it rests on."""
    reason: Text
    figures: tuple[Figure, ...]
    next: NextStep
    shown: Report
    """The report without the notes that the reason already states."""


def make_headline(report: Report) -> Headline:
    """Build the answer of a report, in both languages."""
    reason, notes = _reason_and_notes(report)
    shown = msgspec.structs.replace(report, notes=notes)
    return Headline(_scope_text(report), reason, tuple(_figures(report)), next_step(report), shown)


def badge(report: Report, language: str) -> str:
    """The verdict as one word; for a comparison, whether the run got worse."""
    if report.regressed:
        return REGRESSED.in_language(language)
    if report.command == "compare" and report.comparison is not None:
        return _BADGES[report.comparison.judged].in_language(language)
    return report.verdict.value


def verdict_line(report: Report, language: str) -> str:
    """The verdict with its scope, such as ``GO (rank 0 of 8, 2 steps)``."""
    text = badge(report, language)
    scope = _scope_text(report)
    if scope is None:
        return text
    within = scope.in_language(language)
    return f"{text}（{within}）" if language == "zh" else f"{text} ({within})"


def _scope_text(report: Report) -> Text | None:
    if report.command == "compare" and (found := report.comparison) is not None:
        return translated("{now}, was {was}").format(now=found.after_verdict, was=found.before_verdict)
    if report.regressed:
        return translated("{verdict}, but worse than before").format(verdict=report.verdict.value)
    if report.verdict is not Verdict.GO:
        return None
    if report.rehearsal is not None:
        return _rehearsed_ranks(report.rehearsal)
    if report.guarded_run is not None:
        return translated("{ranks} ranks, {steps} steps").format(
            ranks=len(report.guarded_run.ranks), steps=report.guarded_run.steps
        )
    if report.cure is not None:
        if report.cure.needed:
            return translated("rehearsed with the patch")
        return translated("as it is")
    if report.plan is not None:
        return translated("rehearsed on synthetic batches")
    if report.bisection is not None:
        return translated("both releases")
    of_command = {"check": FILES_ONLY, "env": translated("versions only"), "diagnose": translated("these logs")}
    return of_command.get(report.command)


def _rehearsed_ranks(rehearsal: Rehearsal) -> Text:
    ranks = [rank.rank for rank in rehearsal.ranks]
    world = max(rehearsal.world_size, len(ranks))
    names = {"world": world, "steps": rehearsal.steps, "count": len(ranks), "ranks": ", ".join(map(str, ranks))}
    if len(ranks) == world:
        of = translated("all {world} ranks") if world > 1 else translated("1 rank")
    elif len(ranks) == 1:
        of = translated("rank {ranks} of {world}")
    elif len(ranks) <= 3:
        of = translated("ranks {ranks} of {world}")
    else:
        of = translated("{count} of {world} ranks")
    steps = translated("{steps} step") if rehearsal.steps == 1 else translated("{steps} steps")
    run_text = translated("{of}, {steps}").format(of=of.format(**names), steps=steps.format(**names))
    if rehearsal.changed is msgspec.UNSET:
        return run_text
    settings = ", ".join(f"{one.name}={one.value}" for one in rehearsal.changed)
    return translated("with {settings}; {told}").format(settings=settings, told=run_text)


def _reason_and_notes(report: Report) -> tuple[Text, tuple[Text, ...]]:
    """The reason as one sentence, and the notes that it does not state."""
    if report.regressed:
        rest = tuple(note for note in report.notes if note not in report.regressed)
        return capitalize_text(join_texts(report.regressed, "; ", "；")), rest
    if report.command == "compare" and report.comparison is not None:
        return _comparison_reason(report.comparison), report.notes
    if report.command in ("cure", "bisect") and report.notes:  # the last note of these commands is their answer
        *others, answer = report.notes
        return answer, tuple(others)
    if report.answer is not None:
        return report.answer.sentence, report.notes
    return _finding_reason(report), report.notes


def _comparison_reason(comparison: RehearsalComparison) -> Text:
    if comparison.reasons:
        return capitalize_text(join_texts(comparison.reasons, "; ", "；"))
    if not comparison.peaks_judged:
        return translated("The verdict is the same; no rank completed in both, so the peaks show only how far each got")
    return translated("The verdict is the same, and no peak differs by more than {allowed}").format(
        allowed=f"{comparison.growth:g} %"
    )


def _finding_reason(report: Report) -> Text:
    cause = decisive_finding(report)
    if cause is not None:
        return _finding_text(cause)
    if report.verdict is Verdict.CANNOT_TELL:
        return _inconclusive_reason(report)
    if report.plan is not None:
        return _plan_reason(report)
    if report.verdict is Verdict.NO_GO:  # NO-GO without a finding, and not a plan
        return translated("The run will fail")
    return _go_reason(report)


def decisive_finding(report: Report) -> Finding | None:
    """The finding that the verdict rests on, or None."""
    if report.verdict is Verdict.GO:
        return None
    errors = [one for one in report.findings if one.severity is Severity.ERROR]
    sure = [one for one in errors if one.certainty is Certainty.CERTAIN]
    likely = [one for one in errors if one.certainty is Certainty.LIKELY]
    found = sure if report.verdict is Verdict.NO_GO else likely
    return next(iter(found), None)


def _finding_text(finding: Finding) -> Text:
    place = f" ({finding.spans[0].path}:{finding.spans[0].line})" if finding.spans else ""
    where = f"（{finding.spans[0].path}:{finding.spans[0].line}）" if finding.spans else ""
    title = finding.title
    if finding.certainty is Certainty.LIKELY:
        title = translated("Likely: {title}").format(title=title)
    return Text(f"{title.en}{place}", f"{title.zh}{where}")


def _inconclusive_reason(report: Report) -> Text:
    """Why no verdict was possible."""
    interrupted = report.rehearsal is not None and any(one.outcome == "interrupted" for one in report.rehearsal.ranks)
    if interrupted:
        return translated("Interrupted before the rehearsal finished")
    if report.log is not None:
        return translated("No known hazard explains these logs with certainty")
    if report.skipped:
        first = report.skipped[0]
        reason = translated("{what}: {why}").format(what=first.what, why=first.why)
        if first.what == EVERYTHING:
            reason = first.why
        return Text(_truncate_message(reason.en), _truncate_message(reason.zh))
    return translated("Not everything could be examined")


def _truncate_message(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _MAX_REASON_CHARS else f"{line[:_MAX_REASON_CHARS].rstrip()} …"


_ONLY_STRATEGY = translated("The strategy that fits: {name}, micro-batch {micro} x {steps} accumulation steps")
_FASTEST_STRATEGY = translated(
    "Fastest of {count} strategies that fit: {name}, micro-batch {micro} x {steps} accumulation steps"
)
_FIRST_STRATEGY = translated(
    "First choice of {count} strategies that fit: {name}, micro-batch {micro} x {steps} accumulation steps"
)


def _plan_reason(report: Report) -> Text:
    plan = report.plan
    assert plan is not None
    if not plan.fitting:
        return translated("No strategy fits {model} on {gpus} x {accelerator}").format(
            model=plan.model.name, gpus=plan.gpus * plan.nodes, accelerator=plan.accelerator
        )
    best = plan.fitting[0]
    count = len(plan.fitting)
    if plan.solve or any(one.tokens_per_second_per_gpu > best.tokens_per_second_per_gpu for one in plan.fitting):
        text = _FIRST_STRATEGY
    else:
        text = _FASTEST_STRATEGY if count > 1 else _ONLY_STRATEGY
    return text.format(
        count=count,
        name=Text(strategy_name(best, "en"), strategy_name(best, "zh")),
        micro=best.micro_batch,
        steps=best.gradient_accumulation,
    )


def _go_reason(report: Report) -> Text:
    if report.rehearsal is not None:
        return _completed_run_reason(report.rehearsal)
    if report.guarded_run is not None:
        return translated("The training ended on its own, with exit status 0")
    text = {
        "check": translated("Nothing in these files is known to stop the run"),
        "env": translated("No package, driver or GPU here is known to stop a run"),
        "diagnose": translated("Nothing in these logs indicates that the run failed"),
    }
    return text.get(report.command, translated("Nothing was found that would stop the run"))


def _completed_run_reason(rehearsal: Rehearsal) -> Text:
    reached = {phase for rank in rehearsal.ranks for phase in rank.phases}
    after = [name for phase, name in PHASE_NAMES.items() if phase in reached and phase in ("evaluate", "save")]
    steps = max((rank.steps for rank in rehearsal.ranks), default=0)
    parts = [
        translated("{steps} optimizer steps").format(steps=steps) if steps != 1 else translated("1 optimizer step"),
        *after,
    ]
    text = join_texts([PHASE_NAMES["load"], *parts], ", ", "、")
    fullest = _fullest_device(rehearsal)
    free = ""
    if fullest is not None:
        free = size(fullest.free_bytes)
        return translated("It ran to the end ({said}), with {free} of GPU memory to spare").format(said=text, free=free)
    return translated("It ran to the end ({said})").format(said=text)


def _fullest_device(rehearsal: Rehearsal) -> Device | None:
    devices = [device for rank in rehearsal.ranks for device in rank.devices if device.peak_allocated_bytes]
    return max(devices, key=lambda device: device.percent, default=None)


def _figures(report: Report) -> list[Figure]:
    found: list[Figure] = []
    if report.command == "compare" and report.comparison is not None:
        return _comparison_figures(report.comparison)
    if report.rehearsal is not None:
        found += _rehearsal_figures(report.rehearsal)
    elif report.plan is not None and report.plan.fitting:
        best, plan = report.plan.fitting[0], report.plan
        found.append(_memory_figure(_GPU_MEMORY_LABEL, best.reserved_bytes, plan.capacity_bytes))
        found.append(_memory_figure(_HOST_MEMORY_LABEL, best.host_bytes_of_node, plan.host_memory_bytes))
        found += _speed_figures(best.seconds_of_step, best.tokens_per_second_per_gpu)
    elif report.guarded_run is not None:
        ranks = report.guarded_run.ranks
        if gpu := max((rank.gpu_peak_used_bytes or rank.gpu_peak_reserved_bytes for rank in ranks), default=0):
            found.append(Figure(_GPU_MEMORY_LABEL, _untranslated(size(gpu))))
        if host := max((rank.host_peak_bytes for rank in ranks), default=0):
            found.append(Figure(_HOST_MEMORY_PER_RANK, _untranslated(size(host))))
        if step := max((rank.seconds_per_step or 0.0 for rank in ranks), default=0.0):
            found.append(Figure(_STEP_TIME_LABEL, _untranslated(_format_seconds(step))))
    elif report.cure is not None and (seen := report.cure.after or report.cure.before) is not None:
        if seen.peak_reserved_bytes is not None and seen.capacity_bytes:
            used, total = (part + seen.allowance_bytes for part in (seen.peak_reserved_bytes, seen.capacity_bytes))
            found.append(_memory_figure(_GPU_MEMORY_LABEL, used, total))
        if seen.host_peak_bytes:
            found.append(Figure(_HOST_MEMORY_LABEL, _untranslated(size(seen.host_peak_bytes))))
        if seen.seconds_of_step is not None:
            found += _speed_figures(seen.seconds_of_step, None)
    if report.skipped:
        found.append(Figure(_NOT_COVERED, _not_covered_text(report)))
    return found


_GPU_MEMORY_LABEL = translated("GPU memory used")
_HOST_MEMORY_LABEL = translated("host memory used per node")
_HOST_MEMORY_PER_RANK = translated("host memory per rank")
_STEP_TIME_LABEL = translated("time per step")
_TOKENS_PER_SECOND_LABEL = translated("tokens/s per GPU")
_NOT_COVERED = translated("not looked at")


def _rehearsal_figures(rehearsal: Rehearsal) -> list[Figure]:
    found = []
    fullest = _fullest_device(rehearsal)
    if fullest is not None:
        found.append(_memory_figure(_GPU_MEMORY_LABEL, fullest.total_bytes - fullest.free_bytes, fullest.total_bytes))
    node = rehearsal.host_per_node
    if node is not None and node.peak_bytes:
        found.append(_memory_figure(_HOST_MEMORY_LABEL, node.peak_bytes, node.capacity_bytes))
    if rehearsal.seconds_of_step is not None:
        found += _speed_figures(rehearsal.seconds_of_step, rehearsal.tokens_per_second_per_gpu)
    return found


def _comparison_figures(comparison: RehearsalComparison) -> list[Figure]:
    """The figures that the verdict can rest on, and the speed, each before and after."""
    found = []
    for change in comparison.changes:
        if change.is_headline:
            value = translated("{was} → {now}, {change}") if change.change.en else _UNCHANGED_VALUE
            value = value.format(was=change.before, now=change.after, change=change.change)
            found.append(Figure(capitalize_text(change.what), value))
    return found[:_MAX_COMPARED]


def _memory_figure(name: Text, used: int, total: int | None) -> Figure:
    if not total:
        return Figure(name, translated("{used} (capacity not given)").format(used=size(used)))
    share = 100 * used / total
    text = f"{size(used)} / {size(total)}"
    return Figure(name, Text(f"{text} ({share:.0f} %)", f"{text}（{share:.0f} %）"), share)


def _speed_figures(seconds: float, tokens: float | None) -> list[Figure]:
    found = [Figure(_STEP_TIME_LABEL, translated("about {step} (estimate)").format(step=_format_seconds(seconds)))]
    if tokens:
        found.append(Figure(_TOKENS_PER_SECOND_LABEL, translated("about {tokens:,.0f}").format(tokens=tokens)))
    return found


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def _untranslated(text: str) -> Text:
    return Text(text, text)


def _not_covered_text(report: Report) -> Text:
    names = list(dict.fromkeys(skipped.what for skipped in report.skipped))
    shown = join_texts(names[:_MAX_NOT_COVERED], "; ", "；")
    more = len(names) - _MAX_NOT_COVERED
    if more <= 0:
        return shown
    return translated("{shown}; and {more} more").format(shown=shown, more=more)
