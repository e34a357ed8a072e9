from collections.abc import Iterator, Mapping

from gonogo.evidence.failure.failure_facts import ended_by, failure_facts, first_error, raised_in_your_line
from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.rehearsal.failures import (
    assumption_before,
    class_of,
    failed_ranks,
    failure_places,
    is_shortage,
    less_data_before,
    made_before,
    shorten,
)
from gonogo.evidence.rehearsal.record import Failure
from gonogo.finding.words import PHASES
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, RehearsalRecord, Text

# What to look at next, by the exception's type and words; the first that fits.
_NEXT = (
    (
        Pattern(r"^(?:ModuleNotFoundError|ImportError)\b"),
        Text(
            "Install the module into the environment that the launcher uses, on every node: python -m pip install …; "
            "python -c 'import …' there shows the same error",
            "把该模块安装到启动器实际使用的环境中（每个节点）：python -m pip install …；在那里运行 python -c 'import "
            "…' 可重现同样的错误",
        ),
    ),
    (
        Pattern(
            r"(?i)ConnectionError|HTTPError|MaxRetryError|SSLError|LocalEntryNotFound|couldn't connect|GatedRepo"
            r"|huggingface\.co"
        ),
        Text(
            "A download failed: fetch the model or data set beforehand and give its folder (HF_HUB_OFFLINE=1), or set "
            "HF_ENDPOINT to a mirror",
            "下载失败：提前下载模型或数据集并给出本地目录（HF_HUB_OFFLINE=1），或将 HF_ENDPOINT 设为镜像",
        ),
    ),
    (
        Pattern(r"^(?:FileNotFoundError|NotADirectoryError|IsADirectoryError|PermissionError|OSError)\b"),
        Text(
            "Check the path that the message names, as the process sees it: in the container, on every node",
            "检查消息中的路径在该进程看来是否存在：容器内、每个节点上",
        ),
    ),
    (
        Pattern(r"CUDA error|AcceleratorError"),
        Text(
            "CUDA reports errors late: run once with CUDA_LAUNCH_BLOCKING=1 for the line at fault",
            "CUDA 的报错是滞后的：设 CUDA_LAUNCH_BLOCKING=1 再运行一次以得到真正出错的行",
        ),
    ),
    (
        Pattern(r"^(?:TypeError|AttributeError)\b"),
        Text(
            "Compare the library's version with the one that the code was written for: an argument or attribute that "
            "it doesn't know is often renamed or new",
            "比较库的版本与代码编写时的版本：不认识的参数或属性往往是改了名或新增的",
        ),
    ),
)


class ProgramRaises(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Any exception, but for one that only says that memory ran out, which the shortage explains."""
        for failed in failed_ranks(record):
            failure = failed.failure
            if is_shortage(failed.first, failure):
                continue
            assumed = (
                assumption_before(failed.first, failure)
                or made_before(failed.first, failure)
                or less_data_before(failed.first, failure)
            )
            yield self.finding(
                Text(
                    "{reading}{message}{cause} (last reached: {phase}, step {step}{module}){assumed}",
                    "{reading}{message}{cause}（最后到达：{phase}，第 {step} 步{module}）{assumed}",
                ).format(
                    reading=Text(f"{failure.reading}: ", f"{failure.reading}：") if failure.reading else "",
                    message=shorten(failure.message) or failure.type,
                    cause=Text(f"; because of {first}", f"；起因：{first}")
                    if (first := shorten(failure.cause))
                    else "",
                    phase=PHASES[failure.phase],
                    step=failure.step,
                    module=Text(f", module {failure.module}", f"，模块 {failure.module}") if failure.module else "",
                    assumed=Text(
                        f". Reaching this point depended on a value that a rehearsal can't know: {assumed.what} "
                        f"({assumed.where})",
                        f"。执行到此处取决于排练无法得知的值：{assumed.what_zh or assumed.what}（{assumed.where}）",
                    )
                    if assumed
                    else "",
                ),
                title=Text("The program raised {type}", "程序抛出 {type}").format(
                    type=class_of(failure) or failure.type
                ),
                certainty=Certainty.LIKELY if assumed else Certainty.CERTAIN,
                cure=(
                    *([_ALL_RANKS] if assumed and assumed.what.startswith(_OF_OTHER_RANKS) else []),
                    *_cures(failure, failed.first.versions),
                ),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The earliest exception that is no consequence of another's; those are ``failure-elsewhere``."""
        error = first_error(log)
        if error is None:
            return
        error = ended_by(log, error)
        raised = failure_facts(log).chain[-1]
        users = error.users_frame
        yield self.log_finding(
            error,
            Text("{message}{users}", "异常：{message}{users}").format(
                message=_said(error),
                users=Text(
                    f" (your code: {users.path}:{users.line} in {users.function or '?'})",
                    f"（你的代码：{users.path}:{users.line}，函数 {users.function or '?'}）",
                )
                if users
                else "",
            ),
            title=Text("The program raised {type}", "程序抛出 {type}").format(type=error.type),
            certainty=Certainty.CERTAIN if raised_in_your_line(raised) else Certainty.POSSIBLE,
            cure=tuple(_next_steps(error)),
        )


_MAX_MESSAGE = 400


def _said(error: LoggedError) -> str:
    """The whole message in one line; of an assertion without one, the line that checks."""
    said = " ".join(error.message.split())
    if not said and error.innermost is not None and error.innermost.code:
        return f"{error.type} at `{error.innermost.code}`"
    text = f"{error.type}: {said}".removesuffix(": ")
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}…"


