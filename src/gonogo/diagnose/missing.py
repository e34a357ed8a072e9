"""What to paste next: what the log was cut before, or does not tell, that would decide."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.failure.misfit import misfit_in
from gonogo.evidence.failure.settings import settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Skipped, Text
from gonogo.finding.failure import FailureFacts

_MAX = 3
_OF_SIZES = ("not_divisible", "size_mismatch")


def missing_of(log: FailureLog, facts: FailureFacts) -> tuple[Skipped, ...]:
    """At most three things, the one that would tell most first."""
    return tuple(_missing(log, facts))[:_MAX]


def _missing(log: FailureLog, facts: FailureFacts) -> Iterator[Skipped]:
    if not facts.chain and log.cut:
        yield Skipped(
            Text("the line that names the error", "给出异常的那一行"),
            Text(
                "the log ends within a traceback: paste the lines that follow it, the exception's whole message "
                "included",
                "日志在调用栈中途结束：请补上其后的内容，包括异常的完整消息",
            ),
        )
    elif facts.chain and not any(raised.frames for raised in facts.chain):
        yield Skipped(
            Text("the traceback of {type}", "{type} 的调用栈").format(type=facts.chain[-1].type),
            Text(
                "the log has only its last lines: paste from 'Traceback (most recent call last)' on, or run again with "
                "2>&1 | tee run.log",
                "日志只有最后几行：请从 “Traceback (most recent call last)” 开始粘贴，或以 2>&1 | tee run.log 重新运行",
            ),
        )
    elif facts.collectives and not facts.chain:
        waiting = len({call.rank for call in facts.collectives})
        yield Skipped(
            Text("the other ranks' logs", "其他 rank 的日志"),
            Text(
                "{count} rank(s) are shown waiting, and none that failed: give all logs (gonogo diagnose FOLDER), or "
                "py-spy "
                "dump --pid PID of each rank while they wait",
                "日志中只有 {count} 个等待中的 rank，没有出错的那个：请给出全部日志（gonogo diagnose 目录），或在等待期"
                "间对每个 rank "
                "执行 py-spy dump --pid PID",
            ).format(count=waiting),
        )
    misfit = misfit_in(facts, log.setup.version_texts)
    unknown = [name for name in (misfit.lacks, misfit.asks) if name] if misfit is not None else []
    unknown = [name for name in unknown if name not in log.setup.version_texts]
    if misfit is not None and (unknown or not log.setup.version_texts):
        yield Skipped(
            Text("the versions of {names}", "{names} 的版本").format(names=", ".join(unknown) or "the packages"),
            Text(
                "the log does not tell them: pip freeze > versions.txt, and give --environment versions.txt",
                "日志没有给出：pip freeze > versions.txt，并用 --environment versions.txt 给出",
            ),
        )
    sizes = any(raised.message.form in _OF_SIZES or raised.type == "AssertionError" for raised in facts.chain)
    if (sizes or facts.collectives) and not settings_of(log):
        yield Skipped(
            Text("the launch command and the config", "启动命令与配置"),
            Text(
                "what the run was set to decides here: give --launch FILE (the command, script or YAML)",
                "此处取决于运行的设置：请用 --launch 文件 给出（命令、脚本或 YAML）",
            ),
        )
