"""A program whose own processes start afresh: they write to the same scratch, read from it, and reach no network."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_PROGRAM = """
import os, sys
import {package}
sys.path.insert(0, {src!r})
from gonogo.virtual.sandbox import filesystem, spawned
from gonogo.virtual.sandbox.overlay import Overlay

def child(number):
    import socket
    with open("out/made.txt") as made:
        text = made.read()
    assert not os.path.exists("old.txt")
    with open(f"out/{{number}}.txt", "w") as file:
        file.write(f"{{text}} {{number}}")
    os.remove("also_old.txt") if number == 0 else None
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError as error:
        return str(error)

def grandchild(number):
    with {package}.get_context("spawn").Pool(1) as pool:
        return pool.apply(child, [number])

if __name__ == "__main__":
    overlay = Overlay({scratch!r})
    filesystem.install(overlay)
    spawned.install(overlay)
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
    print(sorted(os.listdir(".")), sorted(os.listdir("out")), open("out/0.txt").read(), *said, sep="\\n")
"""


@pytest.fixture
def scratch() -> Iterator[str]:
    """A folder with a short path, as a rehearsal's: a forkserver's socket lies in it, whose path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="gonogo-") as folder:
        yield folder


@pytest.mark.parametrize(
    ("package", "method", "work"),
    [
        ("multiprocessing", "spawn", "child"),
        ("multiprocessing", "forkserver", "child"),
        ("multiprocess", "spawn", "child"),
        ("multiprocessing", "spawn", "grandchild"),
    ],
)
def test_they_share_what_was_written_and_deleted(
    tmp_path: Path, scratch: str, package: str, method: str, work: str
) -> None:
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    (folder / "also_old.txt").write_text("old")
    program = folder / "program.py"
    src = str(Path(__file__).parents[2] / "src")
    program.write_text(_PROGRAM.format(src=src, scratch=scratch, package=package, method=method, work=work))
    before = sorted(path.name for path in folder.iterdir())
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    names, made, text, *said = done.stdout.splitlines()
    assert names == "['out', 'program.py']"
    assert made == str(sorted(["made.txt", "0.txt", *(["1.txt"] if work == "child" else [])]))
    assert text == "made 0"
    refused = "the program tried to reach 192.0.2.1 over the network, which a rehearsal does not use"
    assert said == ([f"[Errno {errno.ENETUNREACH}] {refused}"] * 2 if work == "child" else ["0"])
    assert sorted(path.name for path in folder.iterdir()) == before
