"""program-raises."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.rehearsal import RehearsalRecord
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazard import Hazard
from gonogo.hazards._rehearsed import (
    PHASES,
    assumption_before,
    failed_ranks,
    failure_places,
    is_shortage,
    shorten,
)


class ProgramRaises(Hazard):
    """The program raises an exception that no narrower hazard explains.

    ## What happens
    The rehearsal ran the real script and the real libraries, and they raised. On real GPUs the same line would be
    reached with the same types, shapes and devices.

    ## Why
    The exception's own message is all that is known: an error in the script, a wrong path, an argument that this
    version of a library does not take.

    ## Cure
    Read the first place named, the innermost line of your own code, then the library's line below it. If the message
    names an argument or an attribute, compare the library's version with the one that the script was written for.

    ## When it is safe
    Where the exception hangs on a value that a rehearsal cannot know (a loss, a norm), the finding says so and is not
    called certain.

    ## Sources
    - https://docs.python.org/3/library/traceback.html: how to read a traceback
    """

    page_zh = """程序抛出异常，且没有更具体的条目能够解释。

    ## 现象
    排练运行的是真实的脚本与真实的库，异常由它们抛出。在真实 GPU 上，同一行会以相同的类型、形状与设备执行到。

    ## 原因
    所知仅限于异常本身的消息：脚本中的错误、错误的路径、当前版本的库不接受的参数。

    ## 解决办法
    先看给出的第一个位置，即您自己代码中最内层的一行，再看其下库中的一行。若消息提到某个参数或属性，请比较库的版本与编写
    脚本时的版本。

    ## 何时安全
    若异常取决于排练无法得知的值（损失、范数），结果会说明这一点，且不称为确定。

    ## 来源
    - https://docs.python.org/3/library/traceback.html：如何阅读调用栈
    """

    name = "program-raises"
    fallback = True
    title = Text(en="The program raises an exception", zh="程序抛出异常")
    sources = ("https://docs.python.org/3/library/traceback.html",)

    def in_rehearsal(self, record: RehearsalRecord) -> Iterator[Finding]:
        """Any exception, but for one that only says that memory ran out, which the shortage explains."""
        for failed in failed_ranks(record):
            failure = failed.failure
            if is_shortage(failed.first, failure):
                continue
            assumed = assumption_before(failed.first, failure)
            yield self.finding(
                Text(
                    en="{reading}{message} (last reached: {phase}, step {step}{module}){assumed}",
                    zh="{reading}{message}（最后到达：{phase}，第 {step} 步{module}）{assumed}",
                ).format(
                    reading=Text(f"{failure.reading}: ", f"{failure.reading}：") if failure.reading else "",
                    message=shorten(failure.message) or failure.type,
                    phase=PHASES[failure.phase],
                    step=failure.step,
                    module=Text(f", module {failure.module}", f"，模块 {failure.module}") if failure.module else "",
                    assumed=Text(
                        f". The way there hung on a value that a rehearsal cannot know: {assumed.what} "
                        f"({assumed.where})",
                        f"。执行到此处取决于排练无法得知的值：{assumed.what}（{assumed.where}）",
                    )
                    if assumed
                    else "",
                ),
                title=Text(en="The program raises {type}", zh="程序抛出 {type}").format(
                    type=failure.type.rpartition(".")[2] or failure.type
                ),
                certainty=Certainty.LIKELY if assumed else Certainty.CERTAIN,
                cure=(
                    Text(
                        en="Correct the syntax of {path} at the place that is named above; JSON knows neither comments "
                        "nor a comma after the last entry",
                        zh="请更正 {path} 在上述位置的语法；JSON 不允许注释，也不允许最后一项之后的逗号",
                    ).format(path=failure.reading),
                )
                if failure.reading
                else (
                    Text(
                        en="Start at the first place named below: it is the innermost line of your own code",
                        zh="请从下面的第一个位置查起：它是您自己代码中最内层的一行",
                    ),
                )
                if failure.innermost("user")
                else (),
                spans=failure_places(failure),
                ranks=failed.ranks,
                module=failure.module,
            )
