"""rows/liger.toml of the figures that Liger-Kernel's repository keeps of its benchmarks.

    python benchmarks/published/liger_rows.py MIRROR > benchmarks/published/rows/liger.toml

MIRROR is a clone of linkedin/Liger-Kernel. Drawn: all figures of memory in ``benchmark/data/all_benchmark_data.csv`` at
HEAD that were taken on data-center GPUs, of a forward and a backward pass ("full"); of each kernel, GPU, provider and
configuration the one of the largest size. A figure's program is that of the commit that put it into the file.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

FIGURES = "benchmark/data/all_benchmark_data.csv"
GPUS = {
    "NVIDIA A100-SXM4-80GB": "A100-80G",
    "NVIDIA H100 80GB HBM3": "H100-80G",
    "NVIDIA H100 PCIe": "H100-80G",
    "NVIDIA B200": "B200",
}
TRANSFORMERS = {
    "2024-09": "4.44.2", "2024-10": "4.45.2", "2024-11": "4.46.2", "2024-12": "4.46.3", "2025-03": "4.49.0",
    "2025-05": "4.52.3", "2025-06": "4.52.4", "2025-07": "4.53.2", "2025-08": "4.55.0",
}  # fmt: skip
"""The release of the month; the later ones are rehearsed with that of constraints.txt."""
MEGATRON_CORE = "megatron-core==0.16.1"
"""The last release for Python 3.11, for the scripts that measure Megatron's kernels only where it is installed."""
LEFT_OVER = "embedding"
"""Its figures hold what earlier measurements of the same process had left: 12.06 GiB where its tensors take 0.1."""
OF_A_SERIES = ("kernel_name", "gpu_name", "kernel_provider", "extra_benchmark_config_str")
HEAD = """\
# Liger-Kernel's benchmarks of its kernels, beside those of PyTorch, transformers and Megatron-LM that they replace: the
# most bytes allocated during a forward and a backward pass, as its scripts measure them; written by liger_rows.py,
# which says how the rows were drawn. An H100 PCIe is rehearsed as an H100 SXM. torch is that of constraints.txt.
framework = "Liger-Kernel"
project = "linkedin/Liger-Kernel"
folder = "benchmark/scripts"
completeness = "A"
means = "printed"
said = "torch.cuda.max_memory_allocated of one pass, median of ten"

[[row]]
name = "embedding, at the largest sizes"
strategy = ""
count = 6
date = "2024-09-03"
source = "https://github.com/linkedin/Liger-Kernel/blob/b5672a153b7b314a367996fc6cd60a57aeda4ccc/benchmark/data/all_benchmark_data.csv"
not_rehearsed.en = "the figures hold what the process had left before: 12.06 GiB at a size whose tensors take 0.1"
not_rehearsed.zh = "数值中含有同一进程先前测量遗留的张量：某一规模的张量只占 0.1 GiB，公布值却为 12.06"
"""


def git(mirror: str, *words: str) -> str:
    return subprocess.run(["git", "-C", mirror, *words], capture_output=True, text=True, check=True).stdout


def put_in_by(mirror: str, figure: dict[str, str], known: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """The commit that put a figure into the file, and the script that measures it there."""
    when = f"{figure['timestamp']},{figure['liger_version']}"
    if when not in known:
        commit = git(mirror, "log", "--reverse", "--format=%H", "-S", when, "--", FIGURES).split()[0]
        named = git(
            mirror, "grep", "-l", f'"{figure["kernel_name"]}"', commit, "--", "benchmark/scripts/benchmark_*.py"
        )
        known[when] = commit, named.split()[0].rpartition("/")[2]
    return known[when]


def main(mirror: str) -> None:
    largest: dict[tuple[str, ...], dict[str, str]] = {}
    for figure in csv.DictReader(io.StringIO(git(mirror, "show", f"HEAD:{FIGURES}"))):
        drawn = figure["metric_name"] == "memory" and figure["kernel_operation_mode"] == "full"
        if not drawn or figure["gpu_name"] not in GPUS or figure["kernel_name"] == LEFT_OVER:
            continue
        of = tuple(
            figure[name] for name in ("kernel_name", "gpu_name", "kernel_provider", "extra_benchmark_config_str")
        )
        if of not in largest or float(figure["x_value"]) > float(largest[of]["x_value"]):
            largest[of] = figure
    known: dict[str, tuple[str, str]] = {}
    rows: list[tuple[tuple[str, ...], dict[str, str], dict[str, object]]] = []
    replaced: dict[tuple[str, ...], str] = {}  # the row of what Liger's kernel replaces
    for figure in largest.values():
        commit, script = put_in_by(mirror, figure, known)
        x = float(figure["x_value"])
        size = f"{figure['x_name']}={int(x) if x == int(x) else x}"
        name = f"{figure['kernel_name']}, {figure['kernel_provider']}, {size}, {GPUS[figure['gpu_name']]}"
        if any(name == row["name"] for _, _, row in rows):
            name += ", " + "".join(c for c in figure["extra_benchmark_config_str"] if c not in '{}"')
        needs = [f"liger-kernel=={figure['liger_version']}"]
        if figure["kernel_name"].startswith("megatron"):
            needs.append(MEGATRON_CORE)
        row: dict[str, object] = {
            "name": name,
            "strategy": figure["kernel_provider"],
            "commit": commit,
            "date": figure["timestamp"][:10],
            "gpus": f"1x{GPUS[figure['gpu_name']]}",
            "command": f"python {{programs}}/liger_benchmark.py {script}",
            "figure": " ".join(
                (figure["kernel_name"], "full", figure["kernel_provider"], size, figure["extra_benchmark_config_str"])
            ),
            "published": round(float(figure["y_value_50"]) / 1024, 6),
            "source": f"https://github.com/linkedin/Liger-Kernel/blob/{commit}/{FIGURES}",
            "python": needs,
        }
        if figure["timestamp"][:7] in TRANSFORMERS:
            row["with"] = [f"transformers=={TRANSFORMERS[figure['timestamp'][:7]]}"]
        where = (figure["kernel_name"], figure["gpu_name"], figure["extra_benchmark_config_str"], figure["x_value"])
        if not figure["kernel_provider"].startswith("liger"):
            replaced.setdefault(where, name)
        rows.append((where, figure, row))
    print(HEAD)
    for where, figure, row in rows:
        if figure["kernel_provider"].startswith("liger") and where in replaced:
            row |= {
                "against": replaced[where],
                "differs": f"{figure['kernel_provider']}, not {replaced[where].split(', ')[1]}",
            }
        print("[[row]]")
        for key, value in row.items():
            print(f"{key} = {json.dumps(value)}")
        print()


if __name__ == "__main__":
    main(sys.argv[1])
