"""The tables of a run's lives: each kind of state and whether it was restored, then the counters."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UnsetType

from gonogo.finding.lives.life_report import Interruption, LifeReport, SignalledSave, StateRow
from gonogo.finding.lives.state_names import state_text
from gonogo.finding.rehearsal import Rehearsal
from gonogo.finding.words import size
from gonogo.report.lives.base_table import base_table
from gonogo.report.table import Table
from gonogo.report.untrusted import clean_line

_MAX_NAMES_SHOWN = 3
_MAX_FILES_SHOWN = 2
_COLUMNS = {
    "en": ("state", "count", "after the resume", "written to", "which"),
    "zh": ("状态", "个数", "恢复后", "写入", "哪些"),
}
_COUNTER_COLUMNS = {
    "en": ("what", "when saved", "resumed", "after the resume"),
    "zh": ("内容", "保存时", "恢复时", "恢复后"),
}
_COST_COLUMNS = {
    "en": (
        "stage",
        "GPU, peak of a rank",
        "host, peak of a rank",
        "on disk, all ranks",
        "files",
        "at {rate}/s",
        "pinned, of a node",
        "/dev/shm, of a node",
    ),
    "zh": (
        "阶段",
        "GPU（单个 rank 峰值）",
        "主机内存（单个 rank 峰值）",
        "磁盘（所有 rank）",
        "文件数",
        "按 {rate}/s",
        "锁页内存（每节点）",
        "/dev/shm（每节点）",
    ),
}
_DISK_COLUMNS = {
    "en": ("save", "at step", "files", "on disk, all ranks", "removed", "kept", "then on disk", "at most"),
    "zh": ("保存", "步数", "文件数", "磁盘（所有 rank）", "删除", "保留", "之后占用", "最多占用"),
}
_SIGNAL_COLUMNS = {
    "en": ("signal", "after step", "the program", "saved after step", "writing takes", "time left"),
    "zh": ("信号", "步数", "程序", "保存时的步数", "写入需要", "剩余时间"),
}
_INTERRUPTED_COLUMNS = {
    "en": ("killed after writing", "the resume", "at step", "why"),
    "zh": ("写完以下文件后被终止", "恢复", "从第几步", "原因"),
}
_TABLE_TEXTS = {
    "en": {
        "title": "State, saved and resumed",
        "counters": "Counters, data and random numbers",
        "parameter": "parameters",
        "frozen": "frozen parameters",
        "buffer": "buffers",
        "average": "averaged weights",
        "average-counter": "updates: {name}",
        "restored": "restored",
        "partly": "restored in part",
        "not-read": "LOST: saved, not loaded",
        "not-written": "LOST: never saved",
        "other-state": "LOST: another's contents",
        "other-dtype": "LOST: other dtype",
        "drawn-anew": "LOST: initialized anew",
        "other-base": "NOT those of the training",
        "unchanged": "as before the run",
        "unknown": "not known",
        "restarted": "RESTARTED",
        "differs": "DIFFERS",
        "goes-on": "goes on with the next batch",
        "from-the-start": "from the FIRST batch again",
        "seen-again": "a batch that was SEEN before",
        "other": "in another order",
        "data": "training data",
        "random": "random state: {name}",
        "random-not-read": "saved, NOT set",
        "random-not-written": "not saved",
        "optimizer": "steps of {name}",
        "scheduler": "position of {name}",
        "costs": "Memory and disk of a save and a resume",
        "save": "save",
        "resume": "resume",
        "signal": "Signal before the job's end",
        "not-passed-on": "DOESN'T get it",
        "default": "ENDS: no handler",
        "ignored": "ignores it",
        "handled": "handles it",
        "no-save": "NOT saved",
        "disk": "Checkpoints on disk",
        "need": "in all",
        "interruptions": "Killed during the save",
        "later": "Killed during the next save, beside the first checkpoint",
        "half of": "half of {file}",
        "before": "rank {rank}, before {file}",
        "before-removed": "rank {rank}, before {file} removed",
        "removed": "{file} removed",
        "resume-whole": "restores everything",
        "resume-half": "HALF a checkpoint",
        "resume-mixed": "a MIXTURE of two saves",
        "resume-earlier": "the checkpoint before",
        "resume-anew": "starts from the beginning",
        "resume-raises": "RAISES",
        "resume-unknown": "not known",
    },
    "zh": {
        "title": "保存与恢复的状态",
        "counters": "计数、数据与随机数",
        "parameter": "参数",
        "frozen": "冻结的参数",
        "buffer": "缓冲区",
        "average": "平均权重",
        "average-counter": "更新次数：{name}",
        "restored": "已恢复",
        "partly": "部分恢复",
        "not-read": "丢失：已保存，未加载",
        "not-written": "丢失：从未保存",
        "other-state": "丢失：装入了另一个状态",
        "other-dtype": "丢失：dtype 不同",
        "drawn-anew": "丢失：重新初始化",
        "other-base": "与训练时的不同",
        "unchanged": "与运行之前相同",
        "unknown": "未知",
        "restarted": "重新开始",
        "differs": "不一致",
        "goes-on": "从下一个批次继续",
        "from-the-start": "又从第一个批次开始",
        "seen-again": "已训练过的批次",
        "other": "顺序不同",
        "data": "训练数据",
        "random": "随机状态：{name}",
        "accelerator": "设备",
        "random-not-read": "已保存，未设置",
        "random-not-written": "没有保存",
        "optimizer": "{name} 的步数",
        "scheduler": "{name} 的位置",
        "costs": "保存与恢复所需的显存、内存与磁盘",
        "save": "保存",
        "resume": "恢复",
        "signal": "作业结束前的信号",
        "not-passed-on": "收不到",
        "default": "终止：没有处理函数",
        "ignored": "忽略",
        "handled": "处理",
        "no-save": "没有保存",
        "disk": "磁盘上的检查点",
        "need": "总计",
        "interruptions": "在保存途中被终止",
        "later": "在下一次保存途中被终止（第一个检查点仍在）",
        "half of": "{file} 的一半",
        "before": "rank {rank}，写入 {file} 之前",
        "before-removed": "rank {rank}，删除 {file} 之前",
        "removed": "已删除 {file}",
        "resume-whole": "全部恢复",
        "resume-half": "只有一半的检查点",
        "resume-mixed": "两次保存的混合",
        "resume-earlier": "前一个检查点",
        "resume-anew": "从头开始",
        "resume-raises": "报错",
        "resume-unknown": "未知",
    },
}


def life_tables(rehearsal: Rehearsal, language: str) -> list[Table]:
    """The tables; none for a rehearsal of a single life."""
    life = rehearsal.life
    if isinstance(life, UnsetType):
        return []
    lang = "zh" if language == "zh" else "en"
    tables = [_states_table(life, lang), *base_table(life.bases, lang), _counters_table(life, lang)]
    tables.append(_costs_table(life, lang))
    if life.signal is not None:
        tables.append(_signal_table(life.signal, lang))
    if len(life.saves) > 1 or life.disk_bytes is not None:
        tables.append(_disk_table(life, lang))
    for key, tried in (("interruptions", life.interruptions), ("later", life.later_interruptions)):
        if tried:
            tables.append(_interruptions_table(key, tried, lang))
    return tables


def _states_table(life_report: LifeReport, language: str) -> Table:
    words = _TABLE_TEXTS[language]
    kinds: dict[tuple[str, str], list[StateRow]] = {}
    for row in life_report.states:
        kinds.setdefault((_state_kind(row), row.status), []).append(row)
    rows = []
    for (kind, status), same in kinds.items():
        files = list(dict.fromkeys(_short_path(file) for row in same for file in row.written_to))
        lost = status not in ("restored", "unchanged")
        names = ", ".join(_state_name(row, language) for row in same[:_MAX_NAMES_SHOWN]) if lost else ""
        rows.append(
            (
                clean_line(words.get(kind, kind)),
                f"{len(same):,}",
                words[status],
                ", ".join(files[:_MAX_FILES_SHOWN])
                + (f" +{len(files) - _MAX_FILES_SHOWN}" if len(files) > _MAX_FILES_SHOWN else ""),
                names + (", …" if lost and len(same) > _MAX_NAMES_SHOWN else ""),
            )
        )
    return Table(words["title"], _COLUMNS[language], tuple(rows), frozenset({1}))


def _state_kind(row: StateRow) -> str:
    if row.kind == "optimizer":
        return row.slot
    return "frozen" if row.kind == "parameter" and not row.trained else row.kind


def _state_name(row: StateRow, language: str) -> str:
    return clean_line(state_text(row.name).in_language(language))


def _short_path(file: str) -> str:
    return clean_line("/".join(file.split("/")[-2:])) or "-"


def _counters_table(life_report: LifeReport, language: str) -> Table:
    words = _TABLE_TEXTS[language]
    rows: list[tuple[str, ...]] = []
    for counter in life_report.counters:
        key = "average-counter" if counter.kind == "average" else counter.kind
        what = words[key].format(name=clean_line(counter.name))
        rows.append((what, _format_number(counter.saved), _format_number(counter.resumed), words[counter.status]))
    rows.append((words["data"], "", "", words[life_report.data]))
    for one in life_report.random:
        status = words["restored"] if one.status == "restored" else words[f"random-{one.status}"]
        rows.append((words["random"].format(name=words.get(one.generator, one.generator)), "", "", status))
    return Table(words["counters"], _COUNTER_COLUMNS[language], tuple(rows), frozenset({1, 2}))


def _costs_table(life_report: LifeReport, language: str) -> Table:
    words, costs, rate = _TABLE_TEXTS[language], life_report.costs, life_report.write_bytes_per_second
    rows = (
        (words["save"], size(costs.save_gpu_bytes), size(costs.save_host_bytes), size(costs.disk_bytes),
         f"{costs.disk_files:,}", _format_write_time(costs.disk_bytes, rate), size(costs.pinned_bytes),
         size(costs.shm_bytes)),
        (words["resume"], size(costs.resume_gpu_bytes), size(costs.resume_host_bytes), "", "", "", "", ""),
    )  # fmt: skip
    columns = tuple(column.format(rate=f"{rate / 1e9:.3g} GB") for column in _COST_COLUMNS[language])
    # Most runs pin nothing and share nothing.
    shown = 8 if costs.shm_bytes else 7 if costs.pinned_bytes else 6
    return Table(words["costs"], columns[:shown], tuple(row[:shown] for row in rows), frozenset(range(1, shown)))


def _signal_table(told: SignalledSave, language: str) -> Table:
    words = _TABLE_TEXTS[language]
    saved = words["no-save"] if told.saved_at is None else f"{told.saved_at:,}"
    takes = "" if told.write_seconds is None else _format_seconds(told.write_seconds)
    row = (told.name, f"{told.step:,}", words[told.handling], saved, takes, f"{told.seconds:,} s")
    return Table(words["signal"], _SIGNAL_COLUMNS[language], (row,), frozenset({1, 3, 4, 5}))


def _disk_table(life_report: LifeReport, language: str) -> Table:
    words, need = _TABLE_TEXTS[language], life_report.disk_need
    rows = [
        (f"{number}", f"{one.step:,}", f"{one.files:,}", size(one.nbytes), f"{one.removed:,}", f"{one.kept:,}",
         size(one.kept_bytes), size(one.peak_bytes))
        for number, one in enumerate(life_report.saves, 1)
    ]  # fmt: skip
    if need is not None and need.is_known:
        rows.append((words["need"], "", "", "", "", f"{need.copies:,}", "", size(need.nbytes)))
    return Table(words["disk"], _DISK_COLUMNS[language], tuple(rows), frozenset(range(1, 8)))


def _interruptions_table(title: str, tried: Sequence[Interruption], language: str) -> Table:
    """The moments of interruption; consecutive ones with the same outcome share a row."""
    words = _TABLE_TEXTS[language]
    rows: list[tuple[str, str, str, str, str]] = []
    for one in tried:
        after = _short_path(one.after)
        if one.torn:
            after = words["half of"].format(file=after)
        elif one.removed and one.rank is None:
            after = words["removed"].format(file=one.after.rpartition("/")[2])
        elif one.rank is not None:
            key, file = (
                ("before-removed", one.before.rpartition("/")[2])
                if one.before_removed
                else ("before", _short_path(one.before))
            )
            after = words[key].format(rank=one.rank, file=file)
        step = "" if one.from_step is None else f"{one.from_step:,}"
        came_to = words[f"resume-{one.kind}"], step, clean_line((language == "zh" and one.why_zh) or one.why)
        if rows and rows[-1][2:] == came_to:
            rows[-1] = (rows[-1][0], after, *came_to)
        else:
            rows.append((after, after, *came_to))
    shown = tuple((a if a == b else f"{a} … {b}", *rest) for a, b, *rest in rows)
    return Table(words[title], _INTERRUPTED_COLUMNS[language], shown, frozenset({2}))


def _format_write_time(nbytes: int, bytes_per_second: float) -> str:
    return _format_seconds(nbytes / bytes_per_second)


def _format_seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 1 else "< 1 s"


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
