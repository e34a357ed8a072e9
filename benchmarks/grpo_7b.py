"""What the rehearsal of a 7B GRPO takes: ZeRO-3 on 8 GPUs, vLLM in the trainers' processes, rank 0, two steps.

    python benchmarks/grpo_7b.py [--format json]

Prints seconds (start to end of the whole command), the processors' time in it, the largest process's resident memory,
and the verdict, of two runs: LoRA, by ``launch_fixed.sh`` of ``examples/grpo_7b_colocated_weight_sync`` as it stands,
and full training by the same program, its adapters left out, with 8 completions of 1024 tokens. TRL is that of
``tests/frameworks``; vLLM is stood in for. Exits 1 where one is no GO, over 120 seconds of a processor, or over 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from post_training_cells import framework

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "grpo_7b_colocated_weight_sync"
_FULL = (
    "accelerate launch --config_file accelerate_config.yaml grpo.py --lora_rank 0 --model model "
    "--output_dir output/grpo --bf16 true --learning_rate 1e-6 --beta 0.0 --per_device_train_batch_size 8 "
    "--num_generations 8 --max_completion_length 1024 --gradient_checkpointing true --num_train_epochs 1 "
    "--logging_steps 1 --report_to none --use_vllm true --vllm_mode colocate --vllm_max_model_length 2048 "
    "--vllm_gpu_memory_utilization 0.3 --vllm_enable_sleep_mode true"
)
RUNS = {"LoRA": "bash launch_fixed.sh", "full": _FULL}
_SECONDS, _GIB = 120, 2
"""What it must not be over."""


def measure(command: str) -> dict[str, float | str]:
    """Rehearse it in a copy of the example."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "example"
        shutil.copytree(EXAMPLE, folder)
        program = folder / "grpo.py"
        without = "peft_config=adapters if settings.lora_rank else None"
        program.write_text(program.read_text().replace("peft_config=adapters", without))
        options = ["--gpus", "8xH100-80G", "--host-memory", "1T", "--steps", "2", "--format", "json"]
        options += ["--keep", str(Path(scratch) / "kept")]
        path = os.pathsep.join([str(framework("trl")), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *options, "--", *shlex.split(command)],
            cwd=folder, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
        )  # fmt: skip
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        records = [json.loads(path.read_text()) for path in Path(scratch, "kept").rglob("record.json")]
    if not records:
        raise SystemExit(f"no record: {run.stdout[:2000]}\n{run.stderr[-2000:]}")
    report = json.loads(run.stdout)
    rank = report["rehearsal"]["ranks"][0]
    return {
        "verdict": report["verdict"],
        "seconds": round(seconds, 1),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "operators": rank["operators"],
        "peak_rss_bytes": max(record["rss_bytes"] for record in records),
        "peak_allocated_bytes": rank["peak_allocated_bytes"],
    }


def main() -> int:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    asked = parser.parse_args()
    found = {name: measure(command) for name, command in RUNS.items()}
    if asked.format == "json":
        print(json.dumps(found, indent=1))
    else:
        print(f"{'training':<8} {'verdict':<11} {'seconds':>8} {'CPU':>6} {'operators':>10} {'peak RSS':>9}")
        for name, one in found.items():
            rss = float(one["peak_rss_bytes"]) / 2**30
            print(f"{name:<8} {one['verdict']:<11} {one['seconds']:>8} {one['cpu_seconds']:>6} {one['operators']:>10,} "
                  f"{rss:>5.2f} GiB")  # fmt: skip
    kept = all(
        one["verdict"] == "GO" and float(one["cpu_seconds"]) < _SECONDS and float(one["peak_rss_bytes"]) < _GIB * 2**30
        for one in found.values()
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