_OF_OTHER_RANKS = ("every rank sends", "the objects received")
"""How assumptions begin that hold where other ranks are rehearsed too."""
_ALL_RANKS = Text(
    "Rehearse with --ranks all: each rank then sends its own data, and no assumption is needed",
    "用 --ranks all 排练：各 rank 就会发送自己的内容，无需假设",
)
_NO_NAME = Pattern(r"No module named '(\w+)\.[\w.]+'|cannot import name '\w+' from '(\w+)")


def _cures(failure: Failure, versions: Mapping[str, str]) -> Iterator[Text]:
    if failure.reading:
        yield Text(
            "Correct the syntax of {path} at the place that is named above; JSON knows neither comments nor a comma "
            "after the last entry",
            "请更正 {path} 在上述位置的语法；JSON 不允许注释，也不允许最后一项之后的逗号",
        ).format(path=failure.reading)
        return
    said = failure.cause or f"{failure.type}: {failure.message}"
    lacks = _NO_NAME.search(said)
    package = next((name for name in lacks.groups() if name), "") if lacks is not None else ""
    if package in versions:
        yield Text(
            "{package} {version}, which was rehearsed, has no such name, other releases have: take the one that the "
            "code was written for (--environment FILE, --as-of DATE, or --with {package}==VERSION)",
            "排练所用的 {package} {version} 没有这个名字，其他版本有：请使用代码编写时所用的版本（--environment 文件、"
            "--as-of 日期，或 --with {package}==版本）",
        ).format(package=package, version=versions[package])
    else:
        yield from _by_what_it_says(said)
    if failure.innermost("user"):
        yield Text(
            "Start at the first place named here: it is the innermost line of your own code",
            "请从列出的第一个位置查起：它是你自己代码中最内层的一行",
        )


def _by_what_it_says(error: str) -> Iterator[Text]:
    yield from [text for pattern, text in _NEXT if pattern.search(error)][:1]


def _next_steps(error: LoggedError) -> Iterator[Text]:
    yield from _by_what_it_says(f"{error.type}: {error.message}")
    if error.users_frame is not None:
        yield Text(
            "Start at the line of your own code that is named; then read the library's line below it",
            "先看所指的你自己代码中的那一行，再看其下库中的一行",
        )
    elif not error.frames:
        yield Text(
            "The log has no traceback for it: look above it, or run again with all output kept (2>&1 | tee run.log)",
            "日志中没有它的调用栈：请看其上方，或重新运行并保留完整输出（2>&1 | tee run.log）",
        )
    else:
        yield Text(
            "All frames are a library's or a framework's: read the line that raised it, and what its caller passes; "
            "with "
            "its version, another release can be compared",
            "所有栈帧都在库或框架中：请看抛出它的那一行及其调用方传入的值；知道版本后可与其他版本比较",
        )
