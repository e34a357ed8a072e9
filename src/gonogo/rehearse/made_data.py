"""Failures that come of data which is not here, or was made here: told as a limit, never as certain."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gonogo.evidence.prepared import FOLDER, read_prepared
from gonogo.evidence.rehearsal.record import Failure, RehearsalRecord, Unsupported
from gonogo.finding import Text

# What a program raises that meets other rows than it reads.
_OF_ROWS = frozenset(
    {"KeyError", "TypeError", "ValueError", "IndexError", "AttributeError", "CastError", "DatasetGenerationError"}
)
_READS_ROWS = re.compile(r"-packages/datasets/|/torch/utils/data/|-packages/pyarrow/")
_BY_NAME = re.compile(r"__getitem__|.*collat.*|.*dataset.*|.*preprocess.*|.*tokeniz.*", re.IGNORECASE)
_ASSERTED = "device-side assert triggered"
_NOT_HERE = Text(
    "{path} is not here, and gonogo prepare could not tell what it holds: put the file there, or one with a few rows "
    "of its form",
    "{path} 不在本机，gonogo prepare 也看不出其内容：请放入该文件，或放入格式相同的几行数据",
)
_GUESSED = Text(
    "the rows of {names} were made by gonogo prepare with the columns that the program seems to read, and may be what "
    "it stumbles over: put a few real rows there (or --rows N, where there are too few)",
    "{names} 的数据行由 gonogo prepare 按程序似乎读取的列生成，可能正是出错的原因："
    "请放入几行真实数据（行数不足时用 --rows N）",
)


def set_data_apart(record: RehearsalRecord, folder: Path) -> None:
    """Have ranks that failed for want of the run's own data be told as not rehearsed.

    ``folder`` is where the launch was typed.
    """
    table = read_prepared(folder / FOLDER)
    if table is None:
        return
    for rank in record.ranks:
        failure = rank.failure
        if failure is None or rank.outcome != "raised":
            continue
        lacks = next((path for path in table.missing if not os.path.exists(path) and _names(failure, path)), None)
        if lacks is not None:
            why = _NOT_HERE.format(path=lacks)
        elif table.guessed and _is_of_rows(failure):
            why = _GUESSED.format(names=", ".join(table.guessed[:3]))
        elif (made := [*table.datasets, *table.paths]) and _ASSERTED in failure.message:
            why = _GUESSED.format(names=", ".join(made[:3]))  # a made label may be beyond the classes
        else:
            continue
        frame = failure.innermost("user")
        rank.outcome = "unsupported"
        where = f"{frame.path}:{frame.line}" if frame is not None else "unknown"
        what = f"{failure.type.rpartition('.')[2]}: {failure.message.strip().partition(chr(10))[0][:160]}"
        rank.unsupported.append(Unsupported(what, where, why.en, why.zh))


def _names(failure: Failure, path: str) -> bool:
    quoted = re.findall(r"['\"]([^'\"\n]+)['\"]", failure.message)
    return any(os.path.normpath(os.path.join(os.path.dirname(path), text)) == path for text in quoted) or any(
        os.path.basename(path) == os.path.basename(text) for text in quoted
    )


def _is_of_rows(failure: Failure) -> bool:
    """Whether it arose while rows were read or made into a batch."""
    kind = failure.type.rpartition(".")[2]
    if kind in ("KeyError", "IndexError") and failure.frames and failure.frames[-1].owner == "user":
        return True  # something of the rows was looked up in vain
    return kind in _OF_ROWS and any(
        _READS_ROWS.search(frame.path) or (frame.owner == "user" and _BY_NAME.fullmatch(frame.function))
        for frame in failure.frames
    )
