"""A program whose own processes start afresh: they reach no network, send nothing to the hub, and keep holes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confined import runs_of

_PROGRAM = """
import os, sys
import {package}
sys.path.insert(0, {src!r})
from gonogo.virtual.sandbox import network, spawned

def child(number):
    import shutil, socket
    import huggingface_hub
    import torch
    with open("out/made.txt") as made:
        text = made.read()
    assert not os.path.exists("old.txt")
    with open(f"out/{{number}}.txt", "w") as file:
        file.write(f"{{text}} {{number}}")
    with open(f"out/{{number}}", "wb") as file:
        file.truncate(1 << 30)
    shutil.copyfile(f"out/{{number}}", f"out/{{number}}.copy")
    assert os.stat(f"out/{{number}}.copy").st_blocks * 512 < 1 << 20
    assert huggingface_hub.HfApi().create_repo("somebody/model").repo_id == "somebody/model"
    try:
        torch.zeros(1, device="cuda")
    except Exception:
        pass
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError as error:
        return str(error)

def grandchild(number):
    with {package}.get_context("spawn").Pool(1) as pool:
        return pool.apply(child, [number])

if __name__ == "__main__":
    network.install()
    spawned.install({scratch!r})
    os.mkdir("out")
    with open("out/made.txt", "w") as file:
        file.write("made")
    os.remove("old.txt")
    work = {work}
    with {package}.get_context({method!r}).Pool(2) as pool:
        said = pool.map(work, range(2)) if work is child else None
    if work is grandchild:
        process = {package}.get_context({method!r}).Process(target=work, args=(0,))
        process.start()
        process.join()
        said = [process.exitcode]
    print(sorted(os.listdir(".")), open("out/0.txt").read(), *said, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "method", "work"),
    [
        ("multiprocessing", "spawn", "child"),
        ("multiprocessing", "forkserver", "child"),
        ("multiprocess", "spawn", "child"),
        ("multiprocessing", "spawn", "grandchild"),
    ],
)
def test_they_are_answered_as_the_program_is(tmp_path: Path, package: str, method: str, work: str) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    program = folder / "program.py"
    src = str(Path(__file__).parents[2] / "src")
    runs = runs_of(folder)
    if not runs.world.has_overlay:
        pytest.skip("this kernel allows no user namespaces")
    scratch = str(runs.shared)
    program.write_text(_PROGRAM.format(src=src, scratch=scratch, package=package, method=method, work=work))
    done = subprocess.run(
        runs.world.command([sys.executable, "program.py"]),
        env=runs.world.environment(os.environ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    names, text, *said = done.stdout.splitlines()
    assert names == "['out', 'program.py']"
    assert text == "made 0"
    refused = f"[Errno {errno.ENETUNREACH}] {os.strerror(errno.ENETUNREACH)}"
    assert said == ([refused] * 2 if work == "child" else ["0"])
    uses = (runs.shared / "accelerators-used").read_text().splitlines()
    line = 1 + program.read_text().splitlines().index('        torch.zeros(1, device="cuda")')
    assert set(uses) == {f"{program}:{line}"}
    assert sorted(path.name for path in folder.iterdir()) == ["old.txt", "program.py"]
