"""A cure as a report shows it: the steps with their diffs, what to do beside them, before and after, what was tried."""

from __future__ import annotations

import shlex

import msgspec

from gonogo.finding import Text
from gonogo.finding.cured import Cure, CureStep, TrialOutcome
from gonogo.finding.words import size
from gonogo.report.table import Table
from gonogo.report.untrusted import clean, clean_line

_STEP = Text("CureStep {number}: {title}", "第 {number} 步：{title}")
_BECAUSE = Text("{hazard}: {why}", "{hazard}：{why}")
_UNSAFE = Text("it changes more than the error: review it", "除修正错误外还会改变训练行为：请确认")
_TO_DO = Text("Next steps", "后续操作")
_PATCH = Text("the patch is in {file}; in {folder}, run one of", "补丁在 {file} 中；在 {folder} 下执行其中之一")
_GIT, _PLAIN = Text("git apply {file}", "git apply {file}"), Text("patch -p1 < {file}", "patch -p1 < {file}")
_APPLIED = Text("the patch {file} has been applied", "补丁 {file} 已应用")
_INSTALL = Text("install: pip install {pins}", "安装：pip install {pins}")
_EXPORT = Text("set: export {name}={value}", "设置：export {name}={value}")
_LAUNCH = Text("launch: {command}", "启动：{command}")
_COMPARED = Text("Before and after", "修改前后")
_COLUMNS = (
    Text("", ""),
    Text("verdict", "结论"),
    Text("blocker", "阻碍"),
    Text("ranks", "rank"),
    Text("GPU memory", "显存"),
    Text("host memory per node", "每节点主机内存"),
    Text("step", "每步"),
)
_BEFORE, _AFTER, _OR = Text("before", "修改前"), Text("after", "修改后"), Text("or: {title}", "或者：{title}")
_ROOFLINE = Text(
    "GPU memory: reserved / usable; step time: roofline estimate, for comparison only",
    "GPU 显存：已预留 / 可用；每步耗时为 roofline 估计，仅供比较",
)
_TRIED = Text("Tried and rejected", "尝试过但未采用")
_TRIED_COLUMNS = (Text("against", "针对"), Text("change", "改动"), Text("outcome", "结果"))
_COST = Text("{count} rehearsals, {seconds:.0f} s", "{count} 次排练，{seconds:.0f} 秒")


class Section(msgspec.Struct, frozen=True):
    """A heading, sentences, and a diff (or nothing) below them."""

    title: str
    said: tuple[str, ...]
    diff: str = ""


def cure_summary(cure: Cure, language: str) -> str:
    """How much was rehearsed, in a line."""
    return _COST.format(count=cure.rehearsals, seconds=cure.seconds).in_language(language)


def cure_sections(cure: Cure, language: str) -> list[Section]:
    """The steps, and what is to be done; nothing for a run that needs no cure."""
    sections = [_step(number, step, language) for number, step in enumerate(cure.steps, 1)]
    if cure.steps and (to_do := _to_do(cure, language)):
        sections.append(Section(_TO_DO.in_language(language), tuple(to_do)))
    return sections


def _step(number: int, step: CureStep, language: str) -> Section:
    title = _STEP.format(number=number, title=step.title).in_language(language)
    said = [_BECAUSE.format(hazard=step.hazard, why=step.why).in_language(language)]
    if not step.safe:
        said.append(_UNSAFE.in_language(language))
    return Section(clean_line(title), tuple(clean(one) for one in said), clean(step.diff))


def _to_do(cure: Cure, language: str) -> list[str]:
    texts = []
    if cure.patch and cure.patch_file is not None:
        file = clean_line(shlex.quote(cure.patch_file))
        if cure.applied:
            texts.append(_APPLIED.format(file=file))
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
    """Before and after side by side, alternatives below them; then what was tried in vain."""
    tables = []
    if cure.needed:
        rows = [_row(_BEFORE, cure.before, language)]
        if cure.after is not None:
            rows.append(_row(_AFTER, cure.after, language))
        rows += [_row(_OR.format(title=one.title), one.seen, language) for one in cure.alternatives]
        columns = tuple(column.in_language(language) for column in _COLUMNS)
        tables.append(
            Table(
                _COMPARED.in_language(language), columns, tuple(rows), frozenset({4, 5, 6}),
                _ROOFLINE.in_language(language),
            )
        )  # fmt: skip
    if cure.tried:
        tables.append(
            Table(
                _TRIED.in_language(language),
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


def _row(name: Text, seen: TrialOutcome, language: str) -> tuple[str, ...]:
    memory = "-"
    if seen.peak_reserved_bytes is not None:
        memory = f"{size(seen.peak_reserved_bytes)} / {size(seen.capacity_bytes or 0)}"
    return (
        clean_line(name.in_language(language)),
        seen.verdict,
        clean_line(", ".join(seen.hazards)) or "-",
        clean_line(seen.ranks),
        memory,
        size(seen.host_peak_bytes) if seen.host_peak_bytes is not None else "-",
        _seconds(seen.seconds_of_step),
    )


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
