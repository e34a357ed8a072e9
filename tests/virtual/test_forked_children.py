"""What a rehearsed program forks answers signals as it would without gonogo."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

_PRELUDE = """
import json, os, signal, sys, threading
from gonogo.virtual.ranks.worker import restore_signals_in_children

def ours(number, frame):
    print("OURS", flush=True)

NUMBERS = (signal.SIGTERM, signal.SIGINT)
restore_signals_in_children({number: (ours, signal.signal(number, ours)) for number in NUMBERS})

def state():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    names = {ours: "ours", signal.SIG_DFL: "default", signal.default_int_handler: "python's"}
    return {number.name: [names.get(signal.getsignal(number), "program's"), number in blocked] for number in NUMBERS}

def in_child():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, json.dumps(state()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return json.loads(os.read(read, 1000))
"""
_WITHOUT_US = {"SIGTERM": ["default", False], "SIGINT": ["python's", False]}


def _said(program: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param("print(json.dumps(in_child()))", _WITHOUT_US, id="fork"),
        pytest.param(
            """
            found = []
            thread = threading.Thread(target=lambda: found.append(in_child()))
            thread.start()
            thread.join()
            print(json.dumps(found[0]))
            """,
            _WITHOUT_US,
            id="fork in a thread",
        ),
        pytest.param(
            """
            signal.signal(signal.SIGTERM, lambda number, frame: None)
            print(json.dumps(in_child()))
            """,
            {**_WITHOUT_US, "SIGTERM": ["program's", False]},
            id="the program's own handler is inherited",
        ),
        pytest.param(
            """
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            print(json.dumps(in_child()))
            """,
            {**_WITHOUT_US, "SIGTERM": ["default", True]},
            id="what the program blocks stays blocked",
        ),
        pytest.param(
            """
            in_child()
            print(json.dumps(state()))
            """,
            {"SIGTERM": ["ours", False], "SIGINT": ["ours", False]},
            id="the process itself keeps ours",
        ),
    ],
)
def test_a_forked_process_has_the_signals_that_it_would_have(program: str, expected: object) -> None:
    """A signal handler written in Python, inherited, is run between bytecodes only: a waiting child never ends."""
    assert _said(program) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        "multiprocessing.Pool(4)",
        "multiprocessing.get_context('fork').Pool(4)",
        "concurrent.futures.ProcessPoolExecutor(4)",
    ],
)
def test_a_pool_ends_as_it_would(start: str) -> None:
    """The pool's processes are told to end while they are starting."""
    program = f"""
    import concurrent.futures, multiprocessing, time
    multiprocessing.set_start_method("fork")
    codes = []
    for turn in range(5):
        with {start} as pool:
            assert sum(pool.map(abs, range(4))) == 6
        processes = [multiprocessing.Process(target=time.sleep, args=(600,)) for _ in range(4)]
        for process in processes:
            process.start()
            process.terminate()
        for process in processes:
            process.join(60)
            codes.append(process.exitcode)
    print(json.dumps(sorted(set(codes))))
    """
    assert _said(program) == [-15]
