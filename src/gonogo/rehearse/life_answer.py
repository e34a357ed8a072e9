"""What a report says of a life beside its findings: what was gone through, what was not, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gonogo.evidence.rehearsal.life_table import life_report
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Skipped, Text
from gonogo.rehearse.lives import came_to_save

_RESUME = Text("whether the run can be resumed", "运行能否恢复")
_NOTHING_SAVED = Text(
    "nothing was saved in the rehearsed steps: rehearse more (--steps N), or have the program save earlier",
    "排练的步数内没有保存任何内容：请排练更多步（--steps N），或让程序更早保存",
)
_ENDED = Text("the run failed before it was killed", "运行在被终止之前就失败了")
_NOT_TOLD = Text(
    "the same command reads nothing of what it had saved: say how it resumes, "
    '--resume-with "--resume_from_checkpoint FOLDER"',
    '同一命令没有读取它所保存的任何内容：请说明如何恢复，--resume-with "--resume_from_checkpoint 目录"',
)
_NO_STEP = Text(
    "the resumed program ended without another step: it had nothing left to train",
    "恢复的程序没有再走一步就结束了：没有剩余的训练",
)
_FROM_PROCESS = Text(
    "{files} was made by a process that was not followed: have the program convert in its own process",
    "{files} 由未被跟踪的进程生成：请在程序自身的进程内转换",
)
_FROM_RANKS = Text(
    "another rank sent them, which was not rehearsed (--ranks all)", "它们由未排练的 rank 发送（--ranks all）"
)


def is_whole_life(record: RehearsalRecord) -> bool:
    """Whether both lives were gone through, so that a GO speaks for them; true of a rehearsal of one life."""
    if not record.life_part:
        return True
    first = record.first_life
    return first is not None and came_to_save(first) and not any(True for _ in skipped_of_life(record))


def covered_of_life(record: RehearsalRecord) -> Iterator[Text]:
    """The first life in a sentence, and the command of the second."""
    life = life_report(record)
    first = record.first_life
    if life is None or first is None:
        return
    yield Text(
        "first life: {world} ranks, saved after step {step} ({files} files with state), killed; resumed on {after} "
        "ranks by: {command}",
        "第一次运行：{world} 个 rank，第 {step} 步后保存（{files} 个含状态的文件），随后终止；"
        "在 {after} 个 rank 上恢复，命令：{command}",
    ).format(
        world=life.world_before,
        step=life.steps_before_save,
        files=len(life.files),
        after=life.world_after,
        command=" ".join(life.resumed_with),
    )


def skipped_of_life(record: RehearsalRecord) -> Iterator[Skipped]:
    """What of the two lives was not seen, and why."""
    if record.life_part == "first":
        failed = any(rank.outcome not in ("completed", "out-of-memory") for rank in record.ranks)
        yield Skipped(_RESUME, _ENDED if failed else _NOTHING_SAVED)
        return
    life = life_report(record)
    if life is None:
        return
    if not life.trains_on:
        yield Skipped(_RESUME, _NO_STEP)
    elif record.resumes_as_given and not any(
        row.status in ("restored", "partly", "other-state", "other-dtype", "unknown") for row in life.states
    ):
        yield Skipped(_RESUME, _NOT_TOLD)
    unknown = [row for row in life.states if row.status == "unknown"]
    files = dict.fromkeys(os.path.basename(file) for row in unknown for file in row.read_from)
    for rows, why in (
        ([row for row in unknown if row.read_from], _FROM_PROCESS.format(files=", ".join([*files][:3]))),
        ([row for row in unknown if not row.read_from], _FROM_RANKS),
    ):
        if rows:
            yield Skipped(
                Text("{count} states of the resumed run", "恢复后的 {count} 个状态").format(count=len(rows)), why
            )


def unknown_of_life(record: RehearsalRecord) -> Iterator[Skipped]:
    """What is not known and lowers no verdict."""
    life = life_report(record)
    if life is not None and life.data == "unknown":
        yield Skipped(
            Text("which batch the resumed run begins with", "恢复的运行从哪个批次开始"),
            Text(
                "its values tell nothing: made or equal rows, another world size, or no batch after the save",
                "从数值无法判断：数据是生成的或各行相同、world size 不同，或保存之后没有批次",
            ),
        )
    for counter in life.counters if life is not None else ():
        if counter.status == "unknown":
            yield Skipped(
                Text("where {name} stands after the resume", "{name} 恢复后所在的位置").format(name=counter.name),
                Text("its number is not known in both lives", "两次运行中它的数值并非都已知"),
            )
