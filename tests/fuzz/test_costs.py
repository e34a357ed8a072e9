"""What whole megabytes of one thing cost: two seconds of processor time and 500 MiB for any file under 5 MB.

Each file is read in a process of its own, so that its peak is its alone; importing gonogo is not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for a process's peak"),
]
MEGABYTES = 4_900_000
START = b"torchrun --nproc_per_node 8 train.py --deepspeed ds.json\n"
PROGRAM = textwrap.dedent("""
    import json, os, sys, time
    sys.path.insert(0, sys.argv[1])
    from fuzz.cases import Case
    from fuzz.trial import FORMATS, _memory, _report, render, slowness, warmed_up
    from gonogo.finding import UserError
    warmed_up()
    how, main = sys.argv[2:4]
    case = Case(0, {name.encode(): b"" for name in os.listdir()}, how, main, ())
    before, begin, said, size = _memory("VmRSS"), time.process_time(), [], 0
    open("/proc/self/clear_refs", "w").write("5")
    try:
        report = _report(case)
        said = [f"{one.what.en}: {one.why.en}" for one in report.skipped]
        size = max(len(render(report, name, "en")) for name in ("json", "text"))
    except UserError as error:
        said = [error.text.en]
    seconds, peak = time.process_time() - begin, _memory("VmHWM") - before
    print(json.dumps([seconds / slowness(), peak, size, said]))
