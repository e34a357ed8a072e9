"""The command ``gonogo cure`` and its options."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gonogo.cli.command_words import split_command
from gonogo.cli.exit_status import INTERRUPTED, exit_statuses
from gonogo.cli.options import (
    Command,
    ConvertWith,
    Disk,
    Env,
    Format,
    Gpus,
    HostMemory,
    Lang,
    Life,
    MergeWith,
    Nodes,
    Open,
    Output,
    ResumeOn,
    ResumeWith,
    Saves,
    ServeWith,
    Signal,
    Steps,
    Unconfined,
    Upstream,
    Yes,
    typed_options,
)
from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language

if TYPE_CHECKING:
    pass


_LIFE = ("life", "resume_on", "resume_with", "saves", "disk", "signal", "convert_with", "merge_with", "serve_with")


def cure(
    context: typer.Context,
    command: Command = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    host_memory: HostMemory = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            metavar="0|0,3|sample|mesh|all",
            help="Which ranks to run. Default: rank 0 while searching, then a sample of all ranks to verify.",
        ),
    ] = None,
    steps: Steps = 2,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Give up on a rehearsal after this time.")
    ] = 600.0,
    budget: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Start no new rehearsal after this time.")
    ] = 3600.0,
    environment: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The run's complete environment. Default: the installed packages, overlaid with what the "
            "launch's requirements file pins.",
        ),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE==VERSION", help="Use this version of a package. Repeatable."),
    ] = None,
    yes: Yes = False,
    env: Env = None,
    allow_training_changes: Annotated[
        bool,
        typer.Option(
            "--allow-training-changes",
            help="Allow changes that affect training results: global batch, learning rate, precision, sequence length.",
        ),
    ] = False,
    upstream: Upstream = False,
    life: Life = None,
    resume_on: ResumeOn = None,
    resume_with: ResumeWith = None,
    saves: Saves = 1,
    disk: Disk = None,
    signal: Signal = None,
    convert_with: ConvertWith = None,
    merge_with: MergeWith = None,
    serve_with: ServeWith = None,
    output_patch: Annotated[Path, typer.Option(metavar="FILE", help="File to write the patch to.")] = Path(
        "cure.patch"
    ),
    unconfined: Unconfined = False,
    apply: Annotated[bool, typer.Option("--apply", help="Apply the patch to the files, all or none.")] = False,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Find the least change that makes a run GO, and prove it by rehearsing the changed run.

    For instance: gonogo cure --gpus 8xH100-80G --host-memory 1T -- bash launch.sh

    It tries fixes in a copy, one rehearsal after another, and writes cure.patch; your files stay as they are.

    从 NO-GO 到 GO：在副本中逐个试验修复，给出经过排练验证的补丁。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable, publish

        known_format(format_)
        check_writable(output)
        command = split_command(command or [])
        if not command:
            raise UserError(
                translated("no command to cure: put it after --, for example: gonogo cure -- bash launch.sh")
            )
        from gonogo.finding.call import Invocation, machine_options
        from gonogo.rehearse.answer import rehearse_uninterrupted
        from gonogo.rehearse.automatic_preparation import automatically_prepared
        from gonogo.rehearse.display import live_display
        from gonogo.rehearse.launch.queued import with_job_from_file
        from gonogo.rehearse.lives import StageCommands, check_save_options, parse_life_stages
        from gonogo.rehearse.ranks.rank_options import LIFE_DEFAULT
        from gonogo.rehearse.request import RehearsalRequest
        from gonogo.rehearse.resumed_launch import with_life_of_resume
        from gonogo.rehearse.workers.scratch import scratch_folder
        from gonogo.report.answer.command_placeholders import with_invocation
        from gonogo.trials.cure.apply import apply_cure, check_patch_file, write_patch
        from gonogo.trials.cure.cure import cure as search
        from gonogo.trials.cure.request import CureRequest

        check_patch_file(output_patch)
        commands = StageCommands(convert_with, merge_with, serve_with)
        stages = parse_life_stages(life, resume_on, resume_with, commands)
        rehearsal = RehearsalRequest(
            command=command,
            gpus=gpus,
            nodes=nodes,
            host_memory=host_memory,
            ranks=ranks or (LIFE_DEFAULT if stages else "0"),
            steps=steps,
            timeout=timeout,
            environment=environment,
            with_packages=tuple(with_ or ()),
            yes=yes,
            unconfined=unconfined,
            env=tuple(env or ()),
            life=stages,
            resume_on=resume_on,
            resume_with=resume_with,
            saves=saves,
            disk=disk,
            signal=signal,
            stage_commands=commands,
        )
        rehearsal = with_life_of_resume(with_job_from_file(rehearsal), own_ranks=ranks is None)
        check_save_options(rehearsal.life, saves, disk, signal, kill_between_writes=False)
        request = CureRequest(
            rehearsal,
            own_ranks=ranks is None and not rehearsal.life,
            budget=budget,
            allow_training_changes=allow_training_changes,
            upstream=upstream,
            patch_file=str(output_patch),
        )
        with (
            scratch_folder() as scratch,
            live_display(language) as on_progress,
            automatically_prepared(request.rehearsal) as ready,
        ):
            request = replace(request, rehearsal=ready)
            cured = search(request, scratch, rehearse_uninterrupted, on_progress)
        report = write_patch(cured, output_patch)
        if apply:
            report = apply_cure(cured, report)
        report = with_invocation(
            report,
            Invocation(
                tuple(command),
                machine_options(gpus, nodes, host_memory, environment, with_ or (), env or ()),
                own_options=typed_options(context, only=_LIFE),
            ),
        )
        publish(report, format_, output, language, open_)
        interrupted = report.cure is not None and report.cure.interrupted
        raise SystemExit(INTERRUPTED if interrupted else report.verdict.exit_status)
