"""The command ``gonogo plan``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import GPUS, Format, HostMemory, Lang, Open, Output, split_at_dashes
from gonogo.finding import Text, UserError, translated
from gonogo.finding.language import choose_language


def plan(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [-- COMMAND...]",
            help="A folder with config.json, or a hub name; or, after --, a command that trains the model.",
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(metavar=GPUS, help="GPUs of a node, e.g. 8xA100-80G, or an instance type. Default: 8xH100-80G."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of nodes. Default: 1, or from COMMAND.")
    ] = None,
    host_memory: HostMemory = None,
    nvme: Annotated[str | None, typer.Option(metavar="SIZE", help="NVMe per node for offloading, e.g. 4T.")] = None,
    seq_len: Annotated[int | None, typer.Option(min=8, metavar="N", help="Tokens per sample. Default: 4096.")] = None,
    tune: Annotated[
        str | None,
        typer.Option(metavar="full|lora|qlora|freeze-vision", help="Full fine-tuning or adapters. Default: full."),
    ] = None,
    sharding: Annotated[
        str | None, typer.Option(metavar="any|zero|fsdp2", help="DeepSpeed ZeRO, PyTorch FSDP2, or both. Default: any.")
    ] = None,
    lora_rank: Annotated[int | None, typer.Option(min=1, metavar="N", help="LoRA rank. Default: 16.")] = None,
    global_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples per optimizer step, over all GPUs. Default: 64.")
    ] = None,
    network: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="GBIT", help="Inter-node bandwidth per GPU in Gbit/s. Default: 200."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="sft|dpo|kto|rm|grpo|rloo|gkd", help="Training task (TRL trainer). Default: sft."),
    ] = None,
    prompt_len: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --task: tokens per prompt. Default: 512.")
    ] = None,
    completion_len: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --task: maximum tokens per completion. Default: 1024.")
    ] = None,
    generations: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="grpo, rloo: completions per prompt. Default: 8.")
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="B", help="KL coefficient (beta); 0: no reference model. Default: TRL's."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="colocate|server|none", help="grpo, rloo: where vLLM runs. Default: any.")
    ] = None,
    reward_model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="grpo, rloo: a reward model. Default: a reward function.")
    ] = None,
    teacher: Annotated[str | None, typer.Option(metavar="MODEL", help="gkd: the teacher model.")] = None,
    solve: Annotated[
        str | None,
        typer.Option(
            metavar="micro-batch|seq-len|gpus|generations",
            help="Find the largest value that fits; for gpus, the fewest.",
        ),
    ] = None,
    memory_at: Annotated[
        str | None,
        typer.Option(
            metavar="N,N...", help="Also rehearse the best strategies at these sequence lengths: GPU memory at each."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the DeepSpeed or FSDP config, script and launch commands of the best strategy to this folder.",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|png", help="Write a picture of each GPU's memory breakdown to this file."),
    ] = None,
    price: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your hourly prices of GPUs or instances (YAML, JSON), to estimate hours and cost."
        ),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="N", help="With --price: tokens to train on, e.g. 1.5B. Default: 1B.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Give up on a rehearsal after this time.")
    ] = 300.0,
    format_: Format = "text",
    output: Output = None,
    open_: Open = False,
    lang: Lang = None,
) -> None:
    """Find the strategies that fit a model on given accelerators, and the fastest of them. No GPU needed.

    For instance: gonogo plan Qwen/Qwen2.5-7B --gpus 8xA100-80G --host-memory 1T --seq-len 4096

    Formulas say what is worth a rehearsal; the real transformers with DeepSpeed or FSDP2, rehearsed, say what it takes.

    给定模型和 GPU，找出放得下的方案并按速度排序，无需 GPU。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable, publish

        known_format(format_)
        check_writable(output)
        from gonogo.finding.call import Invocation
        from gonogo.report.answer.command_placeholders import with_invocation
        from gonogo.report.trials.plan_picture import check_picture, write_picture

        check_picture(picture)
        from gonogo.rehearse.launch.torch_installed import check_torch
        from gonogo.rehearse.workers.scratch import scratch_folder
        from gonogo.trials.plan.answer import plan_report
        from gonogo.trials.plan.answer_solved import solved_report
        from gonogo.trials.plan.from_command import read_training_command
        from gonogo.trials.plan.lengths import check_lengths, parse_lengths, with_lengths
        from gonogo.trials.plan.measure import Meter, NotMeasured
        from gonogo.trials.plan.price import parse_tokens, read_price, with_costs
        from gonogo.trials.plan.request import PlanOptions, build_plan_request, check_model, check_packages
        from gonogo.trials.plan.search import PlanResult, check_batch, search
        from gonogo.trials.plan.solve import check_unknown
        from gonogo.trials.plan.solve import solve as solve_for
        from gonogo.trials.plan.task.settings import TaskOptions
        from gonogo.trials.plan.write import check_folder, write_best

        words, command = split_at_dashes(arguments or [])
        gpus, nodes, host_memory = _machine_options(command, gpus, nodes, host_memory)
        requested = PlanOptions(
            model=_single_model(words),
            gpus=gpus,
            nodes=nodes,
            host_memory=host_memory,
            nvme=nvme,
            seq_len=seq_len,
            tune=tune,
            lora_rank=lora_rank,
            global_batch=global_batch,
            network=network,
            timeout=timeout,
            sharding=sharding,
            task=TaskOptions(task, prompt_len, completion_len, generations, beta, teacher, reward_model, engine),
        )
        request, notes = build_plan_request(requested, read_training_command(command) if command else None)
        check_model(request.model, request.name)
        if request.task is not None and request.task.beside is not None:
            check_model(request.task.beside, request.task.beside_name)
        wanted = parse_tokens(tokens)
        paid = None if price is None else read_price(price, gpus, request.machine.accelerator.name)
        unknown = None if solve is None else check_unknown(solve, request)
        lengths = parse_lengths(memory_at)
        if lengths and solve is not None:
            raise UserError(translated("--memory-at can't be combined with --solve: leave one of them out"))
        check_batch(request)
        if write is not None:
            check_folder(write)
        check_torch()
        check_packages(request.tune, "sft" if request.task is None else request.task.task)
        with (
            scratch_folder() as scratch,
            _progress_display(language) as (report_progress, on_done),
            Meter(request, scratch, on_done) as meter,
        ):
            try:
                check_lengths(lengths, request, meter)
                found = (
                    with_lengths(search(request, meter, report_progress), lengths, meter, report_progress)
                    if unknown is None
                    else solve_for(unknown, request, meter, report_progress)
                )
            except NotMeasured as error:
                raise UserError(translated("can't build {name}: {why}").format(name=request.name, why=error)) from error
        if write is not None:
            notes += write_best(write, found)
        report = plan_report(found, notes) if isinstance(found, PlanResult) else solved_report(found, notes)
        if paid is not None and report.plan is not None:
            report = msgspec.structs.replace(report, plan=with_costs(report.plan, paid, wanted))
        if picture is not None and report.plan is not None:
            note = write_picture(report.plan, picture, language)
            if note is not None:
                typer.echo(note.in_language(language), err=True)
        options = sys.argv[2 : sys.argv.index("--") if "--" in sys.argv else None]
        for word in words:
            options.remove(word)
        report = with_invocation(report, Invocation(tuple(command), tuple(options), tuple(words)))
        publish(report, format_, output, language, open_)
        raise SystemExit(report.verdict.exit_status)


