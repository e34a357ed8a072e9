"""The command ``gonogo plan``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from gonogo.errors import UserError
from gonogo.exit_status import exit_statuses
from gonogo.finding import Text
from gonogo.language import chosen_language
from gonogo.options import Format, Lang, Output


def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder with config.json, or a hub name in the cache.")
    ],
    gpus: Annotated[
        str, typer.Option(metavar="COUNTxTYPE", help="A node's accelerators, e.g. 8xA100-80G.")
    ] = "8xH100-80G",
    nodes: Annotated[int, typer.Option(min=1, metavar="N", help="Nodes.")] = 1,
    host_memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Host memory of a node, e.g. 1T or 512G.")
    ] = None,
    nvme: Annotated[
        str | None, typer.Option(metavar="SIZE", help="NVMe of a node that states may lie on, e.g. 4T.")
    ] = None,
    seq_len: Annotated[int, typer.Option(min=8, metavar="N", help="Tokens of a sample.")] = 4096,
    tune: Annotated[str, typer.Option(metavar="full|lora|qlora|freeze-vision", help="What is trained.")] = "full",
    lora_rank: Annotated[int, typer.Option(min=1, metavar="N", help="Rank of the adapters.")] = 16,
    global_batch: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Samples of an optimizer step, over all GPUs. Default: 64.")
    ] = None,
    network: Annotated[
        float | None, typer.Option(min=0.1, metavar="GBIT", help="Gbit/s of a GPU to other nodes. Default: 200.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, metavar="SECONDS", help="Give up on a rehearsal that takes longer.")
    ] = 300.0,
    format_: Format = "text",
    output: Output = None,
    lang: Lang = None,
) -> None:
    """Find the strategies that fit a model on given accelerators, and the fastest of them. No GPU needed.

    For instance: gonogo plan Qwen2.5-7B/ --gpus 8xA100-80G --host-memory 1T --seq-len 4096

    Formulas say what is worth a rehearsal; the real transformers and DeepSpeed, rehearsed, say what it takes.

    给定模型和显卡，找出放得下的方案并按速度排序，无需 GPU。
    """
    language = chosen_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report import known_format
        from gonogo.report.output import check_writable, publish

        known_format(format_)
        check_writable(output)
        from gonogo.evidence.hardware import machine_from, memory_size
        from gonogo.plan.answer import answer
        from gonogo.plan.measure import Meter, NotMeasured, check_model
        from gonogo.plan.request import PlanRequest, model_folder
        from gonogo.plan.search import check_batch, search
        from gonogo.plan.strategy import TUNES
        from gonogo.rehearse.scratch import scratch_folder
        from gonogo.rehearse.torch_installed import check_torch

        if tune not in TUNES:
            raise UserError(
                Text("--tune {tune}: one of {known}", "--tune {tune}：可选 {known}").format(
                    tune=tune, known=", ".join(TUNES)
                )
            )
        folder = model_folder(model)
        check_model(folder, model)
        request = PlanRequest(
            model=folder,
            name=model,
            machine=machine_from(gpus, nodes, host_memory, 1),
            seq_len=seq_len,
            tune=tune,
            lora_rank=lora_rank,
            global_batch=global_batch,
            nvme_bytes=None if nvme is None else memory_size(nvme, "--nvme"),
            network_bytes=None if network is None else network * 1e9 / 8,
            timeout=timeout,
        )
        check_batch(request)
        check_torch()
        with (
            scratch_folder() as scratch,
            _progress(language) as (say, on_done),
            Meter(request, scratch, on_done) as meter,
        ):
            try:
                found = search(request, meter, say)
            except NotMeasured as error:
                raise UserError(
                    Text("{name} can't be made: {why}", "{name} 无法构建：{why}").format(name=model, why=error)
                ) from error
        report = answer(found)
        publish(report, format_, output, language)
        raise SystemExit(report.verdict.exit_status)


@contextlib.contextmanager
def _progress(language: str) -> Iterator[tuple[Callable[[Text], None], Callable[[int, int], None]]]:
    """What to tell of the search's progress: shown on a terminal's stderr, else nowhere."""
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
