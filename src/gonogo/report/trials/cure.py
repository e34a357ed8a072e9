"""A cure in a report: the steps with their diffs, what else to do, before and after, what was tried."""

from __future__ import annotations

import shlex

import msgspec

from gonogo.finding import Text, translated
from gonogo.finding.trials.cured import Cure, CureStep, TrialOutcome
from gonogo.finding.words import size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean, clean_line

_CURE_STEP_TITLE = translated("Cure step {number}: {title}")
_STEP_REASON = translated("{hazard}: {why}")
_UNSAFE = translated("this change does more than fix the error: review it")
_TO_DO = translated("Next steps")
_PATCH = translated("the patch is in {file}; in {folder}, run one of")
_GIT, _PLAIN = translated("git apply {file}"), translated("patch -p1 < {file}")
_PATCH_APPLIED = translated("the patch {file} has been applied")
_INSTALL = translated("install: pip install {pins}")
_EXPORT = translated("set: export {name}={value}")
_LAUNCH = translated("launch: {command}")
_COMPARISON_TITLE = translated("Before and after")
_COLUMNS = (
    Text("", ""),
    translated("verdict"),
    translated("blocker"),
    translated("ranks"),
    translated("GPU memory"),
    translated("host memory per node"),
    translated("step", "duration"),
)
_BEFORE, _AFTER, _OR = translated("before"), translated("after"), translated("alternative: {title}")
_ROOFLINE = translated("GPU memory: reserved / usable; step time: roofline estimate, for comparison only")
_REJECTED_TITLE = translated("Tried and rejected")
_TRIED_COLUMNS = (translated("against"), translated("change", "edit"), translated("outcome"))
_COST = translated("{count} rehearsals, {seconds:.0f} s")


class Section(msgspec.Struct, frozen=True):
    """A heading, sentences, and optionally a diff below them."""

    title: str
    said: tuple[str, ...]
    diff: str = ""


def cure_summary(cure: Cure, language: str) -> str:
    """One line on how much was rehearsed."""
    return _COST.format(count=cure.rehearsals, seconds=cure.seconds).in_language(language)


def cure_sections(cure: Cure, language: str) -> list[Section]:
    """The steps, and what else is to be done; nothing for a run that needs no cure."""
    sections = [_step_section(number, step, language) for number, step in enumerate(cure.steps, 1)]
    if cure.steps and (to_do := _to_do_lines(cure, language)):
        sections.append(Section(_TO_DO.in_language(language), tuple(to_do)))
    return sections


def _step_section(number: int, step: CureStep, language: str) -> Section:
    title = _CURE_STEP_TITLE.format(number=number, title=step.title).in_language(language)
    lines = [_STEP_REASON.format(hazard=step.hazard, why=step.why).in_language(language)]
    if not step.safe:
        lines.append(_UNSAFE.in_language(language))
    return Section(clean_line(title), tuple(clean(one) for one in lines), clean(step.diff))


def _to_do_lines(cure: Cure, language: str) -> list[str]:
    texts = []
    if cure.patch and cure.patch_file is not None:
        file = clean_line(shlex.quote(cure.patch_file))
        if cure.applied:
            texts.append(_PATCH_APPLIED.format(file=file))
        else:
            texts += [_PATCH.format(file=file, folder=clean_line(cure.folder)), _GIT.format(file=file)]
            texts.append(_PLAIN.format(file=file))
    if cure.pins:
        texts.append(_INSTALL.format(pins=" ".join(clean_line(shlex.quote(pin)) for pin in cure.pins)))
    for name, value in cure.variables.items():
        texts.append(_EXPORT.format(name=clean_line(name), value=clean_line(shlex.quote(value))))
    if cure.command is not None:
        texts.append(_LAUNCH.format(command=clean_line(shlex.join(cure.command))))
    return [text.in_language(language) for text in texts]


def cure_tables(cure: Cure, language: str) -> list[Table]:
    """Before and after side by side with alternatives below; then what was tried without success."""
    tables = []
    if cure.needed:
        rows = [_trial_row(_BEFORE, cure.before, language)]
        if cure.after is not None:
            rows.append(_trial_row(_AFTER, cure.after, language))
        rows += [_trial_row(_OR.format(title=one.title), one.seen, language) for one in cure.alternatives]
        columns = tuple(column.in_language(language) for column in _COLUMNS)
        tables.append(
            Table(
                _COMPARISON_TITLE.in_language(language), columns, tuple(rows), frozenset({4, 5, 6}),
                _ROOFLINE.in_language(language),
            )
        )  # fmt: skip
    if cure.tried:
        tables.append(
            Table(
                _REJECTED_TITLE.in_language(language),
                tuple(column.in_language(language) for column in _TRIED_COLUMNS),
                tuple(
                    (
                        clean_line(one.hazard),
                        clean_line(one.title.in_language(language)),
                        clean_line(one.outcome.in_language(language)),
                    )
                    for one in cure.tried
                ),
            )
        )
    return tables


def _trial_row(name: Text, trial_outcome: TrialOutcome, language: str) -> tuple[str, ...]:
    memory = "-"
    if trial_outcome.peak_reserved_bytes is not None:
        context = trial_outcome.allowance_bytes
        used, total = trial_outcome.peak_reserved_bytes + context, (trial_outcome.capacity_bytes or 0) + context
        memory = f"{size(used)} / {size(total)}"
    return (
        clean_line(name.in_language(language)),
        trial_outcome.verdict,
        clean_line(", ".join(trial_outcome.hazards)) or "-",
        clean_line(trial_outcome.ranks),
        memory,
        size(trial_outcome.host_peak_bytes) if trial_outcome.host_peak_bytes is not None else "-",
        _format_seconds(trial_outcome.seconds_of_step),
    )


def _format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
