"""Options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

Format = Annotated[
    str,
    typer.Option("--format", metavar="text|json|markdown|html|sarif|github|junit", help="How the report is written."),
]
PageFormat = Annotated[str, typer.Option("--format", metavar="text|json|markdown", help="How it is written.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report to FILE, not to stdout.")]
Open = Annotated[
    bool, typer.Option("--open", help="Show the report in the browser too: --output, or a page in a new folder.")
]
Lang = Annotated[
    str | None, typer.Option("--lang", metavar="en|zh", help="Language of the report. Default: the locale's. 报告语言")
]

Command = Annotated[list[str] | None, typer.Argument(metavar="COMMAND", help="What you would launch, after --.")]
GPUS = "[COUNTx]TYPE|[NODESx]INSTANCE"
Gpus = Annotated[
    str | None,
    typer.Option(
        metavar=GPUS,
        help="A node's, e.g. 8xH100-80G; or what is rented: p5.48xlarge. Default: as many H100-80G as COMMAND says.",
    ),
]
Nodes = Annotated[int | None, typer.Option(min=1, metavar="N", help="Nodes. Default: as COMMAND says.")]
HostMemory = Annotated[str | None, typer.Option(metavar="SIZE", help="Host memory of a node, e.g. 1T or 512G.")]
Ranks = Annotated[str, typer.Option(metavar="0|0,3|sample|all", help="Which ranks to run.")]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Optimizer steps to run.")]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Rehearse anew, though nothing has changed since the last time.")
]

Unconfined = Annotated[
    bool,
    typer.Option(
        "--unconfined",
        help="Run the programs though nothing keeps them from your files and the network. Said in each report.",
    ),
]

InEnvironment = Annotated[
    Path | None,
    typer.Option(
        "--environment",
        metavar="FILE|none",
        help="Rehearse in the environment that FILE tells of: requirements, a lock file, pip freeze, a Dockerfile …; "
        "none: in what is installed. Default: what gonogo prepare found, else what is installed.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Install what the project's files ask for into gonogo's own folder without being asked."
    ),
]
AsOf = Annotated[
    str | None,
    typer.Option(
        metavar="DATE",
        help="With --environment: where versions are loose, the releases of that day (2023-11-02). Default: the day of "
        "the last commit of FILE's repository.",
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME[=VALUE]",
        help="Also hand the variable NAME to the program (a secret by a placeholder), or set it to VALUE. Repeatable.",
    ),
]

MemoryViz = Annotated[
    Path | None, typer.Option(metavar="FILE.pickle", help="Write a memory snapshot for PyTorch's memory_viz there.")
]
Trace = Annotated[
    Path | None, typer.Option(metavar="FILE.json.gz", help="Write a trace for Perfetto or chrome://tracing there.")
]
FlightRecorder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write what the ranks call there, as dumps for PyTorch's torchfrtrace."),
]

SyntheticBatch = Annotated[
    Path | None,
    typer.Option(
        metavar="MODEL",
        help="Instead of COMMAND: train a model on a batch made for it; a folder, config.json, or a published name.",
    ),
]
SyntheticDeepSpeed = Annotated[
    Path | None, typer.Option(metavar="FILE", help="With --synthetic-batch: DeepSpeed's JSON. Without it: DDP.")
]
SeqLen = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="With --synthetic-batch: tokens a sample. Default: 512.")
]
MicroBatch = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="With --synthetic-batch: samples a GPU. Default: 1.")
]
GradientCheckpointing = Annotated[
    bool, typer.Option("--gradient-checkpointing", help="With --synthetic-batch: recompute activations.")
]


def before_and_after(words: list[str]) -> tuple[list[str], list[str]]:
    """What stands before and after ``--``, which the parser takes away: it is looked up in the process's own words."""
    typed = sys.argv[1:]
    if "--" not in typed:
        return words, []
    after = typed[typed.index("--") + 1 :]
    return words[: len(words) - len(after)], after
