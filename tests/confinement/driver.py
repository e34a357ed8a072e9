"""Runs attempts inside a world, each as a process of its own, a few at a time: ``driver.py FOLDER PRELUDE NAME…``.

What they printed is left in ``FOLDER/out``. It imports what attempts do, so that a Python attempt costs no more than a
fork.
"""

import atexit
import ctypes  # noqa: F401
import json
import mmap  # noqa: F401
import multiprocessing.shared_memory  # noqa: F401
import os
import signal
import socket  # noqa: F401
import sqlite3  # noqa: F401
import subprocess  # noqa: F401
import sys
import time
import traceback

AT_A_TIME = 4
TIMEOUT = 20.0


def become(attempt, folder):
    """The attempt, in a child."""
    out = os.open(f"{folder}/out/{attempt['name']}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.environ.update(attempt["environment"])
    code = attempt["code"]
    try:
        if attempt["how"] == "shell":
            os.execvp("bash", ["bash", "-c", code])
        if attempt["how"] == "native":
            os.execv(f"{folder}/native", ["native", code])
        variables = {"__name__": "__main__"}
        try:
            exec(compile(attempt["prelude"] + code, attempt["name"], "exec"), variables)
            variables.clear()
            atexit._run_exitfuncs()
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def main(folder, names):
    """All of them."""
    with open(f"{folder}/attempts.json", encoding="utf-8") as file:
        waiting = [attempt for attempt in json.load(file) if attempt["name"] in names]
    running = {}
    while waiting or running:
        while waiting and len(running) < AT_A_TIME:
            attempt = waiting.pop(0)
            process = os.fork()
            if not process:
                become(attempt, folder)
            running[process] = time.monotonic() + TIMEOUT
        process, _ = os.waitpid(-1, os.WNOHANG)
        running.pop(process, None)
        if not process:
            for late in [one for one, end in running.items() if time.monotonic() > end]:
                os.kill(late, signal.SIGKILL)
            time.sleep(0.004)


if __name__ == "__main__":
    main(sys.argv[1], set(sys.argv[2:]))
