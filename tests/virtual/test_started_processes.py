"""A program whose own processes start afresh: they find the program's accelerators and packages, reach no network, send
nothing to the hub, and keep holes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confined import runs_of
from virtual_worker import answers

from gonogo.virtual.sandbox.started_processes import StartedProcesses

_PROGRAM = """
import os, sys
import {package}
sys.path.insert(0, {src!r})
from gonogo.evidence.environment.hardware import Accelerator
from gonogo.virtual.protocol.plan import WorkerPlan
from gonogo.virtual.sandbox import network, started_processes

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
    accelerator = Accelerator("H100-80G", "cuda", "NVIDIA H100 80GB HBM3", 79 << 30, (9, 0), 132, 1 << 30)
    plan = WorkerPlan("script", "program.py", (), 0, 0, 2, 2, accelerator, 1 << 40, 2, {scratch!r}, "", "")
    started = started_processes.StartedProcesses.of_rank(plan)
    started.write(plan)
    started_processes.install(started.folder)
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
    uses = StartedProcesses(str(runs.shared / "started-by-0")).accelerator_uses()
    line = 1 + program.read_text().splitlines().index('        torch.zeros(1, device="cuda")')
    assert set(uses) == {f"{program}:{line}"}
    assert sorted(path.name for path in folder.iterdir()) == ["old.txt", "program.py"]


_MAIN = """
import sys
import flash_attn  # a stand-in of the rehearsal, as torch's accelerators are
import torch
assert torch.cuda.device_count() == 2 and torch.cuda.get_device_capability() == (9, 0)

def child(number):
    return number + 1
"""
_STARTS = """
import multiprocessing, tempfile
os.environ["TMPDIR"], tempfile.tempdir = "/tmp", None  # of pytest's folder, a socket's name would be too long
from concurrent.futures import ProcessPoolExecutor
sys.path.insert(0, os.getcwd())
main = sys.modules["__main__"]
main.__file__, main.__spec__ = os.path.abspath("main.py"), None
exec(compile(open("main.py").read(), main.__file__, "exec"), vars(main))
context = multiprocessing.get_context({method!r})
with ProcessPoolExecutor(1, context) as pool:
    answer(pool=pool.submit(child, 1).result(60))
with context.Manager() as manager:
    queue = manager.Queue()
    queue.put(1)
    answer(queue=queue.get(timeout=60))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_they_find_what_the_program_finds_when_they_import_it(tmp_path: Path, method: str) -> None:
    (tmp_path / "main.py").write_text(_MAIN)
    assert answers(tmp_path, _STARTS.format(method=method), 2) == {"pool": 2, "queue": 1}


@pytest.mark.slow
def test_another_python_finds_them_too_and_uses_are_noted(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(_MAIN)
    (tmp_path / "uses.py").write_text("import torch\ntorch.zeros(1, device='cuda')\n")
    program = """
    import subprocess
    one = subprocess.run([sys.executable, "main.py"], capture_output=True, text=True)
    two = subprocess.run([sys.executable, "uses.py"], capture_output=True, text=True)
    path = subprocess.run([sys.executable, "-c", "import sys; print(sys.path)"], capture_output=True, text=True)
    answer(one=one.stderr, two=two.returncode, path="started-by" in path.stdout)
    answer(uses=session.started_processes.accelerator_uses())
    answer(assumed=len(session.started_processes.assumptions()))
    """
    found = answers(tmp_path, program, 2)
    assert found["one"] == ""
    assert found["two"] != 0
    assert not found["path"]
    assert found["uses"] == [f"{tmp_path / 'uses.py'}:2"]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="this Python has the name")
def test_names_of_the_python_that_the_project_requires(tmp_path: Path) -> None:
    (tmp_path / "newer.py").write_text("from typing import TypeIs\n")
    program = """
    import msgspec, subprocess
    session.started_processes.write(msgspec.structs.replace(plan, required_python=">=3.13"))
    done = subprocess.run([sys.executable, "newer.py"], capture_output=True, text=True)
    answer(said=done.stderr, assumed=[one.what for one in session.started_processes.assumptions()])
    """
    found = answers(tmp_path, program)
    assert found["said"] == ""
    assert "lacks typing.TypeIs" in " ".join(found["assumed"])


@pytest.mark.slow
def test_the_next_sitecustomize_is_run(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.mine = __file__\n")
    program = """
    import subprocess
    code = "import sys, sitecustomize; print(sys.mine, sitecustomize.__file__)"
    answer(said=subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    """
    found = answers(tmp_path, program, PYTHONPATH=str(tmp_path / "own"))
    assert found["said"] == [str(tmp_path / "own" / "sitecustomize.py")] * 2
