"""Options shared by several commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gonogo.cli.command_words import split_command

Format = Annotated[
    str, typer.Option("--format", metavar="text|json|markdown|html|sarif|github|junit", help="Format of the report.")
]
PageFormat = Annotated[str, typer.Option("--format", metavar="text|json|markdown", help="Output format.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report to FILE instead of stdout.")]
Open = Annotated[
    bool, typer.Option("--open", help="Also open the report in the browser (the --output file, or a temporary page).")
]
Lang = Annotated[
    str | None,
    typer.Option("--lang", metavar="en|zh", help="Language of the report. Default: from the locale. 报告语言"),
]

Command = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="The launch command, after --.")]
GPUS = "[COUNTx]TYPE|[NODESx]INSTANCE"
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar=GPUS,
        help="GPUs of a node, e.g. 8xH100-80G, or an instance type: p5.48xlarge. Default: as many H100-80G as "
        "COMMAND uses.",
    ),
]
Nodes = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of nodes. Default: from COMMAND.")]
HostMemory = Annotated[str | None, typer.Option(metavar="SIZE", help="Host memory per node, e.g. 1T or 512G.")]
Ranks = Annotated[
    str,
    typer.Option(
        metavar="auto|0|0,3|sample|mesh|all",
        help="Which ranks to run; auto: rank 0, and the last one too where the files let ranks differ, "
        "or one of each role.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Rehearse the run with this setting changed, in a copy: micro-batch, seq-len, accumulation, stage, "
        "offload-optimizer or offload-parameters. Repeatable.",
    ),
]
Also = Annotated[
    list[str] | None,
    typer.Option(
        "--also",
        metavar="NAME=VALUE[,NAME=VALUE]",
        help="Also rehearse the run with these settings changed, and show both side by side. Repeatable.",
    ),
]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Optimizer steps to run.")]
Every = Annotated[
    bool,
    typer.Option(
        "--every",
        help="Run every micro-batch of gradient accumulation and every token of generate. Default: those that would "
        "repeat one before are counted, not run.",
    ),
]

Unconfined = Annotated[
    bool,
    typer.Option(
        "--unconfined",
        help="Run without confinement: programs can reach your files and the network. Noted in each report.",
    ),
]

Upstream = Annotated[
    bool,
    typer.Option(
        "--upstream",
        help="Fetch other releases of the failing package from the index, compare them by symbol, and try first where "
        "what failed changed. No code in the archives is run.",
    ),
]

InEnvironment = Annotated[
    Path | None,
    typer.Option(
        "--environment",
        metavar="auto|FILE|none",
        help="Rehearse in the environment described by FILE: requirements, a lock file, pip freeze, a Dockerfile "
        "…; none: the installed packages; auto: the environment that the project's files ask for, once you agree. "
        "Default: auto.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Install what the project's files require into gonogo's own cache without asking."
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        metavar="DATE",
        help="With --environment: resolve unpinned versions to the releases of this day (2023-11-02), or of today. "
        "Default: the last commit of FILE's repository.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Also pass the variable NAME to the program (secrets as placeholders), or set it to VALUE. Repeatable.",
    ),
]

MemoryViz = Annotated[
    Path | None,
    typer.Option(metavar="FILE.pickle", help="Write a memory snapshot for PyTorch's memory_viz to this file."),
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json.gz", help="Write a trace for Perfetto or chrome://tracing to this file."),
]
FlightRecorder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write the ranks' collectives as flight recorder dumps for PyTorch's torchfrtrace to this folder.",
    ),
]

Life = Annotated[
    str | None,
    typer.Option(
        metavar="STAGES",
        help="Also save, kill and resume the run, or convert, merge and load its checkpoint, and say what is lost: "
        "--life train,save,kill,resume,merge,serve.",
    ),
]
ResumeOn = Annotated[
    str | None,
    typer.Option(metavar="COUNTxTYPE", help="With --life: the machine on which the run is resumed. Default: the same."),
]
ResumeWith = Annotated[
    str | None,
    typer.Option(
        metavar="ARGS",
        help="With --life: what the command that resumes has besides, as one quoted argument: "
        '--resume-with "--resume_from_checkpoint out/checkpoint-2". An option that the command has is replaced.',
    ),
]
KillBetweenWrites = Annotated[
    bool,
    typer.Option(
        "--kill-between-writes",
        help="With --life: kill the run between the writes of its save, too, and report the result of each resume.",
    ),
]
Saves = Annotated[
    int,
    typer.Option(
        min=1,
        max=9,
        metavar="N",
        help="With --life: saves before the run is killed, e.g. 3 to see what save_total_limit=2 keeps.",
    ),
]
Disk = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="With --life: the free disk space, e.g. 2T, against which the checkpoints that are kept are held; and "
        "how fast it is written, e.g. 2T@500M per second.",
    ),
]
Signal = Annotated[
    str | None,
    typer.Option(
        metavar="NAME@SECONDS",
        help="With --life: the signal that the scheduler sends before it ends the job, e.g. USR1@120: does the "
        "program save, and in time? Default: what #SBATCH --signal says.",
    ),
]
ConvertWith = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="With --life convert: the converter's command, as one quoted argument."),
]
MergeWith = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="With --life merge: what merges the adapter, as one quoted argument. Default: PEFT's merge_and_unload.",
    ),
]
ServeWith = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="With --life serve: what loads the result and runs it once, as one quoted argument. "
        "Default: transformers.",
    ),
]

SyntheticBatch = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="Instead of COMMAND: train this model on a synthetic batch; a folder, config.json, or a hub name.",
    ),
]
SyntheticDeepSpeed = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --synthetic-batch: the DeepSpeed config. Without it: DDP.")
]
SeqLen = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="With --synthetic-batch: tokens per sample. Default: 512.")
]
MicroBatch = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="With --synthetic-batch: samples per GPU. Default: 1.")
]
GradientCheckpointing = Annotated[
    bool, typer.Option("--gradient-checkpointing", help="With --synthetic-batch: enable gradient checkpointing.")
]


def environment_option(path: Path | None) -> Path | None:
    """The value of ``--environment``; None for ``auto``, the default."""
    return None if path == Path("auto") else path


def typed_options(
    context: typer.Context, *, only: Sequence[str] = (), without: Sequence[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """The options of the command that runs, as they were typed: of certain parameters, or of all but some."""
    typed: list[tuple[str, ...]] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in without or (only and name not in only):
            continue
        if not parameter.opts[0].startswith("-"):
            continue
        value = context.params[name]
        if isinstance(value, bool):
            typed.append((parameter.opts[0] if value else parameter.secondary_opts[0],))
            continue
        for one in value if isinstance(value, list | tuple) else (value,):
            text = f"{one:g}" if isinstance(one, float) else str(one)
            option = parameter.opts[0]
            typed.append((f"{option}={text}",) if text.startswith("-") else (option, text))
    return tuple(typed)


def split_at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    """The words before and after ``--``. The parser drops the dashes, so they are looked up in ``sys.argv``."""
    typed = sys.argv[1:]
    if "--" not in typed:
        return words, []
    after = typed[typed.index("--") + 1 :]
    return words[: len(words) - len(after)], split_command(after)
