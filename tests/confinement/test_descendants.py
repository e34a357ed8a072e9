"""How the first process of a world ends the others where there is no namespace: by what no other process can be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from gonogo.confinement.inside import init

_SLEEPS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
_TREE = """\
import os, sys, time
sys.path.insert(0, sys.argv[1])
from gonogo.confinement.inside import init
import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become children of this process
for _ in range(3):
    if not os.fork():
        if os.fork():
            os._exit(0)  # its child is an orphan
        os.fork()
        time.sleep(600)
time.sleep(0.3)
assert len(init._descendant_pids()) >= 6, init._descendant_pids()
while init._kill_descendants():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        break
print(len(init._descendant_pids()))
"""


def test_a_process_that_another_one_started_gets_no_signal() -> None:
    with subprocess.Popen(_SLEEPS, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        init._signal_child(other.pid, {1}, signal.SIGKILL)
        assert other.poll() is None
        init._signal_child(other.pid, {os.getpid()}, signal.SIGKILL)
        assert other.wait(20) == -signal.SIGKILL
    init._signal_child(other.pid, {os.getpid()}, signal.SIGKILL)  # it has ended: nothing is raised


def test_all_descendants_end_the_orphans_too() -> None:
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(init.__file__))))
    run = subprocess.run([sys.executable, "-c", _TREE, source], capture_output=True, text=True, timeout=60, check=False)
    assert run.stdout == "0\n", run.stderr
