"""``gonogo`` and ``gonogo --help``: what to do first, and all commands by when they are of use; nothing is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gonogo.finding import Text
from gonogo.report.page import Page, Styled, cells


class CommandSummary(NamedTuple):
    """A command in a sentence, with how it is called."""

    name: str
    says: Text
    example: str


_WHAT = Text(
    "gonogo tells you whether a multi-GPU training run will work, before you rent the GPUs: GO, NO-GO or CANNOT-TELL.",
    "租 GPU 之前，gonogo 就告诉你多卡训练能不能跑：GO、NO-GO 或 CANNOT-TELL。",
)
_FIRST = Text("Start here", "从这里开始")
_STEPS = (
    (
        Text("Put your launch command behind --; nothing is run:", "把启动命令写在 -- 之后；不运行任何内容："),
        "gonogo check -- bash launch.sh",
    ),
    (
        Text("Run the program itself, on virtual GPUs:", "在虚拟 GPU 上运行程序本身："),
        "gonogo rehearse --gpus 8xH100-80G -- bash launch.sh",
    ),
    (Text("A run has died? Show its log:", "训练挂了？给出日志："), "gonogo diagnose train.log"),
)
GROUPS: tuple[tuple[Text, tuple[CommandSummary, ...]], ...] = (
    (
        Text("Before a run", "运行之前"),
        (
            CommandSummary(
                "check",
                Text(
                    "Finds conflicts between configs, arguments, code and versions by reading the files, in under a "
                    "second; --fix mends them.",
                    "阅读文件，一秒内找出配置、参数、代码与版本之间的冲突；--fix 直接修复。",
                ),
                "gonogo check -- bash launch.sh",
            ),
            CommandSummary(
                "rehearse",
                Text(
                    "Runs your program at full model size on virtual GPUs: no GPU, no weights, no data needed.",
                    "在虚拟 GPU 上以完整模型规模运行你的程序：不需要 GPU、权重和数据。",
                ),
                "gonogo rehearse --gpus 8xH100-80G -- bash launch.sh",
            ),
            CommandSummary(
                "compare",
                Text(
                    "Compares two rehearsals: SAME, BETTER or REGRESSED, and what changed.",
                    "比较两次排练：相同、更好还是退步，以及有哪些变化。",
                ),
                "gonogo compare before.json after.json",
            ),
            CommandSummary(
                "cure",
                Text(
                    "Finds the smallest change that makes a failing run pass, and proves it by a rehearsal.",
                    "找出使失败的运行通过的最小改动，并用排练验证。",
                ),
                "gonogo cure --gpus 8xH100-80G -- bash launch.sh",
            ),
            CommandSummary(
                "plan",
                Text(
                    "Lists the strategies (ZeRO stage, offload, batch) that fit a model, the fastest first.",
                    "列出放得下该模型的方案（ZeRO 级别、卸载、batch），最快的在前。",
                ),
                "gonogo plan Qwen/Qwen2.5-7B --gpus 8xA100-80G",
            ),
            CommandSummary(
                "prepare",
                Text(
                    "Lists the models and data that a launch needs, and keeps stand-ins for those that are missing.",
                    "列出启动命令需要的模型和数据，并为缺失的保留替身。",
                ),
                "gonogo prepare -- bash launch.sh",
            ),
            CommandSummary(
                "env",
                Text(
                    "Shows this Python, its packages, drivers and GPUs, and whether they fit together.",
                    "显示当前 Python、软件包、驱动和 GPU，以及它们是否匹配。",
                ),
                "gonogo env",
            ),
        ),
    ),
    (
        Text("A run", "运行"),
        (
            CommandSummary(
                "run",
                Text(
                    "Launches training with a watchdog in every rank: early warnings, and the cause if it dies.",
                    "启动训练，每个 rank 带监护：提前告警，出错时说明原因。",
                ),
                "gonogo run -- torchrun --nproc_per_node 8 train.py",
            ),
            CommandSummary(
                "sbatch",
                Text(
                    "Checks a Slurm job with all its files, then submits it; NO-GO is not submitted.",
                    "先检查 Slurm 作业及其文件，再提交；NO-GO 时不提交。",
                ),
                "gonogo sbatch --nodes 2 train.sbatch",
            ),
        ),
    ),
    (
        Text("After a run", "运行之后"),
        (
            CommandSummary(
                "diagnose",
                Text(
                    "Finds the root cause of a dead run in its logs, with the line that shows it and the cure.",
                    "从日志中找出失败的根本原因、证据所在行和解决办法。",
                ),
                "gonogo diagnose logs/",
            ),
            CommandSummary(
                "explain",
                Text(
                    "Prints all that is known of a hazard that a report names: why, cure, public threads.",
                    "显示报告中某个隐患的全部说明：原因、解决办法、公开讨论。",
                ),
                "gonogo explain zero3-direct-param-use-invalid-gradient",
            ),
            CommandSummary(
                "bisect",
                Text("Finds the release of a package that broke the program.", "找出是软件包的哪个版本破坏了程序。"),
                "gonogo bisect --package deepspeed --good 0.14.0 --bad 0.14.2 -- bash launch.sh",
            ),
        ),
    ),
    (
        Text("Tools", "工具"),
        (
            CommandSummary(
                "doctor",
                Text(
                    "Says what of gonogo works on this machine, and how to get the rest.",
                    "说明 gonogo 的哪些功能在本机可用，其余的如何获得。",
                ),
                "gonogo doctor",
            ),
            CommandSummary(
                "ui",
                Text("Offers check, rehearse, plan and cure in the browser.", "在浏览器中使用检查、排练、规划和修复。"),
                "gonogo ui my_project/",
            ),
            CommandSummary(
                "mcp",
                Text("Serves the commands to coding agents (MCP).", "把这些命令提供给编程助手（MCP）。"),
                "claude mcp add gonogo -- gonogo mcp --allow my_project/",
            ),
            CommandSummary(
                "skills",
                Text("Teaches a coding agent when to use which command.", "教编程助手何时使用哪个命令。"),
                "gonogo skills install",
            ),
            CommandSummary(
                "server",
                Text("Checks files in your editor while you type (LSP).", "在编辑器中边写边检查（LSP）。"),
                "gonogo server",
            ),
            CommandSummary(
                "gpus",
                Text("Lists the GPUs and cloud instances that --gpus takes.", "列出 --gpus 接受的 GPU 和云实例。"),
                "gonogo gpus H100",
            ),
            CommandSummary(
                "hazards",
                Text("Lists every known way to fail, or starts a new one.", "列出所有已知隐患，或新建一个。"),
                "gonogo hazards --theme zero3",
            ),
            CommandSummary(
                "schema",
                Text(
                    "Prints JSON Schemas of DeepSpeed configs and of reports.",
                    "输出 DeepSpeed 配置和报告的 JSON Schema。",
                ),
                "gonogo schema deepspeed --output ds.schema.json",
            ),
        ),
    ),
)
_MORE = Text(
    "gonogo COMMAND --help tells the options of one command; gonogo --version the version. --lang zh: 中文",
    "gonogo 命令 --help 显示该命令的选项；gonogo --version 显示版本。--lang en: English",
)
_INDENT = 2


def wanted(words: Sequence[str]) -> bool:
    """Whether the words of a call ask for the overview: none at all, or for help and nothing else."""
    return all(word in ("-h", "--help", "help") for word in words)


def print_overview(page: Page, language: str) -> None:
    """Print what to do first, then every command in its group with a sentence and an example."""
    page.line(Styled(_WHAT.in_language(language)))
    page.line()
    page.line(Styled(_FIRST.in_language(language), "bold"))
    for says, typed in _STEPS:
        page.line(Styled(says.in_language(language)), indent=_INDENT)
        page.line(Styled(typed, "cyan"), indent=2 * _INDENT, wrap=False)
    column = max(map(cells, names())) + 2 * _INDENT
    for group, commands in GROUPS:
        page.line()
        page.line(Styled(group.in_language(language), "bold"))
        for command in commands:
            label = Styled.assemble(" " * _INDENT, (command.name, "bold"))
            label.append(" " * (column - cells(label.plain)))
            page.labelled(label, column, Styled(command.says.in_language(language)))
            page.line(Styled(command.example, "cyan"), indent=column, wrap=False)
    page.line()
    page.line(Styled(_MORE.in_language(language), "dim"))


def names() -> Iterator[str]:
    """The names of all commands, in the order of the overview."""
    for _, commands in GROUPS:
        for command in commands:
            yield command.name
