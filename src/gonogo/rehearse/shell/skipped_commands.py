"""What of a launch script is not rehearsed: other stages, commands left out, Python environments it activates."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from gonogo.evidence.launch.command_words import shortened
from gonogo.finding import Text
from gonogo.rehearse.shell.run_script import ScriptRun
from gonogo.rehearse.shell.session import ScriptCommand


def skipped_commands(
    run: ScriptRun, chosen: ScriptCommand, words: Sequence[str], outer: Mapping[str, str]
) -> Iterator[tuple[Text, Text]]:
    """(what, why) for each thing of a script that is not rehearsed; ``outer`` is the environment it was started in."""
    for call in run.calls:
        if call is chosen or (call.words == chosen.words and call.cwd == chosen.cwd):
            continue
        if call.kind == "launch" or chosen.kind != "launch":
            why = Text(
                "{script} also starts it; rehearse it separately: gonogo rehearse -- {command}",
                "{script} 还会启动它；可单独排练：gonogo rehearse -- {command}",
            ).format(script=shortened(words, 80), command=shortened(call.words, 400))
        else:
            why = Text(
                "{script} runs it next to the training; its output is missing",
                "{script} 在训练之外运行它；缺少它的输出",
            ).format(script=shortened(words, 80))
        what = shortened(call.words, 120)
        yield Text(what, what), why
    if run.skipped:
        names = list(dict.fromkeys(shortened(skipped, 60) for skipped in run.skipped))
        listed = "; ".join(names[:8]) + (f"; … ({len(names)})" if len(names) > 8 else "")
        yield (
            Text("commands of {script}: {listed}", "{script} 中的命令：{listed}").format(
                script=shortened(words, 80), listed=listed
            ),
            Text(
                "not run: they need a network or another machine, never end, or are not installed here",
                "未执行：它们需要网络或其他机器、不会结束，或本机没有安装",
            ),
        )
    environment = chosen.environment
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environment.get(name) not in (None, outer.get(name), sys.prefix):
            yield (
                Text(
                    "the Python environment {path}, which {script} activates", "{script} 激活的 Python 环境 {path}"
                ).format(path=environment[name], script=shortened(words, 80)),
                Text(
                    "rehearsed with {python} and its packages instead; start gonogo from that environment",
                    "改用 {python} 及其中的软件包排练；请在该环境中启动 gonogo",
                ).format(python=sys.executable),
            )
