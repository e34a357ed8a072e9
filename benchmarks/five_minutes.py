"""Six questions of a newcomer: what README's first screen says to type, really typed, with the answer and the time.

    python benchmarks/five_minutes.py [--json FILE] [TASK ...]

Each task types at most two commands, in a copy of an example of gonogo's own, with an empty cache. A command is
README's, with the example's own launch script, log and machine; one that README's first screen doesn't have is an
error here. What is written down is the first three lines that it printed, its exit status, and how long it took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parent.parent
LOG = ROOT / "tests" / "hazards" / "zero3-direct-param-use-invalid-gradient" / "bad.log"
MACHINE = "--gpus 8xA100-80G --host-memory 2T"


class Task(msgspec.Struct, frozen=True):
    """A question, the example that it is asked of, and what is typed: README's words, and those of the example."""

    question: str
    example: str
    shown: tuple[str, ...]
    """As README's first screen has it."""
    typed: tuple[str, ...]
    """The same with the example's own names."""
    before: tuple[str, ...] = ()
    """What lies there already when the question is asked: commands of last week, and the change since."""


TASKS = {
    "run": Task(
        "Will my run work?",
        "qwen_7b_device_map",
        ("gonogo check -- bash launch.sh", "gonogo rehearse --gpus 8xH100-80G -- bash launch.sh"),
        ("gonogo check -- bash launch_fixed.sh", f"gonogo rehearse {MACHINE} -- bash launch_fixed.sh"),
    ),
    "died": Task(
        "Why did it die?", "slam_omni_dummy_loss", ("gonogo diagnose train.log",), ("gonogo diagnose train.log",)
    ),
    "strategy": Task(
        "Which strategy fits, and which is fastest?",
        "qwen_7b_device_map",
        ("gonogo plan Qwen/Qwen2-7B --gpus 8xA100-80G",),
        ("gonogo plan Qwen/Qwen2-7B --gpus 8xA100-80G",),
    ),
    "length": Task(
        "How much memory if I double the length?",
        "qwen_7b_device_map",
        ("gonogo rehearse --set seq-len=8192 -- bash launch.sh",),
        (f"gonogo rehearse {MACHINE} --set seq-len=4096 -- bash launch_fixed.sh",),
    ),
    "changed": Task(
        "What changed since last week?",
        "qwen_7b_device_map",
        ("gonogo rehearse --against last-week.json -- bash launch.sh",),
        (f"gonogo rehearse {MACHINE} --against last-week.json -- bash launch_fixed.sh",),
        (
            f"gonogo rehearse {MACHINE} --format json --output last-week.json -- bash launch_fixed.sh",
            "sed -i s/per_device_train_batch_size\\ 2/per_device_train_batch_size\\ 4/ launch_fixed.sh",
        ),
    ),
    "cure": Task(
        "Make it run.",
        "slam_omni_dummy_loss",
        ("gonogo cure --gpus 8xH100-80G -- bash launch.sh",),
        ("gonogo cure --gpus 8xH100-80G --host-memory 2T -- bash launch.sh",),
    ),
}
MOST_COMMANDS = 2


def first_screen() -> str:
    """What of README stands before its first section."""
    return (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## ")[0]


def kind_of(command: str) -> list[str]:
    """A command's name and the names of its options: what is the same with other files."""
    words = shlex.split(command)
    own = words[: words.index("--")] if "--" in words else words
    return [*words[:2], *sorted(word for word in own if word.startswith("--"))]


def check_shown(task: Task) -> None:
    """Raise ValueError where a command is not README's, or there are too many."""
    if len(task.typed) > MOST_COMMANDS or len(task.typed) != len(task.shown):
        raise ValueError(f"{task.question} takes {len(task.typed)} commands")
    screen = first_screen()
    for shown, typed in zip(task.shown, task.typed, strict=True):
        if f"`{shown}`" not in screen:
            raise ValueError(f"README's first screen has no `{shown}`")
        missing = set(kind_of(shown)) - set(kind_of(typed))
        if missing:
            raise ValueError(f"typed without {missing}: {typed}")


def typed(command: str, folder: Path) -> dict[str, Any]:
    """What a command printed first, its exit status, and its seconds."""
    words = shlex.split(command)
    if words[0] == "gonogo":
        words = [sys.executable, "-m", *words]
    begun = time.monotonic()
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "LANG": "C.UTF-8", "XDG_CACHE_HOME": str(folder.parent / "cache")},
    )  # fmt: skip
    seconds = time.monotonic() - begun
    lines = (done.stdout or done.stderr).splitlines()[:3]
    return {"command": command, "status": done.returncode, "seconds": round(seconds, 1), "lines": lines}


def answered(task: Task, scratch: Path) -> list[dict[str, Any]]:
    """A copy of the example is made ready, and the commands are typed."""
    folder = scratch / task.example
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "examples" / task.example, folder)
    shutil.copy(LOG, folder / "train.log")
    for command in task.before:
        typed(command, folder)
    return [typed(command, folder) for command in task.typed]


def is_answer(lines: list[str]) -> bool:
    """Whether three lines are a verdict, a reason and a next step."""
    return (
        len(lines) == 3
        and re.match(r" (GO|NO-GO|CANNOT-TELL|REGRESSED|SAME|BETTER)\b", lines[0]) is not None
        and len(lines[1]) > 10
        and lines[2].startswith("next: ")
    )


def main() -> None:
    """Print what each task's commands said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    told: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.tasks:
            check_shown(TASKS[name])
            told[name] = answered(TASKS[name], Path(scratch))
            print(f"\n{TASKS[name].question}")
            for one in told[name]:
                print(f"  $ {one['command']}   ({one['seconds']} s, exit {one['status']})")
                print("".join(f"  {line}\n" for line in one["lines"]), end="", flush=True)
    every = [one for answers in told.values() for one in answers]
    good = sum(all(is_answer(one["lines"]) for one in answers) for answers in told.values())
    print(f"\n{good} of {len(told)} answered in the first three lines, {len(every)} commands, "
          f"{sum(one['seconds'] for one in every):.0f} s")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
