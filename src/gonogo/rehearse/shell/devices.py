"""``nvidia-smi`` and ``npu-smi`` for the virtual machine, which scripts and programs use to count accelerators.

A call in a launch script is answered by the stand-in for all programs. A call in the training program is answered by
the script that :func:`install_smi_program` writes, which runs this file alone, without gonogo's other modules, because
frameworks call it at every start.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gonogo.rehearse.launch.launch import LaunchMachine
    from gonogo.rehearse.shell.session import ShellSession

_MIB = 1 << 20
_DRIVER_VERSION = "580.95.05"
"""A driver for all releases of CUDA up to 13: with older ones accelerate disables peer-to-peer on some cards."""


def print_smi_output(session: ShellSession, name: str, arguments: list[str]) -> int:
    """Print what ``nvidia-smi`` or ``npu-smi`` would print; returns 127 if the machine has other accelerators."""
    surroundings = session.settings.surroundings
    if (name == "npu-smi") != (surroundings.device_type == "npu"):
        print(f"{name}: command not found", file=sys.stderr)
        return 127
    text = _smi_output(surroundings, name, arguments)
    if text is None:
        session.record_skipped([name, *arguments])
        return 0
    sys.stdout.write(text)
    return 0


def install_smi_program(folder: Path, surroundings: LaunchMachine) -> Path:
    """Write ``nvidia-smi`` and the like for the virtual machine to a folder for the start of PATH; returns it."""
    folder.mkdir(exist_ok=True)
    name = "npu-smi" if surroundings.device_type == "npu" else "nvidia-smi"
    known = {
        "device_type": surroundings.device_type,
        "product": surroundings.product,
        "compute_capability": surroundings.compute_capability,
        "total_bytes": surroundings.total_bytes,
        "count": surroundings.count,
    }
    words = [sys.executable, "-I", "-S", os.path.abspath(__file__), json.dumps(known), name]
    (folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    (folder / name).chmod(0o755)
    return folder


def _smi_output(surroundings: LaunchMachine, name: str, arguments: list[str]) -> str | None:
    return (
        _npu_smi_output(surroundings, arguments) if name == "npu-smi" else _nvidia_smi_output(surroundings, arguments)
    )


def _gpu_uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def _nvidia_smi_output(surroundings: LaunchMachine, arguments: list[str]) -> str | None:
    options = _options(arguments)
    chosen = range(surroundings.count)
    wanted = options.get("-i", options.get("--id", ""))
    if wanted:
        chosen_ids = {int(part) for part in wanted.split(",") if part.isdecimal()}
        rows = [index for index in chosen if index in chosen_ids]
    else:
        rows = list(chosen)
    if "-L" in options or "--list-gpus" in options:
        return "".join(f"GPU {index}: {surroundings.product} (UUID: {_gpu_uuid(index)})\n" for index in rows)
    query = options.get("--query-gpu")
    if query is not None:
        return _query_output(surroundings, query.split(","), options.get("--format", "csv").split(","), rows)
    return None if options.keys() - {"-i", "--id"} else _nvidia_smi_table(surroundings, rows)


def _options(arguments: list[str]) -> dict[str, str]:
    """Options with their values, which follow ``=`` or are the next word."""
    options: dict[str, str] = {}
    last = ""
    for word in arguments:
        if word.startswith("-"):
            last, _, value = word.partition("=")
            options[last] = value
        elif last:
            options[last] = word
        else:
            options[word] = ""
    return options


def _query_output(surroundings: LaunchMachine, fields: list[str], format_options: list[str], rows: list[int]) -> str:
    units = "" if "nounits" in format_options else " MiB"
    total = surroundings.total_bytes // _MIB
    major, minor = surroundings.compute_capability
    lines = [] if "noheader" in format_options else [", ".join(field.strip() for field in fields)]
    for index in rows:
        known = {
            "name": surroundings.product,
            "gpu_name": surroundings.product,
            "count": str(surroundings.count),
            "index": str(index),
            "uuid": _gpu_uuid(index),
            "gpu_uuid": _gpu_uuid(index),
            "memory.total": f"{total}{units}",
            "memory.free": f"{total}{units}",
            "memory.used": f"0{units}",
            "utilization.gpu": "0" if "nounits" in format_options else "0 %",
            "compute_cap": f"{major}.{minor}",
            "driver_version": _DRIVER_VERSION,
        }
        lines.append(", ".join(known.get(field.strip(), "[N/A]") for field in fields))
    return "".join(f"{line}\n" for line in lines)


def _nvidia_smi_table(surroundings: LaunchMachine, rows: list[int]) -> str:
    total = surroundings.total_bytes // _MIB
    rule = "+" + "-" * 77 + "+\n"
    lines = [f"| {index:>3}  {surroundings.product:<40} {0:>8}MiB / {total:>6}MiB |\n" for index in rows]
    return rule + f"| NVIDIA-SMI{'':<66}|\n" + rule + "".join(lines) + rule


def _npu_smi_output(surroundings: LaunchMachine, arguments: list[str]) -> str | None:
    if arguments[:1] != ["info"]:
        return None
    if "-l" in arguments:
        entries = "".join(f"\tNPU ID                         : {index}\n" for index in range(surroundings.count))
        return f"\tTotal Count                    : {surroundings.count}\n\n{entries}"
    name = surroundings.product.removeprefix("Ascend").strip() or surroundings.product
    rule = "+" + "-" * 75 + "+\n"
    lines = [f"| {index:<5} {name:<19}| OK {'':<44} |\n" for index in range(surroundings.count)]
    return rule + "".join(lines) + rule


def _write_smi_output(surroundings_json: str, name: str, arguments: list[str]) -> int:
    surroundings: Any = SimpleNamespace(**json.loads(surroundings_json))
    text = _smi_output(surroundings, name, arguments)
    sys.stdout.write("" if text is None else text)
    return 0


if __name__ == "__main__":
    sys.exit(_write_smi_output(sys.argv[1], sys.argv[2], sys.argv[3:]))
