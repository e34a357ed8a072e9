"""Two real ranks of DeepSpeed under guard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from guard.worlds import HERE, ROOT, environment, train
from ports import free_port

from gonogo.evidence.guarded.files import read_run
from gonogo.guard.injection import GuardOptions

TRAIN = str(HERE / "train.py")
pytestmark = pytest.mark.slow


@pytest.mark.very_slow
def test_a_healthy_run_in_which_the_ranks_differ_a_little(tmp_path: Path) -> None:
    run, done = train(tmp_path, TRAIN, "differs")
    assert done.returncode == 0, done.stderr[-3000:]
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert run.world_size == 2
    for rank in run.ranks:
        assert rank.faults == []
        assert rank.exceptions == []
        assert rank.stalls == []
        assert rank.unreadable == 0
        assert rank.start is not None
        assert rank.start.versions["deepspeed"]
        assert rank.start.local_rank == rank.rank
        assert rank.joined is not None
        assert rank.joined.facts["parameters"] == "144"
        assert rank.joined.facts["torch seed"] == "7"
        assert rank.joined.details["deepspeed config"]["zero_optimization.stage"] == "3"
        assert rank.joined.backend == "gloo"
        assert rank.last_step == 6
        assert sum(step.steps for step in rank.steps) == 6
        assert all(step.seconds > 0 for step in rank.steps)
        assert rank.steps[0].host_bytes > 1 << 20
        assert rank.end is not None
        assert rank.end.reason == "exit"
        assert rank.beat is not None
        assert (rank.beat.step, rank.beat.inside) == (6, False)
        before, after = rank.placements
        assert {place.what for place in before.places} == {"zero-partition", "buffer", "fp32-partition"}
        assert "layers.0.project.weight" in next(p for p in before.places if p.what == "zero-partition").names
        assert "optimizer-state" in {place.what for place in after.places}
        assert before.misplaced == after.misplaced == ()
        assert before.zero_stage == 3
        assert before.host_available > 0
    compared = run.ranks[0].compared
    assert compared is not None
    assert run.ranks[1].compared is None
    assert (compared.missing, compared.sum_checked, compared.world_size) == ((), True, 2)
    [difference] = compared.differences
    assert difference.fact == "NCCL_ALGO"
    assert difference.values == {"(not set)": (0,), "Ring": (1,)}
    for rank in (0, 1):
        assert f"rank {rank}: ['NCCL_ALGO', 'of my own']" in done.stdout
    counts = [rank.end.counts for rank in run.ranks if rank.end is not None]
    assert counts[0] == counts[1]
    assert counts[0]["0"] > 20


@pytest.mark.slow
def test_an_exception_is_told_where_it_was(tmp_path: Path) -> None:
    run, done = train(tmp_path, TRAIN, "shape", options=GuardOptions(language="zh"))
    assert done.returncode == 1
    first, last = run.ranks[1].exceptions
    assert (first.fatal, last.fatal) == (False, True)
    for raised in (first, last):
        assert raised.type == "RuntimeError"
        assert (raised.phase, raised.step) == ("forward", 3)
        assert (raised.module, raised.module_class) == ("layers.0.project", "Linear")
        assert next(frame for frame in raised.frames if frame.owner == "user").function == "<module>"
        assert "gonogo" not in raised.traceback.replace(ROOT, "")
        assert raised.traceback.startswith("Traceback (most recent call last):\n")
        assert f'File "{TRAIN}"' in raised.traceback
        operands = {operand.parameter: operand for operand in raised.operands}
        assert operands["layers.0.project.weight"].kind == "parameter"
        assert (2, 5) in {operand.shape for operand in raised.operands}
        states = {state.parameter: state for state in raised.zero}
        assert states["layers.0.project.weight"].status == "AVAILABLE"
        assert states["layers.0.project.weight"].shape == (8, 8)
        assert states["layers.0.project.weight"].partition_elements == 32
        assert raised.collectives[-1].returned
        assert raised.collectives[-1].ranks == (0, 1)
    assert "模块 layers.0.project（Linear）" in done.stderr
    assert "参数 layers.0.project.weight" in done.stderr
    end = run.ranks[1].end
    assert end is not None
    assert (end.reason, end.status) == ("exception", 1)
    # The other rank waited for it: it lost the connection, or was ended by the launcher, whichever was first.
    left = run.ranks[0]
    assert left.exceptions or left.dump is not None
    assert all(raised.time > first.time for raised in left.exceptions)


@pytest.mark.very_slow
def test_a_parameter_that_zero_has_taken_apart_is_named(tmp_path: Path) -> None:
    run, done = train(tmp_path, TRAIN, "partitioned", ranks=1)
    assert done.returncode == 1
    [raised] = run.ranks[0].exceptions
    assert (raised.fatal, raised.phase, raised.step, raised.module) == (True, "between", 2, None)
    [weight] = raised.operands
    assert weight.name == "model.layers[0].project.weight"
    assert (weight.parameter, weight.kind, weight.shape) == ("layers.0.project.weight", "parameter", (0,))
    [state] = raised.zero
    assert (state.parameter, state.status, state.shape) == ("layers.0.project.weight", "NOT_AVAILABLE", (8, 8))
    assert "layers.0.project.weight is NOT_AVAILABLE, whole shape (8, 8)" in done.stderr


@pytest.mark.very_slow
def test_a_rank_that_sleeps_is_waited_for(tmp_path: Path) -> None:
    run, done = train(tmp_path, TRAIN, "sleeps", options=GuardOptions(stall_seconds=2.0), STAGE="1")
    assert done.returncode == 0, done.stderr[-3000:]
    waits, sleeps = [[stall for stall in rank.stalls if stall.step == 4] for rank in run.ranks]
    assert waits[0].collectives[-1].returned is False
    assert waits[0].again == 0
    assert 2 <= waits[0].seconds < 4
    assert waits[0].median > 0
    assert [stall.again for stall in waits] == list(range(len(waits)))
    assert sleeps[0].collectives[-1].returned is True
    frame = sleeps[0].threads[0].frames[-1]
    assert (frame.path, frame.text) == (TRAIN, "time.sleep(9)")
    group = waits[0].collectives[-1].group
    assert waits[0].counts[group] > sleeps[0].counts[group]
    assert waits[0].collectives[-1].index == sleeps[0].counts[group]
    queued = [{queue.group: queue.enqueued for queue in one.queues} for one in (waits[0], sleeps[0])]
    assert queued[0][group] > queued[1][group]
    for rank in run.ranks:
        assert rank.faults == []
        assert any(one.seconds > 8 for one in rank.resumed)


@pytest.mark.very_slow
def test_the_first_value_that_is_not_finite(tmp_path: Path) -> None:
    run, done = train(tmp_path, TRAIN, "nan", ranks=1, options=GuardOptions(nonfinite=True))
    assert done.returncode == 0, done.stderr[-3000:]
    [rank] = run.ranks
    activation, loss = rank.nonfinite
    assert (activation.what, activation.module, activation.module_class) == ("activation", "layers.0.project", "Linear")
    assert (activation.inputs_finite, activation.nan, activation.step) == (False, 16, 4)
    assert (loss.what, loss.nan) == ("loss", 1)
    assert [(warning.what, warning.value) for warning in rank.warnings] == [("nonfinite-loss", "nan")]


@pytest.mark.very_slow
def test_a_loop_of_ones_own_with_ddp(tmp_path: Path) -> None:
    run, done = train(tmp_path, str(HERE / "plain.py"))
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in run.ranks:
        assert f"rank {rank.rank}: [4.0, 4.0]" in done.stdout
        assert rank.faults == []
        assert rank.last_step == 5
        assert rank.joined is not None
        assert (rank.joined.facts["parameters"], rank.joined.facts["batches"]) == ("81", "5")
    compared = run.ranks[0].compared
    assert compared is not None
    assert (compared.differences, compared.missing, compared.sum_checked) == ((), (), True)


@pytest.mark.very_slow
def test_a_rank_that_waits_for_one_that_never_starts(tmp_path: Path) -> None:
    program = (
        "import datetime, torch.distributed as dist\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=9))\n"
    )
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    guarded = environment(tmp_path, GuardOptions(stall_seconds=2.0), **variables, MASTER_PORT=str(free_port()))
    done = subprocess.run([sys.executable, "-c", program], env=guarded, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    [rank] = read_run(tmp_path).ranks
    stall = rank.stalls[0]
    assert stall.seconds >= 2
    assert stall.step == 0
    assert [(one.operator, one.returned) for one in stall.collectives] == [("init_process_group", False)]
    assert [frame.function for frame in stall.threads[0].frames][-1] != "<module>"
    [raised] = rank.exceptions
    assert (raised.fatal, raised.phase) == (True, "init")
    assert "DistStoreError" in raised.type or "Timeout" in raised.message
