"""Which waits of a process are for good, and who could end them, as a rank's watch sees them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads' system calls are read from /proc")

WATCHED = """
import json, multiprocessing, os, queue, sys, threading, time
from gonogo.virtual.waits.watch import WaitWatch
from gonogo.virtual.waits import watch as module
module._POLLING_SECONDS = 3.0

class Watch(threading.Thread):
    is_gonogo = True

    def run(self):
        watch = WaitWatch(lambda: 0)
        end = time.monotonic() + {seconds}
        while time.monotonic() < end and not watch.look():
            time.sleep(0.25)
        waits = [[wait.who, wait.kind, list(wait.whom)] for wait in watch.waits]
        for child in multiprocessing.active_children():
            child.kill()  # it would keep the pipe open
        print(json.dumps([watch.stuck, waits]), flush=True)
        os._exit(0)

Watch(daemon=True).start()
"""


def watched(program: str, seconds: float = 20.0) -> tuple[str, dict[str, tuple[str, list[str]]]]:
    """How the program stands still, and by thread what it waits for and who could let it go on."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.replace("{seconds}", str(seconds)) + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    stuck, waits = json.loads(done.stdout)
    return stuck, {who: (kind, whom) for who, kind, whom in waits}


def test_a_full_queue_and_a_lock() -> None:
    stuck, waits = watched(
        """
        samples, lock, begun = queue.Queue(1), threading.Lock(), threading.Event()
        def roll_out(samples):
            with lock:
                for _ in range(4):
                    samples.put(1)
                    begun.set()
        threading.Thread(target=roll_out, args=(samples,), name="rollout").start()
        begun.wait()
        lock.acquire()
        """
    )
    assert stuck == "forever"
    assert waits["MainThread"][0] == "lock"
    assert waits["rollout"] == ("queue-put", ["MainThread"])


def test_a_join_of_a_thread_that_waits_for_the_joining_one() -> None:
    stuck, waits = watched(
        """
        stop = threading.Event()
        worker = threading.Thread(target=stop.wait, name="worker")
        worker.start()
        worker.join()
        """
    )
    assert stuck == "forever"
    assert waits["MainThread"] == ("thread", ["worker"])
    assert waits["worker"][0] == "event"


@pytest.mark.parametrize(
    "program",
    [
        "queue.Queue().get(timeout=60)",  # one long wait with a limit
        "time.sleep(60)",
        "\nwhile True:\n    pass",
        "\nthreading.Thread(target=time.sleep, args=(60,)).start()\nqueue.Queue().get()",
    ],
)
def test_somebody_may_yet_go_on(program: str) -> None:
    assert watched(program, seconds=7.0)[0] == ""


def test_looking_again_and_again_is_only_suspected() -> None:
    stuck, waits = watched(
        """
        def look():
            while not os.path.exists("never"):
                time.sleep(0.05)
        threading.Thread(target=look, name="orchestrator").start()
        look()
        """
    )
    assert stuck == "polling"
    assert waits["MainThread"][0] == waits["orchestrator"][0] == "poll"


def test_a_program_with_a_signal_handler_is_only_suspected() -> None:
    stuck, _ = watched(
        """
        import signal
        signal.signal(signal.SIGUSR1, lambda *_: None)
        threading.Event().wait()
        """
    )
    assert stuck == "polling"


def test_a_process_that_cannot_end_before_its_queue_is_read() -> None:
    stuck, waits = watched(
        """
        def roll_out(samples):
            samples.put(b"x" * 1_000_000)
        context = multiprocessing.get_context("fork")
        samples = context.Queue()
        worker = context.Process(target=roll_out, args=(samples,), name="worker")
        worker.start()
        worker.join()
        """
    )
    assert stuck == "polling"
    assert waits["MainThread"] == ("process", ["worker"])
