"""Memory of post-training, predicted against real: what TRL's trainers take beside the model that they train.

    python benchmarks/post_training_memory.py            the table, from post_training_memory.jsonl
    python benchmarks/post_training_memory.py run [--only WORD …]

``run`` trains each cell of ``post_training_memory_program.py`` for real (``memory_truth.py``: on the CPU, each tensor
counted from its first use to its last), rehearses the same program with ``gonogo rehearse``, and keeps a row. The
optimizer goes over its tensors one by one on both sides: its way for GPUs (``foreach``) is not the CPU's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from memory_cells import MODELS
from post_training_cells import framework
from post_training_memory_program import STEPS
from real_ranks import run_ranks

from gonogo.evidence.rehearsal.record import RehearsalRecord

_HERE = Path(__file__).resolve().parent
RESULTS = _HERE / "post_training_memory.jsonl"
_HEADS = {"en": "| training | real MiB | rehearsed MiB | error |", "zh": "| 训练 | 实测 MiB | 排练 MiB | 误差 |"}
_SECONDS = 1800.0


@dataclass(frozen=True)
class Cell:
    """A trainer under one stage of ZeRO, on ``world`` accelerators."""

    algorithm: str
    zero: int
    tune: str = "full"
    world: int = 1

    @property
    def name(self) -> str:
        """Of all that it is."""
        return f"{self.algorithm} ZeRO-{self.zero}{', LoRA' * (self.tune == 'lora')}, {self.world} x"


CELLS = (
    Cell("dpo", 2), Cell("dpo", 3), Cell("dpo", 2, "lora"), Cell("kto", 2), Cell("kto", 3, "lora"),
    Cell("rm", 2), Cell("rm", 3), Cell("rm", 2, "lora"), Cell("grpo", 2),
    Cell("grpo", 3), Cell("gkd", 2), Cell("gkd", 3), Cell("grpo", 2, "lora"), Cell("dpo", 3, world=2),
)  # fmt: skip


def written(folder: Path, cell: Cell) -> list[str]:
    """Write the model and DeepSpeed's configuration; the program's arguments."""
    from launchers.small_project import make_project

    make_project(folder)
    path = folder / "model" / "config.json"
    known = json.loads(path.read_text())
    ends = {name: known[name] for name in ("eos_token_id", "pad_token_id")}
    path.write_text(json.dumps({**MODELS["llama"], **ends, "dtype": "bfloat16"}))
    zero: dict[str, Any] = {"stage": cell.zero, "reduce_bucket_size": 8_000_000}
    zero |= {"allgather_bucket_size": 8_000_000} if cell.zero < 3 else {"stage3_prefetch_bucket_size": 1_000_000}
    settings = {"bf16": {"enabled": True}, "zero_optimization": zero, "train_micro_batch_size_per_gpu": "auto",
                "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
                "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True, "foreach": False}},
                "zero_force_ds_cpu_optimizer": False}  # fmt: skip
    (folder / "deepspeed.json").write_text(json.dumps(settings))
    return [cell.algorithm, str(folder / "model"), str(folder / "deepspeed.json"), cell.tune]


def truth(cell: Cell) -> int:
    """Bytes that the first rank's accelerator really held. Raises RuntimeError where the training fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = written(folder, cell)
        run_ranks(
            cell.world,
            lambda rank: [
                sys.executable, str(_HERE / "memory_truth.py"), str(folder / f"rank{rank}.json"),
                "post_training_memory_program", *arguments,
            ],
            lambda rank: folder / f"rank{rank}.log",
            variables=_environment() | {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "2"},
            seconds=_SECONDS,
        )  # fmt: skip
        answer = folder / "rank0.json"
        if not answer.exists():
            raise RuntimeError(f"{cell.name}: the training failed\n{(folder / 'rank0.log').read_text()[-3000:]}")
        return int(json.loads(answer.read_text())["accelerator"])


def rehearsed(cell: Cell) -> dict[str, Any]:
    """The same of a rehearsal, with what it is made of. Raises RuntimeError where it does not come to its end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = written(folder, cell)
        words = ["--gpus", f"{max(cell.world, 1)}xH100-80G", "--steps", str(STEPS), "--keep", str(folder / "kept")]
        program = [str(_HERE / "post_training_memory_program.py"), *arguments]
        done = subprocess.run(
            [sys.executable, "-m", "gonogo", "rehearse", *words, "--", "torchrun", "--nproc_per_node",
             str(cell.world), *program],
            cwd=folder, env=_environment(), capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        records = list((folder / "kept").glob("*.record.json")) or list((folder / "kept").glob("*.json"))
        if done.returncode or not records:
            raise RuntimeError(f"{cell.name}: the rehearsal failed\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        record = msgspec.json.decode(records[0].read_bytes(), type=RehearsalRecord)
        first = record.ranks[0]
        (device,) = (one for one in first.devices if one.device == first.device)
        of_cublas = device.by_category.get("workspace", 0)  # a real run on the CPU has none
        return {"accelerator": sum(device.by_category.values()) - of_cublas, "by_category": device.by_category}


def _environment() -> dict[str, str]:
    folders = [str(framework("trl")), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders).rstrip(os.pathsep), "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_VERBOSITY": "error", "NO_COLOR": "1"}  # fmt: skip


def rows() -> dict[str, dict[str, Any]]:
    """What is kept, by cell."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def run(only: list[str]) -> bool:
    """Measure the cells whose name has all of these words; whether all came to figures."""
    whole = True
    for cell in CELLS:
        if not all(word in cell.name for word in only):
            continue
        try:
            row = {"name": cell.name, "real": truth(cell), "rehearsed": rehearsed(cell)}
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            whole = False
            continue
        kept = {**rows(), cell.name: row}
        RESULTS.write_text("".join(f"{json.dumps(kept[one.name])}\n" for one in CELLS if one.name in kept))
        print(told(row), flush=True)
    return whole


def told(row: dict[str, Any]) -> str:
    """One row of the table."""
    real, said = row["real"], row["rehearsed"]["accelerator"]
    return f"| {row['name']} | {real / 2**20:,.1f} | {said / 2**20:,.1f} | {said / real - 1:+.1%} |"


def table(language: str) -> str:
    """The rows that are kept, in Markdown."""
    return "\n".join([_HEADS[language], "| --- | ---: | ---: | ---: |", *(told(row) for row in rows().values())])


def main() -> int:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("table", "run"), default="table")
    parser.add_argument("--only", nargs="*", default=[], help="cells whose name has all of these words")
    asked = parser.parse_args()
    if asked.what == "run":
        return 0 if run(asked.only) else 1
    print("\n".join(told(row) for row in rows().values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
