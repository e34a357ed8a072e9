"""Failures that come of data which is not here, or was made here: told as a limit, never as certain."""

from __future__ import annotations

import ast
import os
import platform
import re
from pathlib import Path

from gonogo.evidence.prepared import FOLDER, Prepared, read_prepared
from gonogo.evidence.published.models import published_model
from gonogo.evidence.rehearsal.chain import chain_of
from gonogo.evidence.rehearsal.failures import class_of
from gonogo.evidence.rehearsal.record import Failure, Missed, RankRecord, RehearsalRecord, Unsupported
from gonogo.finding import Text
from gonogo.rehearse.environment_mismatch import (
    distribution_of,
    is_project_module,
    suggested_packages,
    unavailable_packages,
)
from gonogo.rehearse.missing_files import lies_elsewhere
from gonogo.rehearse.prepared.environment import FILE, USUAL
from gonogo.rehearse.prepared.named_inputs import is_hub_name
from gonogo.rehearse.prepared.stub_packages import asked_of
from gonogo.rehearse.tested_paths import finds_nothing, tested_path

# What a program raises that meets other rows than it reads, or another model.
_OF_ROWS = frozenset({
    "KeyError", "TypeError", "ValueError", "IndexError", "AttributeError", "CastError", "DatasetGenerationError",
    "AssertionError",
})  # fmt: skip
_READS_ROWS = re.compile(r"-packages/datasets/|/torch/utils/data/|-packages/pyarrow/")
_BY_NAME = re.compile(r"__getitem__|.*collat.*|.*dataset.*|.*preprocess.*|.*tokeniz.*", re.IGNORECASE)
_ASSERTED = "device-side assert triggered"
_NOT_HERE = Text(
    "{path} is not here, and gonogo prepare could not tell what it holds: put the file or folder there, or one with a "
    "few rows of its form",
    "{path} 不在本机，gonogo prepare 也看不出其内容：请放入该文件或目录，或放入格式相同的几行数据",
)
_FINDS_NOTHING = Text(
    "the files of data that it looks for are not here: put a few of their form where it looks, as the project's steps "
    "before this one leave them",
    "它要找的数据文件不在本机：请在它查找的位置放入几个格式相同的文件（由项目在此之前的步骤得到）",
)
_TRAINING = frozenset({"forward", "backward", "step"})
_NO_DATA = re.compile(r"(?:any data file|any data|data files?) at (\S+?)\.?(?:$|\s)")
_NO_MODULE = re.compile(r"^No module named '(\w+)")
_KEYWORD = re.compile(r"got an unexpected keyword argument '(\w+)'")
_NOT_IN = re.compile(r"(?:is )?not in (?:list|tuple|deque|array)|^substring not found$")
_MUTABLE = re.compile(r"^mutable default <class '(?!list|dict|set)")
_NONE = "none"
"""In the place of a table's environment where nothing was prepared."""
_NOT_MADE = re.compile(r"(\S+) is not among what gonogo prepare made for (\S+)")
_NO_WEIGHTS = Text(
    "the program opens {file} of {name} itself, which gonogo prepare does not make: hf download {name}, and give its "
    "folder in the command",
    "程序自行打开 {name} 的 {file}，而 gonogo prepare 不生成它：请 hf download {name}，并在命令中给出其目录",
)
_NOT_FETCHED = Text(
    "it looked for {name} over the network, which a rehearsal does not use: gonogo prepare -- COMMAND makes what can "
    "be made; else download it first and give its folder",
    "它通过网络查找 {name}，而排练不使用网络：gonogo prepare -- 命令 会生成能生成的部分；其余请先下载并给出其目录",
)
_NOT_LISTED = Text(
    "{name} is in none of the lists that gonogo prepare made this environment of, and may well be where the run is: "
    "gonogo rehearse --with {name} -- COMMAND (or the name that pip knows it by), or --environment FILE with all that "
    "the run has",
    "gonogo prepare 据以创建此环境的清单中都没有 {name}，而运行所在的机器上可能有："
    "gonogo rehearse --with {name} -- 命令（或 pip 所用的名称），或用 --environment FILE 给出运行的全部软件包",
)
_OTHER_PYTHON = Text(
    "Python refuses this from 3.11 on, and this is {here}: where the run has an older one it goes on; install gonogo "
    "into that one as well (python3.10 -m venv VENV, VENV/bin/pip install as you did here), and rehearse with "
    "VENV/bin/gonogo",
    "Python 从 3.11 起拒绝这种写法，而此处为 {here}：若运行使用更早的版本则可继续；请在该版本中也安装 gonogo"
    "（python3.10 -m venv VENV，再按此处的方式 VENV/bin/pip install），并用 VENV/bin/gonogo 排练",
)
_GUESSED = Text(
    "the rows of {names} were made by gonogo prepare with the columns that the program seems to read, and may be what "
    "it stumbles over: put a few real rows there (or --rows N, where there are too few)",
    "{names} 的数据行由 gonogo prepare 按程序似乎读取的列生成，可能正是出错的原因："
    "请放入几行真实数据（行数不足时用 --rows N）",
)
_ANOTHER_MODEL = Text(
    "{chosen} was taken in the place of {name}, whose tokenizer and modules are others, and may be what it stumbles "
    "over: get its configuration and tokenizer (hf download {name} --exclude '*.safetensors' '*.bin'), and give the "
    "folder in the command",
    "以 {chosen} 代替了 {name}，而后者的分词器和模块有所不同，这可能正是出错的原因：请下载其配置和分词器"
    "（hf download {name} --exclude '*.safetensors' '*.bin'），并在命令中给出该目录",
)
_TOO_FEW = Text(
    "the rows of {names}, which gonogo prepare made, came to no batch: gonogo prepare --rows N with more of them",
    "gonogo prepare 生成的 {names} 的数据行凑不成一个批次：请用 gonogo prepare --rows N 生成更多行",
)


