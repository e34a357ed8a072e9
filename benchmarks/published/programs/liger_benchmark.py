"""Run the memory measurements of one of Liger-Kernel's benchmark scripts, as it stands, and print each figure.

    python liger_benchmark.py benchmark_cross_entropy.py     # in a checkout's benchmark/scripts

The script's own functions measure; its measurements of speed are left out, and its CSV file is not written.
"""

import dataclasses
import runpy
import sys
from pathlib import Path

SCRIPTS = Path.cwd()
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS.parents[1] / "src")]

import utils  # noqa: E402  the scripts' own, beside them

run_benchmarks = utils.run_benchmarks


def run_memory_benchmarks(*args, **kwargs):
    if kwargs["metric_name"] == "memory":
        run_benchmarks(*args, **kwargs)


def print_figures(benchmark_data_list, **_):
    for one in map(dataclasses.asdict, benchmark_data_list):
        for x, mib in zip(one["x_values"], one["y_values_50"], strict=True):
            case = f"{one['kernel_name']} {one['kernel_operation_mode']} {one['kernel_provider']} {one['x_name']}={x}"
            print(f"figure of {case} {one['extra_benchmark_config_str']}: {mib / 1024} GiB", flush=True)


utils.run_benchmarks = run_memory_benchmarks
utils.update_benchmark_data_csv = print_figures
script = str(SCRIPTS / sys.argv.pop(1))
runpy.run_path(script, run_name="__main__")
