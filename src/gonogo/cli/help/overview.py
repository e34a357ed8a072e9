"""The overview that ``gonogo`` and ``gonogo --help`` print: the commands by purpose. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gonogo.finding import Text, translated
from gonogo.report.page import Page, Styled, cells


class CommandSummary(NamedTuple):
    """A command's name, summary and example."""

    name: str
    says: Text
    example: str


_INTRODUCTION = translated(
    "gonogo tells you whether a multi-GPU training run will work, before you rent the GPUs: GO, NO-GO or CANNOT-TELL."
)
_START_HERE = translated("Start here")
_FIRST_STEPS = (
    (translated("Put your launch command after --; nothing is run:"), "gonogo check -- bash launch.sh"),
    (translated("Run the program itself, on virtual GPUs:"), "gonogo rehearse --gpus 8xH100-80G -- bash launch.sh"),
    (translated("Did a run die? Diagnose its log:"), "gonogo diagnose train.log"),
)
COMMAND_GROUPS: tuple[tuple[Text, tuple[CommandSummary, ...]], ...] = (
    (
        translated("Before a run"),
        (
            CommandSummary(
                "check",
                translated(
                    "Finds conflicts between configs, arguments, code and versions by reading the files, in "
                    "under a second; --fix resolves them."
                ),
                "gonogo check -- bash launch.sh",
            ),
            CommandSummary(
                "rehearse",
                translated("Runs your program at full model size on virtual GPUs: no GPU, no weights, no data needed."),
                "gonogo rehearse --gpus 8xH100-80G -- bash launch.sh",
            ),
            CommandSummary(
                "compare",
                translated("Compares two rehearsals: SAME, BETTER or REGRESSED, and what changed."),
                "gonogo compare before.json after.json",
            ),
            CommandSummary(
                "cure",
                translated("Finds the smallest change that makes a failing run pass, and proves it with a rehearsal."),
                "gonogo cure --gpus 8xH100-80G -- bash launch.sh",
            ),
            CommandSummary(
                "plan",
                translated("Lists the strategies (ZeRO stage, offload, batch) that fit a model, fastest first."),
                "gonogo plan Qwen/Qwen2.5-7B --gpus 8xA100-80G",
            ),
            CommandSummary(
                "prepare",
                translated("Lists the models and data that a launch needs, and saves stand-ins for the missing ones."),
                "gonogo prepare -- bash launch.sh",
            ),
            CommandSummary(
                "env",
                translated(
                    "Shows this Python and its packages, the drivers and the GPUs, and whether they are compatible."
                ),
                "gonogo env",
            ),
        ),
    ),
    (
        translated("A run"),
        (
            CommandSummary(
                "run",
                translated(
                    "Launches training with a watchdog in every rank: early warnings, and the cause if it dies."
                ),
                "gonogo run -- torchrun --nproc_per_node 8 train.py",
            ),
            CommandSummary(
                "sbatch",
                translated("Checks a Slurm job with all its files, then submits it; a NO-GO job is not submitted."),
                "gonogo sbatch --nodes 2 train.sbatch",
            ),
        ),
    ),
    (
        translated("After a run"),
        (
            CommandSummary(
                "diagnose",
                translated("Finds the root cause of a dead run in its logs, with the line that shows it and the cure."),
                "gonogo diagnose logs/",
            ),
            CommandSummary(
                "explain",
                translated(
                    "Prints everything known about a hazard named in a report: its cause, cures and public threads."
                ),
                "gonogo explain zero3-direct-param-use-invalid-gradient",
            ),
            CommandSummary(
                "bisect",
                translated("Finds the release of a package that broke the program."),
                "gonogo bisect --package deepspeed --good 0.14.0 --bad 0.14.2 -- bash launch.sh",
            ),
        ),
    ),
    (
        translated("Tools"),
        (
            CommandSummary(
                "doctor",
                translated("Shows which parts of gonogo work on this machine, and how to get the rest."),
                "gonogo doctor",
            ),
            CommandSummary(
                "ui", translated("Offers check, rehearse, plan and cure in the browser."), "gonogo ui my_project/"
            ),
            CommandSummary(
                "mcp",
                translated("Serves the commands to coding agents (MCP)."),
                "claude mcp add gonogo -- gonogo mcp --allow my_project/",
            ),
            CommandSummary(
                "skills", translated("Teaches a coding agent when to use which command."), "gonogo skills install"
            ),
            CommandSummary("server", translated("Checks files in your editor while you type (LSP)."), "gonogo server"),
            CommandSummary(
                "gpus", translated("Lists the GPUs and cloud instances that --gpus takes."), "gonogo gpus H100"
            ),
            CommandSummary(
                "hazards", translated("Lists every known hazard, or starts a new one."), "gonogo hazards --theme zero3"
            ),
            CommandSummary(
                "schema",
                translated("Prints JSON Schemas of DeepSpeed configs and of reports."),
                "gonogo schema deepspeed --output ds.schema.json",
            ),
        ),
    ),
)
_HELP_HINT = translated(
    "gonogo COMMAND --help lists the options of a command; gonogo --version shows the version. --lang zh: 中文"
)
_INDENT = 2


def wanted(words: Sequence[str]) -> bool:
    """Whether the arguments ask for the overview: none at all, or only for help."""
    return all(word in ("-h", "--help", "help") for word in words)


def print_overview(page: Page, language: str) -> None:
    """Print what to do first, then each group of commands, with a sentence and an example for each command."""
    page.line(Styled(_INTRODUCTION.in_language(language)))
    page.line()
    page.line(Styled(_START_HERE.in_language(language), "bold"))
    for says, typed in _FIRST_STEPS:
        page.line(Styled(says.in_language(language)), indent=_INDENT)
        page.line(Styled(typed, "cyan"), indent=2 * _INDENT, wrap=False)
    column = max(map(cells, names())) + 2 * _INDENT
    for group, commands in COMMAND_GROUPS:
        page.line()
        page.line(Styled(group.in_language(language), "bold"))
        for command in commands:
            label = Styled.assemble(" " * _INDENT, (command.name, "bold"))
            label.append(" " * (column - cells(label.plain)))
            page.labelled(label, column, Styled(command.says.in_language(language)))
            page.line(Styled(command.example, "cyan"), indent=column, wrap=False)
    page.line()
    page.line(Styled(_HELP_HINT.in_language(language), "dim"))


def names() -> Iterator[str]:
    """The names of all commands, in the order of the overview."""
    for _, commands in COMMAND_GROUPS:
        for command in commands:
            yield command.name
