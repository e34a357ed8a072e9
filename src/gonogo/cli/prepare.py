"""The command ``gonogo prepare`` and its options."""

from __future__ import annotations

import functools
import io
import os
from typing import Annotated

import typer

from gonogo.cli.command_words import split_command
from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import (
    AsOf,
    Command,
    Env,
    Gpus,
    InEnvironment,
    Lang,
    Output,
    Unconfined,
    Yes,
    environment_option,
)
from gonogo.finding import UserError, Verdict, translated
from gonogo.finding.language import choose_language


def prepare(
    command: Command = None,
    list_: Annotated[bool, typer.Option("--list", help="Only list; don't write or run anything.")] = False,
    rows: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Rows per generated data set.")] = 64,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, metavar="N", help="Tokens per generated row. Default: COMMAND's maximum length."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PATH=]NAME",
            help="The published model to use for PATH, or for all unknown models; without COMMAND, only generate "
            "this model. Repeatable.",
        ),
    ] = None,
    gpus: Gpus = None,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Only read the files; don't run the program up to its first batch.")
    ] = False,
    environment: InEnvironment = None,
    as_of: AsOf = None,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="PACKAGE==VERSION", help="Use this version of a package. Repeatable."),
    ] = None,
    yes: Yes = False,
    env: Env = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Give up on that run after this time.")
    ] = 600.0,
    unconfined: Unconfined = False,
    format_: Annotated[str, typer.Option("--format", metavar="text|json", help="Format of the list.")] = "text",
    output: Output = None,
    lang: Lang = None,
) -> None:
    """List what a launch will open, and make what of it is not here: models without weights, tokenizers, rows of data.

    For instance: gonogo prepare -- bash finetune.sh, then: gonogo rehearse -- bash finetune.sh

    Without a launch, the folder of a published model alone: gonogo prepare --model Qwen/Qwen2.5-7B

    What is made lies in ./gonogo-prepared; rehearsals find it by themselves. Your files stay as they are.

    列出启动命令要打开的内容，并生成本机没有的部分：不含权重的模型、分词器、数据行。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.confinement.variables import check_named
        from gonogo.finding.redaction import redact
        from gonogo.prepare.output import check_format, write_list
        from gonogo.prepare.prepare import Preparation
        from gonogo.report.output import check_writable, publish_text

        def publish_preparation(preparation: Preparation) -> None:
            buffer = io.StringIO()
            write_list(buffer, preparation, command or (), format_, language, not list_)
            publish_text(lambda stream: stream.write(redact(buffer.getvalue())), output)

        check_format(format_)
        check_writable(output)
        environment = environment_option(environment)
        check_named(env or (), os.environ)
        if not command and model:
            from gonogo.prepare.prepare import prepare_models

            done = prepare_models(model, write=not list_)
            publish_preparation(done)
            raise SystemExit((Verdict.GO if done.is_complete else Verdict.CANNOT_TELL).exit_status)
        command = split_command(command or [])
        if not command:
            raise UserError(
                translated(
                    "no command to prepare for: put it after --, for example: gonogo prepare -- bash "
                    "launch.sh (or name a model to generate just its folder: gonogo prepare --model "
                    "Qwen/Qwen2.5-7B)"
                )
            )
        from gonogo.prepare.prepare import EnvironmentOptions as Given
        from gonogo.prepare.prepare import parse_prepare_options
        from gonogo.prepare.prepare import prepare as make_ready
        from gonogo.prepare.provided_files import AS_INSTALLED
        from gonogo.rehearse.display import live_display
        from gonogo.rehearse.launch.queued import with_job_from_file
        from gonogo.rehearse.probe_run import run_probe
        from gonogo.rehearse.request import RehearsalRequest

        options = parse_prepare_options(rows, tokens, model or [])
        request = with_job_from_file(
            RehearsalRequest(
                command=command,
                gpus=gpus,
                environment=environment,
                as_of=as_of,
                with_packages=tuple(with_ or ()),
                timeout=timeout,
                yes=yes,
                unconfined=unconfined,
                env=tuple(env or ()),
            )
        )
        as_installed = environment == AS_INSTALLED
        given = Given(None if as_installed else environment, as_of, tuple(with_ or ()), as_installed)
        with live_display(language) as on_progress:
            quiet = list_ or files_only
            done = make_ready(
                command,
                options,
                given,
                write=not list_,
                probe=None if quiet else functools.partial(run_probe, request, on_progress),
            )
        publish_preparation(done)
        raise SystemExit((Verdict.GO if done.is_complete else Verdict.CANNOT_TELL).exit_status)