def set_data_apart(record: RehearsalRecord, folder: Path) -> None:
    """Have ranks that failed for want of the run's own data be told as not rehearsed.

    ``folder`` is where the launch was typed.
    """
    table = read_prepared(folder / FOLDER) or Prepared(environment=_NONE)
    for rank in record.ranks:
        failure = rank.failure
        if failure is None or rank.outcome != "raised":
            continue
        missed = next((one.name for one in rank.missed if _may_come_of(one, failure, rank)), None)
        lacks = next((path for path in table.missing if not os.path.exists(path) and _names(failure, path)), None)
        if (
            table.environment != _NONE
            and lacks is None
            and (match := _NO_DATA.search(failure.message))
            and not os.path.exists(match[1])
        ):
            lacks = match[1]
        if lacks is None and not set(rank.phases) & _TRAINING:
            lacks = tested_path(failure, record.command, folder)
        if (file := _NOT_MADE.search(f"{failure.message} {failure.cause}")) is not None:
            why = _NO_WEIGHTS.format(file=file[1], name=file[2])
        elif missed is not None:  # the refusal itself was caught by the program, which then raised of its own
            why = _NOT_FETCHED.format(name=missed)
        elif lacks is not None:
            why = _NOT_HERE.format(path=lacks)
        elif finds_nothing(failure) and not set(rank.phases) & _TRAINING:
            why = _FINDS_NOTHING
        elif (packages := _of_packages(failure, table, record, folder)) is not None:
            why = packages
        elif rank.empty_pass and not rank.steps and (made := [*table.datasets, *table.paths]):
            why = _TOO_FEW.format(names=", ".join(made[:3]))
        elif (elsewhere := lies_elsewhere(failure, folder)) is not None:
            why = elsewhere
        elif (pair := _taken_for_another(table)) is not None and class_of(failure) in _OF_ROWS:
            why = _ANOTHER_MODEL.format(name=pair[0], chosen=pair[1])
        elif table.guessed and _is_of_rows(failure):
            why = _GUESSED.format(names=", ".join(table.guessed[:3]))
        elif (made := [*table.datasets, *table.paths]) and _ASSERTED in failure.message:
            why = _GUESSED.format(names=", ".join(made[:3]))  # a made label may be beyond the classes
        else:
            continue
        frame = failure.innermost("user")
        rank.outcome = "unsupported"
        where = f"{frame.path}:{frame.line}" if frame is not None else "unknown"
        what = f"{class_of(failure)}: {failure.message.strip().partition(chr(10))[0][:160]}"
        rank.unsupported.append(Unsupported(what, where, why.en, why.zh))


