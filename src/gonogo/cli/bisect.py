"""The command ``gonogo bisect`` and its options."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gonogo.cli.command_words import split_command
from gonogo.cli.exit_status import INTERRUPTED, exit_statuses
from gonogo.cli.options import (
    AsOf,
    Command,
    Env,
    Format,
    Gpus,
    HostMemory,
    InEnvironment,
    Lang,
    Nodes,
    Open,
    Output,
    Ranks,
    Steps,
    Unconfined,
    Upstream,
    Yes,
    environment_option,
)
from gonogo.finding import UserError, translated
from gonogo.finding.language import choose_language

if TYPE_CHECKING:
    from gonogo.finding import Report
    from gonogo.rehearse.progress import OnProgress
    from gonogo.rehearse.request import RehearsalRequest


def bisect(
    command: Command = None,
    package: Annotated[str | None, typer.Option(metavar="NAME", help="The package to bisect.")] = None,
    good: Annotated[
        str | None, typer.Option(metavar="VERSION", help="A release that works; older or newer than --bad.")
    ] = None,
    bad: Annotated[str | None, typer.Option(metavar="VERSION", help="A release that fails.")] = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    host_memory: HostMemory = None,
    ranks: Ranks = "0",
    steps: Steps = 2,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Give up on a release after this time.")
    ] = 600.0,
    environment: InEnvironment = None,
    as_of: AsOf = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE==VERSION", help="Use this version of another package. Repeatable."),
    ] = None,
    yes: Yes = False,
    env: Env = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the raw records in DIR, one folder per release.")
    ] = None,
    upstream: Upstream = False,
    unconfined: Unconfined = False,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Find the release of a package that breaks a training program, or mends it, by rehearsing the program.

    For instance: gonogo bisect --package deepspeed --good 0.14.0 --bad 0.14.2 -- bash launch.sh

    The releases are those that pip finds, without pre-releases; your environment stays as it is.

    用排练做二分查找：哪个版本的软件包引入或修复了问题。
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
                translated(
                    "no command to rehearse: put it after --, for example: gonogo bisect --package deepspeed "
                    "--good 0.14.0 --bad 0.14.2 -- bash launch.sh"
                )
            )
        from gonogo.finding.call import Invocation, machine_options
        from gonogo.rehearse.automatic_preparation import automatically_prepared
        from gonogo.rehearse.display import live_display
        from gonogo.rehearse.launch.queued import with_job_from_file
        from gonogo.rehearse.request import RehearsalRequest
        from gonogo.rehearse.workers.keep import check_keep_folder
        from gonogo.report.answer.command_placeholders import with_invocation
        from gonogo.trials.bisect.bisect import BisectRequest
        from gonogo.trials.bisect.bisect import bisect as run_bisection
        from gonogo.trials.bisect.report import bisect_report

        check_keep_folder(keep)
        rehearsal = RehearsalRequest(
            command=command,
            gpus=gpus,
            nodes=nodes,
            host_memory=host_memory,
            ranks=ranks,
            steps=steps,
            timeout=timeout,
            environment=environment_option(environment),
            with_packages=tuple(with_ or ()),
            as_of=as_of,
            keep=keep,
            yes=yes,
            unconfined=unconfined,
            env=tuple(env or ()),
        )
        request = BisectRequest(
            _require_option("--package", package),
            _require_option("--good", good),
            _require_option("--bad", bad),
            with_job_from_file(rehearsal),
            upstream,
        )
        with live_display(language) as on_progress, automatically_prepared(request.rehearsal) as ready:
            found = run_bisection(replace(request, rehearsal=ready), _rehearse_release, on_progress)
        report = with_invocation(
            bisect_report(found),
            Invocation(tuple(command), machine_options(gpus, nodes, host_memory, environment, with_ or (), env or ())),
        )
        publish(report, format_, output, language, open_)
        raise SystemExit(INTERRUPTED if found.interrupted else report.verdict.exit_status)


def _rehearse_release(request: RehearsalRequest, on_progress: OnProgress | None) -> tuple[Report, bool]:
    from gonogo.rehearse.answer import rehearsal_report, was_interrupted
    from gonogo.rehearse.run import rehearse

    record = rehearse(request, on_progress)
    return rehearsal_report(record), was_interrupted(record)


def _require_option(option: str, value: str | None) -> str:
    if value is None:
        raise UserError(
            translated(
                "{option} is missing: a bisection needs --package NAME, --good VERSION and --bad VERSION"
            ).format(option=option)
        )
    return value
