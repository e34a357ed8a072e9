"""The command ``gonogo gpus``, which lists the values that ``--gpus`` takes."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang, Output, PageFormat
from gonogo.finding import Text, UserError, translated
from gonogo.finding.language import choose_language

if TYPE_CHECKING:
    from gonogo.evidence.environment.hardware import Accelerator
    from gonogo.evidence.environment.instances import CloudInstanceType

_GIB = 1 << 30
_ACCELERATORS = (
    translated("GPU"),
    translated("memory"),
    translated("interconnect GB/s"),
    translated("16-bit TFLOP/s"),
    translated("aliases"),
)
_INSTANCES = (translated("instance"), translated("GPUs"), translated("host memory"), translated("cloud"))


def gpus(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only names that contain this: H100, p5, ecs.gn7e, Azure.")
    ] = None,
    format_: PageFormat = "text",
    output: Output = None,
    lang: Lang = None,
) -> None:
    """List the accelerators and the cloud instances that --gpus takes: memory, links, GPUs, host memory, sources.

    For instance: gonogo gpus H100    and then: gonogo rehearse --gpus 2xp5.48xlarge -- bash launch.sh

    列出 --gpus 接受的 GPU 和云实例。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.evidence.environment.hardware import all_accelerators
        from gonogo.evidence.environment.instances import all_instance_types
        from gonogo.report import check_page_format
        from gonogo.report.output import check_writable, publish_text

        check_page_format(format_)
        check_writable(output)
        requested = (name or "").lower()
        instances = [
            one for one in all_instance_types() if requested in f"{one.name}\n{one.provider}\n{one.accelerator}".lower()
        ]
        used = {instance.accelerator for instance in instances}
        accelerators = [
            one
            for one in all_accelerators()
            if requested in "\n".join((one.name, one.product, *one.aliases)).lower() or (requested and one.name in used)
        ]
        if not accelerators and not instances:
            raise UserError(
                translated("{name}: no GPU or instance has this in its name; gonogo gpus lists them").format(
                    name=repr(name)
                )
            )
        publish_text(lambda stream: _write_gpus(stream, accelerators, instances, format_, language), output)


def _write_gpus(
    stream: TextIO, accelerators: list[Accelerator], instances: list[CloudInstanceType], format_name: str, language: str
) -> None:
    if format_name == "json":
        document = {
            "schema": "gonogo.gpus/1",
            "accelerators": [_accelerator_to_json(one) for one in accelerators],
            "instances": [
                {
                    "name": one.name,
                    "provider": one.provider,
                    "accelerator": one.accelerator,
                    "count": one.count,
                    "host_memory_bytes": one.host_bytes,
                    "source": one.source,
                }
                for one in instances
            ],
        }
        stream.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        return
    rows = [
        (
            one.name,
            f"{one.total_bytes / _GIB:.1f} GiB",
            f"{one.speed.link_bytes / 1e9:.0f}" if one.speed else "",
            f"{one.speed.matmul_flops / 1e12:.0f}" if one.speed else "",
            ", ".join(one.aliases),
        )
        for one in accelerators
    ]
    rented = [(one.name, f"{one.count}x{one.accelerator}", f"{one.host_gib} GiB", one.provider) for one in instances]
    tables: list[tuple[tuple[Text, ...], list[tuple[str, ...]]]] = [(_ACCELERATORS, [*rows]), (_INSTANCES, [*rented])]
    for number, (columns, cells) in enumerate(tables):
        if not cells:
            continue
        if number and rows:
            stream.write("\n")
        heads = [column.in_language(language) for column in columns]
        if format_name == "markdown":
            stream.write(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}\n")
            stream.writelines(f"| {' | '.join(row)} |\n" for row in cells)
        else:
            _print_table(stream, heads, cells)


def _print_table(stream: TextIO, headers: list[str], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    terminal = stream.isatty()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, head in enumerate(headers):
        table.add_column(head, no_wrap=index < len(headers) - 1, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(file=stream, width=None if terminal else 140, force_terminal=terminal, highlight=False).print(table)
    stream.flush()


def _accelerator_to_json(accelerator: Accelerator) -> dict[str, Any]:
    speed = accelerator.speed
    return {
        "name": accelerator.name,
        "aliases": list(accelerator.aliases),
        "product": accelerator.product,
        "device_type": accelerator.device_type,
        "memory_bytes": accelerator.total_bytes,
        "matmul_tflops": speed.matmul_flops / 1e12 if speed else None,
        "memory_gbs": speed.memory_bytes / 1e9 if speed else None,
        "link_gbs": speed.link_bytes / 1e9 if speed else None,
        "host_link_gbs": speed.host_link_bytes / 1e9 if speed else None,
        "source": accelerator.source,
        "speed_source": speed.source if speed else None,
    }
