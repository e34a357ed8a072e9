"""How many failing programs `gonogo cure` cures: each rehearsed, changed and rehearsed again, in a copy.

    python benchmarks/cure.py [NAME...]

Without names, all of them: the examples, tests/worlds/hang, and tests/cure/programs. A line a program; *wrongly* is a
program that became GO although what its folder says has to stay in it (cure.json, "keeps") is gone. The examples are
judged by their first rank, as the cures that they ship are.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EXAMPLES = {
    "minicpmv_zero3_offload": "8xH100-80G",
    "qwen_72b_zero3_offload": "8xH100-80G",
    "qwen_7b_device_map": "8xA100-80G",
    "qwen_omni_audio_zero3": "4xH100-80G",
    "slam_omni_dummy_loss": "8xH100-80G",
}


@dataclass
class Program:
    """A failing program, and how it is launched."""

    folder: Path
    options: list[str]
    command: list[str]
    keeps: list[str]
    """Patterns that have to be found in the files after the cure."""

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"


def programs() -> list[Program]:
    """All failing programs."""
    found = [
        Program(ROOT / "examples" / name, ["--gpus", gpus, "--steps", "1", "--ranks", "0"], ["bash", "launch.sh"], [])
        for name, gpus in EXAMPLES.items()
    ]
    for folder in sorted((ROOT / "tests/worlds/hang").iterdir()):
        stated = json.loads((folder / "expected.json").read_text()) if (folder / "expected.json").exists() else {}
        if stated and "vllm" not in stated.get("needs", ()):  # those of an engine train nothing, and so are never GO
            ranks = stated.get("world_size", 2)
            command = ["torchrun", "--nproc_per_node", str(ranks), "train.py"]
            options = ["--gpus", f"{ranks}xH100-80G", "--ranks", "all"]
            found.append(Program(folder, options, command, _calls_of((folder / "train.py").read_text())))
    for stated in sorted((ROOT / "tests/cure/programs").glob("*/cure.json")):
        told = json.loads(stated.read_text())
        found.append(Program(stated.parent, told["options"], shlex.split(told["command"]), told["keeps"]))
    return found


def _calls_of(text: str) -> list[str]:
    """What a program does that its cure may not take away: it trains, communicates, saves, and shows what it has."""
    names = (
        "backward",
        "step",
        "all_reduce",
        "barrier",
        "save_checkpoint",
        "save_16bit_model",
        "save_model",
        "generate",
    )
    names += ("all_gather_object", "GatheredParameters", "new_group", "recv", "send", "evaluate", "print")
    return [rf"\bi?{name}\b" for name in names if re.search(rf"\b{name}\(", text)]


def cure(program: Program) -> tuple[dict[str, Any], bool, float]:
    """The report, whether what has to stay is still there, and the seconds it took."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(program.folder, Path(scratch, program.folder.name)))
        for path in folder.glob("*_fixed.*"):
            path.unlink()
        started = time.monotonic()
        words = ["cure", "--apply", "--format", "json", *program.options, "--", *program.command]
        done = subprocess.run(
            [sys.executable, "-m", "gonogo", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - started
        if not done.stdout:
            raise SystemExit(f"{program.name}: {done.stderr[-2000:]}")
        texts = [path.read_text() for path in folder.iterdir() if path.suffix in (".py", ".sh", ".json", ".yaml")]
    kept = all(re.search(pattern, "\n".join(texts)) for pattern in program.keeps)
    return json.loads(done.stdout), kept, seconds


def main() -> None:
    """Print the table."""
    asked = sys.argv[1:]
    chosen = [one for one in programs() if not asked or any(word in one.name for word in asked)]
    counts = dict.fromkeys(("cured", "not cured", "wrongly"), 0)
    for program in chosen:
        report, kept, seconds = cure(program)
        found = report["cure"]
        outcome = "not cured" if report["verdict"] != "GO" or not found["needed"] else "cured" if kept else "wrongly"
        counts[outcome] += 1
        lines = sum(line[:1] in "+-" and line[:3] not in ("+++", "---") for line in found["patch"].splitlines())
        steps = "; ".join(step["title"]["en"] for step in found["steps"])
        if outcome == "not cured":
            steps = f"{steps} | in the way: {', '.join(one['hazard'] for one in report['findings'])}"
        print(
            f"{program.name:<48} {outcome:<10} {found['rehearsals']:>3} rehearsals {seconds:>6.0f} s "
            f"{lines:>3} lines  {steps}",
            flush=True,
        )
    print(", ".join(f"{count} {name}" for name, count in counts.items()), f"of {len(chosen)}")


if __name__ == "__main__":
    main()
