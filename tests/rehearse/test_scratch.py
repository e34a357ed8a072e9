"""The scratch folder is gone after a run, however it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, signal, sys, time
from gonogo.rehearse.workers.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "file").write_text("kept")
    if sys.argv[1] != "0":
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(30)
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_nothing_is_left_behind(number: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(int(number))], env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=25,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    interrupted = -signal.SIGINT
    expected = {0: 0, signal.SIGINT: interrupted}.get(number, 128 + number)
    assert done.returncode == expected, done.stderr
    assert list(tmp_path.iterdir()) == []
    assert number != 0 or done.stdout == "True\n"
