"""Lives of real libraries: saved, killed and resumed for real on the CPU, and what gonogo says of them without a GPU.

    python benchmarks/lives.py [--really | --count] [--only WORDS] [--sample COUNT --seed SEED]

``--really`` runs the programs themselves, with gloo, and writes what they had of their state before and after to
``tests/life/truth.json``; without it the lives are rehearsed and compared with that. ``--count`` says how many lives
there are, by framework, strategy and ranks, and of how many the truth is known.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import runpy
import shlex
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / "life"), str(Path(__file__).parent.parent / "tests")]

from cells import CANNOT_TELL, CELLS, GO, NO_GO, PROGRAMS, TRUTH, Cell, write_project  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from truth_cells import compare  # noqa: E402

_TIMEOUT = 600.0
_GRACE = 10.0
"""Seconds that the other ranks have to go on as far as they can, after one has failed."""


def really(cell: Cell, folder: Path) -> dict[str, Any]:
    """What the cell's program says of its own state when it was saved, and when it goes on."""
    write_project(folder)
    own = set(folder.rglob("*"))
    disk = 0
    for life, count in (("first", cell.ranks), ("second", cell.then)):
        words = shlex.split(cell.command)
        words = words[words.index("--nproc_per_node") + 2 :]
        if life == "second":
            words += shlex.split((cell.resume_with or "").replace("=", " "))
        if words[0] == "trainer.py":
            words.append("--use_cpu")
        error = _run(words, folder, life, count)
        if error and life == "second":
            return {"error": _error_of(error), "disk_bytes": disk}
        assert not error, error[-4000:]
        if life == "first":
            disk = _bytes_of(path for path in folder.rglob("*") if path not in own)
    ranks = []
    for path in sorted(folder.glob("told.*")):
        moments = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        ranks.append({moment["moment"]: moment for moment in moments})
    return {**compared(ranks, same_world=cell.ranks == cell.then), "disk_bytes": disk}


def _bytes_of(paths: Iterable[Path]) -> int:
    """What a save left on disk."""
    kept = (path for path in paths if path.is_file() and path.name.split(".")[0] not in ("told", "errors"))
    return sum(path.stat().st_size for path in kept if "__pycache__" not in path.parts)


def _warm() -> None:
    """Import once what each rank of each life needs: the ranks are forks of this process."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "TRUTH": "told"}
    os.environ["ACCELERATE_USE_CPU"] = "true"  # else accelerate's ranks are no world
    sys.path[:0] = [str(PROGRAMS), str(PROGRAMS / "watch")]
    importlib.import_module("sitecustomize_of_truth")
    for name in ("deepspeed", "transformers", "accelerate", "datasets", "peft", "trl"):
        importlib.import_module(name)
    from deepspeed import ops
    from deepspeed.checkpoint import ds_to_universal  # noqa: F401

    ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: nothing is compiled
    from transformers import Qwen2ForCausalLM, Trainer  # noqa: F401
    from trl import SFTTrainer  # noqa: F401


def _run(
    words: list[str], folder: Path, life: str, count: int, begin: Callable[[int], None] = lambda rank: None
) -> str:
    """What the ranks wrote where one failed; nothing where all went through. ``begin``: called first in each rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children, ended = {}, {}
    for rank in range(count):
        child = os.fork()
        if not child:
            begin(rank)
            _as_rank(words, folder, life, rank, count, port)
        children[child] = rank
    until, failed = time.monotonic() + _TIMEOUT, False
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in children:
            ended[children.pop(child)] = status
            failed = failed or bool(status)
        else:
            time.sleep(0.05)
        if failed or time.monotonic() > until:
            _end_others(children, _GRACE if failed else 0.0)
            said = [(folder / f"errors.{rank}").read_text(encoding="utf-8")[-1200:] for rank in range(count)]
            told = [f"rank {rank}, status {ended.get(rank)}: {text}" for rank, text in enumerate(said)]
            return "\n".join(told) or "it hangs"
    return ""


def _end_others(children: dict[int, int], seconds: float) -> None:
    until = time.monotonic() + seconds
    left = set(children)
    while left and time.monotonic() < until:
        left -= {child for child in left if os.waitpid(child, os.WNOHANG)[0]}
        time.sleep(0.05)
    for child in left:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _as_rank(words: list[str], folder: Path, life: str, rank: int, count: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TRUTH": str(folder / "told"), "TRUTH_LIFE": life,
    }  # fmt: skip
    os.chdir(folder)
    errors = os.open(f"errors.{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    sys.argv[:] = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _error_of(text: str) -> str:
    lines = [line.split("]: ", 1)[-1] for line in text.splitlines()]
    errors = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and "Child" not in line]
    return errors[0][:300] if errors else text[-300:]


