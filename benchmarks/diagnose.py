"""How often `gonogo diagnose` names the right cause, and how fast it reads.

    python benchmarks/diagnose.py [--format json] [--megabytes 1024] [--cases CASES.jsonl] [--cut NAME] [--misses]

Speed: a log of 64 ranks is generated (training lines, DeepSpeed's and NCCL's chatter, progress bars; one rank fails in
the midst of it, the others time out after it), and read by `gonogo diagnose` and, for comparison, by `grep -E` with an
alternation of the same literals. Prints seconds and the peak resident memory of both, and the seconds that the log of
one traceback takes, which is what it costs to start.

Accuracy: with `--cases`, a file of JSON objects, one a line, each with "log", "class" (a hazard's name, or "none" for a
log that no hazard explains) and, where known, "context" ("ds_config", "launch", "code", "versions"). A case is top-1
when the first finding is its class, top-3 when one of the first three is (above a possible cause that nothing in the
exception points to stands what was raised, which is not counted); a "none" counts as both when no finding is certain
or likely. With `--cut`, of each log only what one of the ways of tests/log_cuts.py leaves (`the_first_half`),
and no log that it leaves as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gonogo.evidence.log.failure_log import GENERIC_ERROR_WORDS
from gonogo.hazards.index import all_hazards
from gonogo.judge.log_findings import CONFIDENT_CERTAINTIES

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import log_cuts

RAISED = "program-raises"
CUTS = [cut.__name__ for cut in (*log_cuts.SHORTENED, *log_cuts.DRESSED)]
GONOGO = [sys.executable, "-m", "gonogo", "diagnose"]
RANKS = 64
OPTIONS = {
    "ds_config": ("ds_config.json", "--deepspeed-config"),
    "launch": ("launch.sh", "--launch"),
    "code": ("train.py", "--script"),
    "versions": ("versions.json", "--environment"),
}
FAILURE = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/data/run/train.py", line 212, in <module>
[rank{rank}]:     trainer.train()
[rank{rank}]:   File "/x/site-packages/deepspeed/runtime/zero/stage3.py", line 2117, in unscale_and_clip_grads
[rank{rank}]:     self.fp32_partitioned_groups_flat[sub_group_id].grad.mul_(1. / combined_scale)
[rank{rank}]: RuntimeError: Expected all tensors to be on the same device, but found at least two devices, {gpu} and cpu
"""
TIMEOUT = (
    "[rank{rank}]:[E1120 10:11:12.131415926 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
    "600041 milliseconds before timing out.\n"
)


def training_lines(generator: random.Random, count: int) -> Iterator[str]:
    """Lines that a healthy run writes."""
    for _ in range(count):
        rank, step = generator.randrange(RANKS), generator.randrange(100000)
        yield (
            f"[rank{rank}]: {{'loss': {generator.random():.4f}, 'grad_norm': 0.731, 'learning_rate': 1.2e-05}}",
            f"[2025-02-11 17:52:18,{step % 1000:03d}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0",
            f"node{rank // 8}:{step}:{step + 1} [{rank % 8}] NCCL INFO Channel 02/0 : {rank}[0] -> 1[1] via P2P",
            f" {step % 100}%|###    | {step}/100000 [10:11<12:13]\r {step % 100}%|###    | {step + 1}/100000 [10:12]",
        )[generator.randrange(4)]


def generate(path: Path, megabytes: int) -> None:
    """Write a log of that size in MiB: one rank fails past the middle, the others time out, some write on."""
    generator = random.Random(0)
    block = ("\n".join(training_lines(generator, 20000)) + "\n").encode()
    blocks = max(megabytes * (1 << 20) // len(block), 2)
    with path.open("wb") as file:
        for number in range(blocks):
            file.write(block)
            if number == blocks * 2 // 3:
                file.write(FAILURE.format(rank=37, gpu="cuda:5").encode())
                file.writelines(TIMEOUT.format(rank=rank).encode() for rank in range(RANKS) if rank != 37)


def measured(command: list[str], environment: dict[str, str] | None = None) -> tuple[float, int, bytes]:
    """Seconds from start to end, peak resident bytes, and what the command printed."""
    with tempfile.TemporaryFile() as printed:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=printed, stderr=subprocess.DEVNULL, env=environment)
        _, _, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        printed.seek(0)
        return seconds, usage.ru_maxrss * 1024, printed.read()


