"""What the life of a 7B run takes: LoRA on 8 GPUs, saved, killed, resumed on 4, and merged; ranks 0 and 1 of each.

    python benchmarks/life_7b.py [--format json]

The model, the data and the program are those of ``examples/qwen_7b_device_map``, whose program gets an adapter and the
``resume_from_checkpoint`` that its Trainer leaves out. Prints seconds (start to end of the whole command), the largest
process's resident memory, and the verdict. Exits 1 where it is no GO, restores or merges nothing, or takes over 90
seconds: say how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "qwen_7b_device_map"
_SECONDS = 90
"""What it must not be over, on two cores."""
_ADAPTED = """
    from peft import LoraConfig, get_peft_model

    model.enable_input_require_grads()
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.config.use_cache = False
"""
COMMAND = (
    "torchrun --nproc_per_node 8 finetune_fixed.py --model_name_or_path model --data_path data/train.jsonl "
    "--eval_data_path data/eval.jsonl --output_dir out --bf16 True --max_steps 8 --save_steps 2 "
    "--per_device_train_batch_size 2 --learning_rate 1e-4 --logging_steps 1 --report_to none --model_max_length 2048 "
    "--gradient_checkpointing True"
)
OPTIONS = (
    "--life train,save,kill,resume,merge --gpus 8xA100-80G --resume-on 4xA100-80G --host-memory 1T "
    "--resume-with=--resume_from_checkpoint=out/checkpoint-2"
)


def measure() -> dict[str, float | str]:
    """Rehearse it in a copy of the example."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "example"
        shutil.copytree(EXAMPLE, folder)
        program = folder / "finetune_fixed.py"
        text = program.read_text()
        train = "trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)"
        for old, new in (("    model.config.use_cache = False\n", _ADAPTED), ("trainer.train()", train)):
            if old not in text:
                raise SystemExit(f"the example's program has no line {old.strip()!r} any more")
            text = text.replace(old, new)
        program.write_text(text)
        words = [*shlex.split(OPTIONS), "--format", "json", "--keep", str(Path(scratch) / "kept")]
        started = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *words, "--", *shlex.split(COMMAND)],
            cwd=folder, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        seconds = time.monotonic() - started
        records = [json.loads(path.read_text()) for path in Path(scratch, "kept").rglob("record.json")]
    if not records:
        raise SystemExit(f"no record: {run.stdout[:2000]}\n{run.stderr[-2000:]}")
    report = json.loads(run.stdout)
    life, result = report["rehearsal"]["life"], report["rehearsal"]["result"]
    return {
        "verdict": report["verdict"],
        "seconds": round(seconds, 1),
        "peak_rss_bytes": max(record["rss_bytes"] for record in records),
        "states_restored": sum(row["status"] == "restored" for row in life["states"]),
        "weights_merged": sum(row["status"] == "restored" for row in result["states"]),
    }


def main() -> int:
    """Measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    asked = parser.parse_args()
    found = measure()
    if asked.format == "json":
        print(json.dumps(found, indent=1))
    else:
        print(f"{found['verdict']}: {found['seconds']} s, "
              f"{float(found['peak_rss_bytes']) / 2**30:.2f} GiB; {found['states_restored']} states restored, "
              f"{found['weights_merged']} weights merged")  # fmt: skip
    whole = found["verdict"] == "GO" and found["states_restored"] and found["weights_merged"]
    return 0 if whole and float(found["seconds"]) < _SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