def _may_come_of(missed: Missed, failure: Failure, rank: RankRecord) -> bool:
    """Whether a failure may come of what was not fetched: it names it, or arose before any row was trained on."""
    named = "/" in missed.name and missed.name in failure.message
    return named or (missed.kind == "data" and not set(rank.phases) & _TRAINING)


def _of_packages(failure: Failure, table: Prepared, record: RehearsalRecord, folder: Path) -> Text | None:
    """What of a failure may come of packages, or of a Python, that nobody has said the run has; None: nothing."""
    if table.environment not in ("", FILE):  # the user's own list
        return None
    module = _NO_MODULE.match(_import_that_failed(failure))
    if (name := asked_of(failure, table.absent)) is not None:
        return _NOT_LISTED.format(name=name)
    if any(frame.function == "mpi_discovery" for frame in failure.frames):  # for want of a launcher, not of a package
        return None
    if module is not None and not is_project_module(module[1], folder):  # told in its words, or in the program's own
        return _NOT_LISTED.format(name=distribution_of(module[1]))
    for name in unavailable_packages(failure, record):
        if name in USUAL or name in suggested_packages(failure, record):  # "Please install tensorboard."
            return _NOT_LISTED.format(name=name)
    if failure.type == "ValueError" and _MUTABLE.match(failure.message):
        return _OTHER_PYTHON.format(here=platform.python_version())
    return None


def _taken_for_another(table: Prepared) -> tuple[str, str] | None:
    """A hub name that the program gives, and the other published model that the user chose in its place."""
    for name, chosen in table.chosen.items():
        model, own = published_model(chosen), published_model(name)
        if model is not None and is_hub_name(name) and (own is None or own.config != model.config):
            return name, chosen
    return None


def _import_that_failed(failure: Failure) -> str:
    """What a failed import said: the failure itself, or what the program's own word (*please run pip …*) stands for."""
    if failure.type == "ModuleNotFoundError" or not failure.frames:
        return failure.message if failure.frames else ""
    here = failure.frames[-1].path
    told = [one for one in chain_of(failure) if one.type == "ModuleNotFoundError"]
    return next((one.message for one in told if any(frame.path == here for frame in one.frames)), "")


def _names(failure: Failure, path: str) -> bool:
    quoted = re.findall(r"['\"]([^'\"\n]+)['\"]", failure.message)
    return any(os.path.normpath(os.path.join(os.path.dirname(path), text)) == path for text in quoted) or any(
        os.path.basename(path) == os.path.basename(text) for text in quoted
    )


def _is_of_rows(failure: Failure) -> bool:
    """Whether it arose while rows were read or made into a batch."""
    kind = class_of(failure)
    if kind == "ZeroDivisionError" and failure.phase == "load":
        return True  # a number of steps, of fewer rows than a batch of all ranks has
    in_vain = kind in ("KeyError", "IndexError") or (kind == "ValueError" and _NOT_IN.search(failure.message))
    if in_vain and failure.frames and failure.frames[-1].owner == "user":
        return True  # something of the rows was looked up in vain
    if kind == "TypeError" and (refused := _KEYWORD.search(failure.message)) and _is_written(refused[1], failure):
        return False
    return kind in _OF_ROWS and any(
        _READS_ROWS.search(frame.path) or (frame.owner == "user" and _BY_NAME.fullmatch(frame.function))
        for frame in failure.frames
    )


def _is_written(keyword: str, failure: Failure) -> bool:
    """Whether the program's own call on the way there has that keyword, which then is no column of a row."""
    frame = failure.innermost("user")
    try:
        tree = ast.parse(Path(frame.path).read_bytes()) if frame is not None else None
    except (OSError, SyntaxError, ValueError):
        return False
    return frame is not None and any(
        isinstance(node, ast.Call)
        and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
        and any(given.arg == keyword for given in node.keywords)
        for node in ast.walk(tree or ast.Module([], []))
    )
