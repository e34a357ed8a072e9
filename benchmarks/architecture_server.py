"""Forks a rehearsal for each job that comes on standard input; see ``architectures.py``."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time

_IMPORTED_ONCE = ("deepspeed.runtime.zero.stage3", "deepspeed.runtime.zero.stage_1_and_2", "deepspeed.compile.backend",
                  "accelerate.utils.deepspeed", "transformers.trainer")  # fmt: skip


def _serve(folder: str, world: int, accelerator: str) -> None:
    from gonogo.evidence.environment.hardware import find_accelerator
    from gonogo.virtual.patching.garbage import raise_gc_thresholds
    from gonogo.virtual.protocol.plan import WorkerPlan
    from gonogo.virtual.ranks.session import Session

    del os.environ["CUDA_VISIBLE_DEVICES"]  # torch is imported: from now on the devices are virtual ones
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the program prints is no answer
    raise_gc_thresholds()
    record = os.path.join(folder, "record")
    os.makedirs(record, exist_ok=True)
    plan = WorkerPlan(
        program_kind="module", program="gonogo.virtual.synthetic", arguments=(), rank=0, local_rank=0,
        world_size=world, local_world_size=8, accelerator=find_accelerator(accelerator), host_bytes=None, steps=1,
        scratch=os.path.join(folder, "scratch"), record=os.path.join(record, "record.json"),
        progress=os.path.join(record, "progress.jsonl"),
    )  # fmt: skip
    os.makedirs(plan.scratch, exist_ok=True)
    jobs = os.fdopen(os.dup(0), "r")
    session = Session(plan)
    with session:
        with session.mode:
            for name in _IMPORTED_ONCE:
                importlib.import_module(name)
        for line in jobs:
            answers.write(json.dumps(_forked(session, json.loads(line))) + "\n")
            answers.flush()


def _forked(session, job) -> dict[str, object]:  # type: ignore[no-untyped-def]
    """Run a job in a child; how it ended, and the seconds of processor time that it took, which its limit is in."""
    child = os.fork()
    if child == 0:
        _rehearse(session, job)
    started, told = time.monotonic(), 0.0
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            return {"ended": f"status {status}", "seconds": used.ru_utime + used.ru_stime}
        seconds = _processor_seconds(child)
        if (seconds > job["timeout"] or time.monotonic() - started > 10 * job["timeout"]) and not told:
            os.kill(child, signal.SIGTERM)
            told = time.monotonic()
        elif told and time.monotonic() > told + 60:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)


def _processor_seconds(process: int) -> float:
    descriptor = os.open(f"/proc/{process}/stat", os.O_RDONLY)
    try:
        fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
    finally:
        os.close(descriptor)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rehearse(session, job) -> None:  # type: ignore[no-untyped-def]
    """As ``gonogo.virtual.ranks.worker`` does it; does not return."""
    import msgspec

    from gonogo.virtual.ranks import worker

    status = 70
    try:
        log = os.open(os.path.join(os.path.dirname(session.plan.record), "output.log"), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        plan = msgspec.structs.replace(session.plan, arguments=tuple(job["arguments"]), steps=job["steps"])
        session.plan = plan
        session.life.target = job["steps"]
        session.started = time.monotonic()
        worker._write_on_signal(session)
        record = session.run()
        if session.should_trace_autograd(record):  # a second run tells where the failing autograd node was made
            print("wants a trace of autograd", file=sys.stderr)
        if record.failure is not None:
            print(session.raw_traceback, file=sys.stderr)
        worker.write_record(plan, record)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])
