"""``nvidia-smi`` and ``npu-smi``, answered for the virtual machine: scripts count accelerators with them."""

from __future__ import annotations

import sys

from gonogo.rehearse.launch.launch import Surroundings
from gonogo.rehearse.shell.session import ShellSession

_MIB = 1 << 20


def answer_smi(session: ShellSession, name: str, arguments: list[str]) -> int:
    """Print what the program would; 127 where the machine's accelerators have another one."""
    surroundings = session.settings.surroundings
    if (name == "npu-smi") != (surroundings.device_type == "npu"):
        print(f"{name}: command not found", file=sys.stderr)
        return 127
    text = _npu_smi(surroundings, arguments) if name == "npu-smi" else _nvidia_smi(surroundings, arguments)
    if text is None:
        session.skip([name, *arguments])
        return 0
    sys.stdout.write(text)
    return 0


def _uuid(index: int) -> str:
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"


def _nvidia_smi(surroundings: Surroundings, arguments: list[str]) -> str | None:
    options = _options(arguments)
    chosen = range(surroundings.count)
    wanted = options.get("-i", options.get("--id", ""))
    if wanted:
        chosen_ids = {int(part) for part in wanted.split(",") if part.isdigit()}
        rows = [index for index in chosen if index in chosen_ids]
    else:
        rows = list(chosen)
    if "-L" in options or "--list-gpus" in options:
        return "".join(f"GPU {index}: {surroundings.product} (UUID: {_uuid(index)})\n" for index in rows)
    query = options.get("--query-gpu")
    if query is not None:
        return _query(surroundings, query.split(","), options.get("--format", "csv").split(","), rows)
    return None if options.keys() - {"-i", "--id"} else _table(surroundings, rows)


def _options(arguments: list[str]) -> dict[str, str]:
    """Options with their values, which follow after ``=`` or as the next word."""
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


def _query(surroundings: Surroundings, fields: list[str], form: list[str], rows: list[int]) -> str:
    units = "" if "nounits" in form else " MiB"
    total = surroundings.total_bytes // _MIB
    major, minor = surroundings.compute_capability
    lines = [] if "noheader" in form else [", ".join(field.strip() for field in fields)]
    for index in rows:
        known = {
            "name": surroundings.product,
            "gpu_name": surroundings.product,
            "count": str(surroundings.count),
            "index": str(index),
            "uuid": _uuid(index),
            "gpu_uuid": _uuid(index),
            "memory.total": f"{total}{units}",
            "memory.free": f"{total}{units}",
            "memory.used": f"0{units}",
            "utilization.gpu": "0" if "nounits" in form else "0 %",
            "compute_cap": f"{major}.{minor}",
        }
        lines.append(", ".join(known.get(field.strip(), "[N/A]") for field in fields))
    return "".join(f"{line}\n" for line in lines)


def _table(surroundings: Surroundings, rows: list[int]) -> str:
    total = surroundings.total_bytes // _MIB
    rule = "+" + "-" * 77 + "+\n"
    lines = [f"| {index:>3}  {surroundings.product:<40} {0:>8}MiB / {total:>6}MiB |\n" for index in rows]
    return rule + f"| NVIDIA-SMI{'':<66}|\n" + rule + "".join(lines) + rule


def _npu_smi(surroundings: Surroundings, arguments: list[str]) -> str | None:
    if arguments[:1] != ["info"]:
        return None
    if "-l" in arguments:
        entries = "".join(f"\tNPU ID                         : {index}\n" for index in range(surroundings.count))
        return f"\tTotal Count                    : {surroundings.count}\n\n{entries}"
    name = surroundings.product.removeprefix("Ascend").strip() or surroundings.product
    rule = "+" + "-" * 75 + "+\n"
    lines = [f"| {index:<5} {name:<19}| OK {'':<44} |\n" for index in range(surroundings.count)]
    return rule + "".join(lines) + rule