""")


def many(unit: bytes, size: int = MEGABYTES) -> bytes:
    return unit * (size // len(unit))


def lines(line: Callable[[int], str], size: int = MEGABYTES) -> bytes:
    """As many numbered lines as fit."""
    found: list[str] = []
    left = size
    while left > 0:
        found.append(line(len(found)))
        left -= len(found[-1])
    return "".join(found).encode()


def measured(folder: Path, how: str, main: str) -> tuple[float, int, int, list[str]]:
    """Seconds of a quiet core, MiB, characters of the report, and what was not covered."""
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tests), how, main],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    seconds, mib, size, said = json.loads(done.stdout)
    return seconds, mib, size, said


# name: (the file, its bytes, what is said of it)
SCRIPTS = {
    "NULs": (many(b"\0", 1_400_000), "KiB"),
    "NULs in a small one": (START + many(b"\0", 300_000), "NUL byte"),
    "UTF-16": (many(START, 200_000).decode().encode("utf-16"), "UTF-16"),
    "arithmetic": (b"A=" + b"$((" * 80_000 + b"1" + b"))" * 80_000 + b"\n" + START, "levels deep"),
    "parentheses": (b"A=$((" + b"(" * 200_000 + b"1" + b")" * 200_000 + b"))\n" + START, "levels deep"),
    "closing parentheses": (many(b")", 500_000), "syntax"),
    "redirections": (many(b"<", 500_000), "syntax"),
    "calls": (many(b"x=f(x)\n", 500_000), "syntax"),
    "pipes": (many(b"a|", 500_000), "pipes"),
    "heredocs": (many(b"<<E\n", 500_000), "syntax"),
    "launches": (many(START, 500_000), ""),
    "megabytes of launches": (many(START), "KiB"),
    "directives": (b"#!/bin/bash\n" + many(b"#SBATCH --gres=gpu:8 x y z\n", 280_000) + b"srun python t.py\n", ""),
    "megabytes of directives": (b"#!/bin/bash\n" + many(b"#SBATCH --nodes=2\n") + START, "KiB"),
    "brackets": (b"A=" + b"[" * 60_000 + b"\n" + START, ""),
    "words of brackets": (many(b"echo " + b"[" * 4_000 + b"\n", 400_000) + START, ""),
    "opening braces in one word": (many(b"echo a > " + b"{a,b" * 300 + b"\n", 24_000) + START, ""),
    "one word of braces": (b"echo " + many(b"{a,b", 400_000) + b"\n" + START, ""),
    "loops within loops": (b"for a in {1..100}; do " * 30 + START + b"done\n" * 30, ""),
    "long values": (b"X=" + b"y" * 20_000 + b"\n" + many(b"torchrun t.py $X $X $X\n", 24_000) + START, ""),
    "variables": (lines(lambda n: f"export A{n}={n}\n", 500_000) + START, ""),
    "nested substitutions": (many(b"A=" + b"$(echo " * 30 + b"x" + b")" * 30 + b"\n", 300_000) + START, ""),
    "substitutions in one word": (b"A=" + many(b"$(echo x)", 500_000) + b"\n" + START, ""),
    "lines of a command": (b"torchrun t.py \\\n" + many(b"--a \\\n#\n", 128_000) + b"--b\n", ""),
    "launches with one config": (
        b"cat > a.yaml <<E\ndistributed_type: MULTI_GPU\n"
        + many(b"- a\n", 100_000)
        + b"E\n"
        + b"accelerate launch --config_file a.yaml t.py\n" * 200,
        "",
    ),
    "brackets before words": (b"[]" * 400 + b" lambda:" * 3000 + b"\n" + START, ""),
    "options": (b"torchrun t.py " + lines(lambda n: f"--o{n} {n} ", 500_000), ""),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_shell_script(name: str, tmp_path: Path) -> None:
    data, said = SCRIPTS[name]
    (tmp_path / "launch.sh").write_bytes(data)
    check_costs(tmp_path, "file", "launch.sh", said)


FILES = {
    "a list in Python": ("train.py", b"import torch\nx = [" + many(b"1,", 500_000) + b"]\n", ""),
    "calls in Python": ("train.py", b"import torch\n" + many(b"f(x)\n", 500_000), ""),
    "a module of many parts": ("train.py", b"import torch\nimport a" + many(b".a", 500_000) + b"\n", ""),
    "calls that pass on a parameter": (
        "train.py",
        b"import torch.distributed as dist\ndef f(x):\n    dist.all_reduce(x)\n    f(x)\n" + many(b"f(y)\n", 60_000)
        + many(b"def f(x):\n    dist.all_reduce(x)\n    f(x)\n", 60_000),
        "",
    ),
    "megabytes of Python": ("train.py", b"import torch\n" + many(b"f(x)\n"), "KiB"),
    "steps in one loop": (
        "train.py",
        b"import deepspeed\nengine = deepspeed.initialize(model=m, config={'zero_optimization': {'stage': 3}})[0]\n"
        b"for batch in data:\n" + many(b"    engine.backward(engine(batch))\n", 200_000),
        "",
    ),
    "one line of clipping": (
        "train.py",
        b"import torch, deepspeed\nmodel = deepspeed.initialize(config='ds.json')[0]\n"
        + many(b"torch.nn.utils.clip_grad_norm_(model.parameters(), 1); ", 48_000),
        "",
    ),
    "loaders with samplers": (
        "train.py",
        b"import torch\nfrom torch.utils.data import DataLoader\n"
        + many(b"s = S(d)\nDataLoader(d, sampler=s, shuffle=True)\n", 160_000),
        "",
    ),
    "modules whose layers are used": (
        "train.py",
        b"import torch\nfrom torch import nn\nfrom torch.nn.parallel import DistributedDataParallel\n"
        + many(
            b"class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            b"        self.a = nn.Linear(1, 1)\n    def forward(self, x):\n        return self.a(x)\n"
            b"m = DistributedDataParallel(M())\n",
            160_000,
        ),
        "",
    ),
    "terms of one zero": (
        "train.py",
        b"import torch, deepspeed\nclass M(torch.nn.Module):\n    def forward(self, x):\n        zero = 0.0\n"
        + many(b"        zero = zero + 0.0 * self.head.weight.sum()\n", 150_000)
        + b"        return x + zero\n"
        b"engine = deepspeed.initialize(model=M(), config={'zero_optimization': {'stage': 3}})\n",
        "",
    ),
    "trainers of frozen models": (
        "train.py",
        b"from transformers import AutoModel, Trainer\nm = AutoModel.from_pretrained('a')\nm.requires_grad_(x)\n"
        + many(b"Trainer(m)\n", 150_000),
        "",
    ),
    "losses divided in one loop": (
        "train.py",
        b"import deepspeed\nengine = deepspeed.initialize(model=m, config={'gradient_accumulation_steps': 4})[0]\n"
        b"for batch in data:\n" + many(b"    x = a / b\n    y = engine(x)\n    engine.backward(y)\n", 150_000),
        "",
    ),
    "loops that train an engine": (
        "train.py",
        b"import deepspeed\nengine = deepspeed.initialize(model=m, config={'zero_optimization': {'stage': 3}})[0]\n"
        + many(b"for batch in data:\n    loss = engine(batch)\n    engine.backward(loss)\n", 150_000),
        "",
    ),
    "keys of JSON": (
        "ds.json", b'{"zero_optimization": {"stage": 3},' + lines(lambda n: f'"k{n}": {n},') + b'"z": 1}', ""
    ),
    "nested JSON": ("ds.json", b'{"zero_optimization":' * 200_000, ""),
    "keys of YAML": ("config.yaml", b"distributed_type: DEEPSPEED\n" + lines(lambda n: f"k{n}: {n}\n"), "KiB"),
    "a megabyte of YAML": ("config.yaml", b"distributed_type: DEEPSPEED\n" + many(b"- a\n", 1_000_000), ""),
    "jobs": (
        "job.yaml",
        many(
            b"---\napiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{name: c, image: x, "
            b"command: [torchrun, t.py]}]}}}\n",
            1_000_000,
        ),
        "",
    ),
    "requirements": ("requirements.txt", lines(lambda n: f"pkg{n}==1.{n}.0\n"), "KiB"),
    "a megabyte of requirements": ("requirements.txt", lines(lambda n: f"pkg{n}==1.{n}.0\n", 1_000_000), "lines"),
    "requirements that include themselves": ("requirements.txt", many(b"-r requirements.txt\n", 1_000_000), "lines"),
    "a lock": ("uv.lock", lines(lambda n: f'[[package]]\nname = "pkg{n}"\nversion = "1.{n}"\n\n'), ""),
    "dependencies": (
        "pyproject.toml",
        b"[project]\ndependencies = [" + lines(lambda n: f'"pkg{n}==1.{n}",\n', 500_000) + b"]\n",
        "",
    ),
    "dots of TOML": ("pyproject.toml", b"[" + many(b"a.", 400_000) + b"a]\n", ""),
    "a Dockerfile": ("Dockerfile", b"FROM x\n" + many(b"RUN pip install a b c\n", 1_000_000), ""),
    "a Dockerfile's words": ("Dockerfile", b"FROM x\nENV " + many(b"A", 1_000_000), ""),
    "a pip list": (
        "environment.json",
        b"[" + lines(lambda n: f'{{"name": "p{n}", "version": "{n}"}},\n', 1_000_000)[:-2] + b"]",
        "",
    ),
    "a notebook": (
        "run.ipynb",
        json.dumps(
            {"cells": [{"cell_type": "code", "source": ["x = 1\n"] * 10}] * 7000}, indent=1
        ).encode(),
        "",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file(name: str, tmp_path: Path) -> None:
    main, data, said = FILES[name]
    (tmp_path / main).write_bytes(data)
    check_costs(tmp_path, "environment" if main == "environment.json" else "file", main, said)


LOGS = {
    "one long message": b"Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nOSError: " + many(b"a/b1"),
    "lines": lines(lambda n: f"step {n} loss 0.{n}\n"),
    "blank lines after stacks": b"Process 1: python t.py\nPython v3.11.7 (/usr/bin/python)\n" + many(b"\n"),
    "a megabyte of blank lines": b"Process 1: python t.py\nPython v3.11.7 (/usr/bin/python)\n" + many(b"\n", 1_000_000),
    "short lines of errors": many(b"Error\n"),
    "NULs": many(b"\0"),
    "UTF-16": many(START, 2_000_000).decode().encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_a_log(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(LOGS[name])
    check_costs(tmp_path, "diagnose", "train.log", "")


def test_models_that_are_moved_and_wrapped(tmp_path: Path) -> None:
    moves = many(b"m = M().to('cuda:0')\nm = DistributedDataParallel(m)\n", 160_000)
    start = b"import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"
    (tmp_path / "train.py").write_bytes(start + b"dist.init_process_group('nccl')\n" + moves)
    (tmp_path / "launch.sh").write_bytes(b"torchrun --nproc_per_node 8 train.py\n")
    check_costs(tmp_path, "file", "launch.sh", "")


def test_a_hostfile(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(lines(lambda n: f"node {n}\n", 1_000_000))
    (tmp_path / "t.py").write_bytes(b"import deepspeed\n")
    (tmp_path / "launch.sh").write_bytes(b"deepspeed --hostfile hosts t.py\n" * 5)
    check_costs(tmp_path, "file", "launch.sh", "")


def check_costs(folder: Path, how: str, main: str, said: str) -> None:
    """Within the limits; and where a file is not read, one line names it and says why."""
    seconds, mib, size, lines_said = measured(folder, how, main)
    assert seconds < 2, f"{seconds:.1f} s"
    assert mib < 500
    assert size < 1_000_000
    assert not any("bug in gonogo" in line for line in lines_said)
    if said:
        assert any(said in line and main in line for line in lines_said), lines_said