def _machine_options(
    command: list[str], gpus: str | None, nodes: int | None, host_memory: str | None
) -> tuple[str | None, int | None, str | None]:
    """The options, completed by what a job's file requests."""
    from gonogo.rehearse.launch.queued import with_job_from_file
    from gonogo.rehearse.request import RehearsalRequest

    job = with_job_from_file(RehearsalRequest(command, gpus, nodes, host_memory))
    named = None if job.gpus is None or job.gpus.isdecimal() else job.gpus  # a count alone names no GPU model
    return gpus or named, nodes, job.host_memory


def _single_model(words: list[str]) -> str | None:
    if len(words) > 1:
        raise UserError(
            translated("only one model can be given, not {words}: a command goes after --").format(
                words=" ".join(words)
            )
        )
    return words[0] if words else None


@contextlib.contextmanager
def _progress_display(language: str) -> Iterator[tuple[Callable[[Text], None], Callable[[int, int], None]]]:
    """What to tell of the search's progress: shown on a terminal's stderr, else nowhere."""
    from gonogo.prepare.prompts import writes_lines
    from gonogo.rehearse.display import progress_line_printer

    if writes_lines():
        yield progress_line_printer(language), (lambda _done, _all: None)
        return
    if not sys.stderr.isatty():
        yield (lambda _text: None), (lambda _done, _all: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)
        yield (
            lambda text: shown.update(task, description=text.in_language(language), completed=0, total=None),
            lambda done, every: shown.update(task, completed=done, total=every),
        )
