"""rows/liger.toml of the figures that Liger-Kernel's repository keeps of its benchmarks.

    python benchmarks/published/liger_rows.py MIRROR > benchmarks/published/rows/liger.toml
    python benchmarks/published/liger_rows.py MIRROR OUTPUT    # of all sizes, what is published beyond what is printed

MIRROR is a clone of linkedin/Liger-Kernel, OUTPUT what a rehearsed program printed (``rehearse --keep DIR``:
``DIR/rank-0/output.log``). Drawn: all figures of memory in ``benchmark/data/all_benchmark_data.csv`` at
HEAD that were taken on data-center GPUs, of a forward and a backward pass ("full"); of each kernel, GPU, provider and
configuration the one of the largest size. A figure's program is that of the commit that put it into the file.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

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
MEGATRON = "NVIDIA/Megatron-LM@eb1c677d7baf2f981bc7fb721807ddd5f7afd063"
"""That of 2026-06-15 (main), for the script that passes what no release for Python 3.11 takes."""
LEFT_OVER = "embedding"
"""Its figures hold what earlier measurements of the same process had left: 12.06 GiB where its tensors take 0.1."""
MEASURED_BY = {("fused_linear_cross_entropy", "0.4.2"): "d907ec0c09a0a998ecc1073afb195f1942a6c24f"}
"""The program of another commit than theirs: that one takes a copy of a chunk's logits less, but brings the figures of
2024-09-03 again, within a KiB; its parent still takes the copy."""
WITH_REMAINS = ("fused_linear_orpo_loss", "fused_linear_cpo_loss", "fused_linear_simpo_loss", "kto_loss")
"""The figures hold tensors that are none of what is measured: the same at all sizes and for both losses, as many as one
earlier call of the compiled loss has (its weights, a gradient, chunks of its input)."""
REMAINS = "torch.cuda.max_memory_allocated of one pass, median of ten, with what an earlier call left"
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


def sizes(mirror: str, output: str) -> None:
    """Print, of each case of a program, MiB published, and how many more they are than it printed."""
    published = {}
    for figure in csv.DictReader(io.StringIO(git(mirror, "show", f"HEAD:{FIGURES}"))):
        if figure["metric_name"] == "memory" and figure["gpu_name"] in GPUS:
            published[case_of(figure), GPUS[figure["gpu_name"]]] = float(figure["y_value_50"])
    for line in Path(output).read_text(encoding="utf-8").splitlines():
        told = re.match(r"figure of (?P<case>.+): (?P<gib>[0-9.e-]+) GiB$", line)
        for gpu in sorted({*GPUS.values()} if told else ()):
            mib = published.get((told["case"], gpu))
            if mib is not None:
                print(f"{told['case']}, {gpu}: {mib:,.1f} MiB, {mib - 1024 * float(told['gib']):+,.2f}")


def size_of(figure: dict[str, str]) -> str:
    x = float(figure["x_value"])
    return f"{figure['x_name']}={int(x) if x == int(x) else x}"


def case_of(figure: dict[str, str]) -> str:
    """What ``programs/liger_benchmark.py`` prints of it."""
    provider, configuration = figure["kernel_provider"], figure["extra_benchmark_config_str"]
    return f"{figure['kernel_name']} full {provider} {size_of(figure)} {configuration}"


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
        name = f"{figure['kernel_name']}, {figure['kernel_provider']}, {size_of(figure)}, {GPUS[figure['gpu_name']]}"
        if any(name == row["name"] for _, _, row in rows):
            name += ", " + "".join(c for c in figure["extra_benchmark_config_str"] if c not in '{}"')
        needs = [f"liger-kernel=={figure['liger_version']}"]
        of_main = figure["kernel_name"] == "megatron_cross_entropy"
        if figure["kernel_name"].startswith("megatron") and not of_main:
            needs.append(MEGATRON_CORE)
        row: dict[str, object] = {
            "name": name,
            "strategy": figure["kernel_provider"],
            "commit": MEASURED_BY.get((figure["kernel_name"], figure["liger_version"]), commit),
            "date": figure["timestamp"][:10],
            "gpus": f"1x{GPUS[figure['gpu_name']]}",
            "command": f"python {{programs}}/liger_benchmark.py {script}",
            "figure": case_of(figure),
            "published": round(float(figure["y_value_50"]) / 1024, 6),
            "source": f"https://github.com/linkedin/Liger-Kernel/blob/{commit}/{FIGURES}",
            "python": needs,
        }
        if of_main:
            row["beside"] = [MEGATRON]
        if figure["kernel_name"] in WITH_REMAINS:
            row |= {"completeness": "B", "said": REMAINS}
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
    sizes(*sys.argv[1:3]) if len(sys.argv) > 2 else main(sys.argv[1])
