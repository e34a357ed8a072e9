"""Where a log of ranks that wait ends, and what its time-outs say: what a hazard's own fixtures can't hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from gonogo.diagnose.findings import read_failure
from gonogo.evidence.log.exit_summary import process_exits, torchrun_first_failure
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.line import LogLine
from gonogo.evidence.log.stall import find_stall
from gonogo.evidence.setup import Setup
from gonogo.finding import Certainty

WORK = "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL({work}, Timeout(ms)=600000) ran for 600027"


def log_of(*lines: str) -> FailureLog:
    return FailureLog([LogLine("run.log", number, text) for number, text in enumerate(lines, 1)], Setup())


def time_out(rank: int, work: str) -> str:
    return WORK.format(rank=rank, work=work) + " milliseconds before timing out."


def test_a_log_that_ends_on_another_order_of_modules(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("Invalidate trace cache @ step 3: expected module 2, but got module 1\n")
    findings = read_failure([str(log)]).report().findings
    assert [(f.hazard, f.certainty) for f in findings] == [("zero3-mixed-modality-hang", Certainty.POSSIBLE)]


@pytest.mark.parametrize(
    ("works", "diverged"),
    [
        (("SeqNum=7, OpType=ALLREDUCE, NumelIn=4", "SeqNum=7, OpType=ALLREDUCE, NumelIn=4"), False),
        (("SeqNum=7, OpType=ALLREDUCE, NumelIn=4", "SeqNum=7, OpType=ALLREDUCE, NumelIn=1"), True),
        (("SeqNum=7, OpType=ALLREDUCE, NumelIn=4", "SeqNum=7, OpType=BROADCAST, NumelIn=4"), True),
        (("SeqNum=7, OpType=ALLREDUCE, NumelIn=4", "SeqNum=9, OpType=BROADCAST, NumelIn=1"), False),
        (("OpType=BROADCAST", "OpType=ALLREDUCE"), False),
    ],
)
def test_ranks_in_different_collectives(works: tuple[str, str], diverged: bool) -> None:
    stall = find_stall(log_of(*(time_out(rank, work) for rank, work in enumerate(works))))
    assert stall is not None
    assert [one.rank for one in stall.time_outs] == [0, 1]
    assert stall.has_diverged is diverged


def test_older_wordings_are_read() -> None:
    stall = find_stall(log_of(time_out(1, "SeqNum=4, OpType=ALLREDUCE, TensorShape=[2, 3]")))
    assert stall is not None
    assert (stall.time_outs[0].sequence, stall.time_outs[0].numel) == (4, 6)


def test_a_fault_of_the_device_is_no_time_out() -> None:
    line = "Process group watchdog thread terminated with exception: CUDA error: an illegal memory access"
    assert find_stall(log_of(line)) is None
    stall = find_stall(log_of(line, time_out(0, "SeqNum=4, OpType=ALLREDUCE, NumelIn=1")))
    assert stall is not None
    assert stall.another_failure


@pytest.mark.parametrize("words", ["Process 3 exited with code -9", "exit code: 137", "exits with code -9"])
def test_how_a_process_ended(words: str) -> None:
    assert [code for _, code in process_exits(log_of(words))] == [-9]


def test_the_first_failure_of_torchruns_summary() -> None:
    log = log_of(
        "Root Cause (first observed failure):",
        "[0]:",
        "  host      : node-7",
        "  rank      : 10 (local_rank: 2)",
        "  exitcode  : -9 (pid: 48096)",
    )
    first = torchrun_first_failure(log)
    assert first is not None
    assert (first.rank, first.exit_code, first.host) == (10, -9, "node-7")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("['python'] exits with return code = -7", -7),
        ("failed (exitcode: -11) local_rank: 0 (pid: 1)", -11),
        ("traceback : Signal 9 (SIGKILL) received by PID 4", -9),
        ("died with <Signals.SIGKILL: 9>.", -9),
        ("command exited with code 137", -9),
        ("returned non-zero exit status 1.", 1),
    ],
)
def test_exit_codes(line: str, code: int) -> None:
    assert [told for _, told in process_exits(log_of(line))] == [code]


def test_a_log_that_ends_where_the_ranks_meet(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    meets = "[2024-07-02 08:11:40,311] [INFO] [comm.py:668:init_distributed] Initializing TorchBackend in DeepSpeed"
    log.write_text(f"[2024-07-02 08:11:40,310] [INFO] [comm.py:637:init_distributed] cdb=None\n{meets}\n\n")
    findings = read_failure([str(log)]).report().findings
    assert [(f.hazard, f.certainty) for f in findings] == [("rendezvous-port-zero-hang", Certainty.POSSIBLE)]
    log.write_text(f"{meets}\nLoading checkpoint shards: 100%\n")
    assert not read_failure([str(log)]).report().findings


@pytest.mark.parametrize("begun_by", ["[INFO] [launch.py] deepspeed --num_gpus 8", "torchrun --nproc_per_node 8"])
def test_thousands_of_gathers_before_the_first_step_may_be_zero3s(begun_by: str, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    timed_out = time_out(1, "SeqNum=5120, OpType=_ALLGATHER_BASE")
    log.write_text(f"{begun_by}\n{timed_out}\n  0%|          | 0/600 [30:05<?, ?it/s]\n")
    found = {finding.hazard: finding.certainty for finding in read_failure([str(log)]).report().findings}
    assert found.get("zero3-moe-hang") == (Certainty.POSSIBLE if "deepspeed" in begun_by else None)


@pytest.mark.parametrize(("elapsed", "found"), [("30:11", True), ("10:02", True), ("12:02", False)])
def test_a_cut_traceback_beside_preparation_as_old_as_a_time_out(tmp_path: Path, elapsed: str, found: bool) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        f"Running tokenizer on dataset:  52%|##   | 52000/100000 [{elapsed}<09:01, 57.6 examples/s]\n"
        'Traceback (most recent call last):\n  File "train.py", line 3, in main\n    trainer.train()\n'
    )
    assert [f.hazard for f in read_failure([str(log)]).report().findings] == ["nccl-timeout-preprocessing"] * found