def compared(ranks: list[dict[str, Any]], *, same_world: bool) -> dict[str, Any]:
    """What differs between the step that came next and the resumed one, on any rank."""
    lost: dict[str, set[str]] = {"parameters": set(), "buffers": set(), "moments": set()}
    before = ranks[0]["next"]
    for rank in ranks:
        after = rank.get("resumed")
        for kind, names in lost.items():
            # Of buffers, DDP gives all ranks those of rank 0 before the next forward.
            own = (before if kind == "buffers" else rank.get("next", before))[kind]
            names |= {
                name for name, value in own.items() if after is not None and not _equal(value, after[kind].get(name))
            }
    after = ranks[0]["resumed"]
    return {
        **{kind: sorted(names) for kind, names in lost.items()},
        "steps": [before["steps"], after["steps"]], "scheduler": [before["scheduler"], after["scheduler"]],
        "data_goes_on": before["batch"] == after["batch"] if same_world else None,
        "random_restored": before["rng"] == after["rng"],
    }  # fmt: skip


def _equal(value: float, other: float | None) -> bool:
    return other is not None and abs(value - other) <= 1e-7 * max(abs(value), 1.0)


def _strategy(cell: Cell) -> str:
    """How its ranks share the model."""
    words = shlex.split(cell.command)
    stage = re.search(r"(?:z|zero)([123])(?:\.json|\.yaml|\b)|engine\.py ([123])", cell.command)
    if stage:
        return f"ZeRO-{stage[1] or stage[2]}"
    if "full_shard" in words or "fsdp2" in words or "sharded.py" in words:
        return "FSDP1" if "1.json" in cell.command else "FSDP2"
    return "DDP"


def _library(cell: Cell) -> str:
    """Whose code saves and resumes."""
    if cell.framework is not None:
        return {"swift": "ms-swift", "llamafactory": "LLaMA-Factory"}[cell.framework]
    words = shlex.split(cell.command)
    if "trainer.py" in words:
        return "TRL" if "--sft" in words else "PEFT" if "--adapter" in words else "transformers"
    program = next(word for word in words if word.endswith(".py"))
    return {"engine.py": "DeepSpeed", "accelerated.py": "accelerate"}.get(program, "torch DCP")


def print_counts(cells: Sequence[Cell], truth: Mapping[str, Any]) -> None:
    """A row for each framework and strategy: its worlds, its lives by verdict, and those that were run for real."""
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        rows.setdefault((_library(cell), _strategy(cell)), []).append(cell)
    form = "{:<14} {:<8} {:>6} {:>4} {:>7} {:>12} {:>7}  {}"
    print(form.format("saves by", "strategy", "lives", "GO", "broken", "CANNOT-TELL", "really", "ranks"))
    for (library, strategy), own in [*sorted(rows.items()), (("all", ""), list(cells))]:
        verdicts = Counter(cell.verdict for cell in own)
        known = sum(cell.name in truth for cell in own)
        worlds = sorted({(cell.ranks, cell.then) for cell in own})
        told = ", ".join(f"{before} -> {after}" for before, after in worlds)
        counts = (verdicts[GO], verdicts[NO_GO], verdicts[CANNOT_TELL])
        print(form.format(library, strategy, len(own), *counts, known, told))
    combined = {(_library(cell), _strategy(cell), cell.ranks, cell.then) for cell in cells}
    print(f"{len(combined)} combinations of library, strategy, ranks before and ranks after")


def main() -> None:
    """Run the cells, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--really", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--missing", action="store_true", help="those alone that the truth doesn't have")
    parser.add_argument("--sample", type=int, default=0, help="so many of them, drawn by --seed; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    truth: dict[str, Any] = json.loads(TRUTH.read_text(encoding="utf-8")) if TRUTH.exists() else {}
    cells = [cell for cell in CELLS if chosen.only in cell.name and not (chosen.missing and cell.name in truth)]
    if 0 < chosen.sample < len(cells):
        drawn = {id(cell) for cell in random.Random(chosen.seed).sample(cells, chosen.sample)}
        cells = [cell for cell in cells if id(cell) in drawn]
    if chosen.count:
        print_counts(cells, truth)
        return
    if chosen.really:
        _warm()
        for cell in cells:
            if not cell.really or cell.framework:
                continue
            with tempfile.TemporaryDirectory() as name:
                try:
                    truth[cell.name] = really(cell, Path(name))
                except (AssertionError, KeyError, IndexError) as error:
                    print(f"failed: {cell.name}: {str(error)[:1500]}", flush=True)
                    continue
            print(f"{cell.name}: {json.dumps(truth[cell.name])[:300]}", flush=True)
            TRUTH.write_text(json.dumps(truth, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return
    from life_comparison import judged

    print(f"{compare(cells, truth, judged)} lives are as they really are")


if __name__ == "__main__":
    main()