def speed(megabytes: int) -> dict[str, Any]:
    """The seconds and the memory that diagnose and grep take for a generated log, each the best of three runs."""
    words = sorted({*GENERIC_ERROR_WORDS, *(word for hazard in all_hazards() for word in hazard.log_words)})
    alternation = "|".join("".join(f"\\{c}" if c in r".[]{}()*+?|^$\\" else c for c in word) for word in words)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.log")
        generate(log, megabytes)
        log.read_bytes() if megabytes < 256 else subprocess.run(
            ["cat", str(log)], stdout=subprocess.DEVNULL, check=True
        )
        grep = [shutil.which("grep") or "grep", "-a", "-c", "-E", alternation, str(log)]
        short = Path(folder, "short.log")
        short.write_text(FAILURE.format(rank=37, gpu="cuda:5"))
        start = min(measured([*GONOGO, str(short), "--format", "json"])[0] for _ in range(7))
        runs = [measured([*GONOGO, str(log), "--format", "json"]) for _ in range(3)]
        grep_runs = [measured(grep, {**os.environ, "LC_ALL": "C"}) for _ in range(3)]
    findings = json.loads(runs[0][2])["findings"]
    if findings[0]["hazard"] != "zero3-offload-clip-grad-device-regression" or findings[0]["rank"] != 37:
        raise SystemExit(f"the generated log was not explained: {findings[:1]}")
    seconds, grep_seconds = min(run[0] for run in runs), min(run[0] for run in grep_runs)
    return {
        "megabytes": megabytes,
        "literals": len(words),
        "seconds": round(seconds, 2),
        "grep_seconds": round(grep_seconds, 2),
        "ratio": round(seconds / grep_seconds, 2),
        "start_seconds": round(start, 2),
        "peak_rss_bytes": max(run[1] for run in runs),
    }


def names_found(case: dict[str, Any]) -> tuple[list[str], bool]:
    """The hazards that diagnose names for a case, best first, and whether it is confident of any."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "run.log")
        log.write_text(case["log"])
        command = [*GONOGO, str(log), "--format", "json"]
        for key, (name, option) in OPTIONS.items():
            if value := (case.get("context") or {}).get(key):
                Path(folder, name).write_text(value if isinstance(value, str) else json.dumps(value))
                command += [option, str(Path(folder, name))]
        run = subprocess.run(command, capture_output=True, text=True)
    findings = json.loads(run.stdout)["findings"]
    causes = [finding["hazard"] for finding in findings if finding["hazard"] != RAISED]
    return causes or [finding["hazard"] for finding in findings], any(
        finding["certainty"] in CONFIDENT_CERTAINTIES for finding in findings
    )


def rest_of(log: str, cut: str) -> str:
    """What a way of cutting leaves of a log; nothing where it leaves all."""
    rest: str = getattr(log_cuts, cut)(log)
    return rest if rest.strip() != log.strip() else ""


def accuracy(path: Path, misses: bool, cut: str | None) -> dict[str, Any]:
    """Top-1 and top-3 over the cases of a file, or over what is left of them after a cut."""
    cases = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    if cut is not None:
        cases = [{**case, "log": rest} for case in cases if (rest := rest_of(case["log"], cut))]
    first = third = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for case, (names, confident) in zip(cases, pool.map(names_found, cases), strict=True):
            none = case["class"] == "none"
            right = not confident if none else names[:1] == [case["class"]]
            first += right
            third += right if none else case["class"] in names[:3]
            if misses and not right:
                print(f"{case.get('id', '?')}: is {case['class']}, found {names[:3] or 'nothing'}", file=sys.stderr)
    total = len(cases)
    return {"cases": total, "top1": round(first / total, 4), "top3": round(third / total, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the generated log; 0 leaves speed out")
    parser.add_argument("--cases", type=Path, help="a file of cases whose cause is known")
    parser.add_argument("--cut", metavar="NAME", help="cut the cases' logs: " + ", ".join(CUTS), choices=CUTS)
    parser.add_argument("--misses", action="store_true", help="tell each case that is not top-1")
    options = parser.parse_args()
    answer: dict[str, Any] = {"benchmark": "diagnose", "hazards": len(all_hazards())}
    if options.megabytes:
        print(f"a log of {options.megabytes} MiB ...", file=sys.stderr, flush=True)
        answer["speed"] = speed(options.megabytes)
    if options.cases:
        print(f"cases of {options.cases} ...", file=sys.stderr, flush=True)
        answer["accuracy"] = accuracy(options.cases, options.misses, options.cut)
    answer["machine"] = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    if options.format == "json":
        print(json.dumps(answer, indent=1))
        return
    if told := answer.get("speed"):
        print(f"{told['megabytes']} MiB, {told['literals']} literals: {told['seconds']} s, "
              f"grep -E {told['grep_seconds']} s ({told['ratio']}x), "
              f"peak RSS {told['peak_rss_bytes'] / 2**20:.0f} MiB; "
              f"a log of one traceback: {told['start_seconds']} s")  # fmt: skip
    if told := answer.get("accuracy"):
        print(f"{told['cases']} cases: top-1 {told['top1']:.1%}, top-3 {told['top3']:.1%}")


if __name__ == "__main__":
    main()
