"""Ranks in touch with each other: the line between them, and a rehearsal in which they agree, then part."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import pytest

from gonogo.evidence.rehearsal.conditions import conditions_around_stack
from gonogo.evidence.rehearsal.record import RehearsalRecord
from gonogo.finding import Verdict
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.progress import RankStatus
from gonogo.rehearse.ranks.exchange import Exchange
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse
from gonogo.virtual.collectives.call_sites import frame_of
from gonogo.virtual.collectives.peers import Peers, PeerStepLimitReached, RanksDiverged, connect_over_network
from gonogo.virtual.protocol.messages import Message, ThreadCall, WaitMode
from gonogo.virtual.protocol.plan import ExchangeAddress

WORLD = (0, 1)


@contextmanager
def ranks(exchange: Exchange, *runs: object, where: ExchangeAddress | None = None) -> Iterator[None]:
    """Each rank in a thread of its own."""
    where = where or exchange.address
    errors: list[BaseException] = []

    def run(rank: int, does: object) -> None:
        try:
            end = exchange.descriptor(rank)
            line = connect_over_network(where) if end is None else Connection(os.dup(end))
            does(Peers(rank, where, line))  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=one) for one in enumerate(runs)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not errors, errors


@pytest.mark.parametrize("host", [None, "127.0.0.1"])
def test_known_values_are_exchanged(host: str | None) -> None:
    got: dict[int, list[bytes] | None] = {}

    def run(peers: Peers) -> None:
        for _ in range(100):
            peers.report_collective("world", WORLD, "allreduce", wait_mode=WaitMode.NO)
        got[peers.rank] = peers.report_collective("world", WORLD, "allreduce", payload=b"%d" % peers.rank)
        assert peers.exchange_answers("a question", b"x") == [b"x", b"x"]
        peers.report_end("completed", 1)

    with Exchange(WORLD, host) as exchange, ranks(exchange, run, run):
        pass
    assert got == {0: [b"0", b"1"], 1: [b"0", b"1"]}
    assert exchange.divergence is None


def test_ranks_that_part_are_stopped_and_their_lines_known() -> None:
    def first(peers: Peers) -> None:
        peers.report_batch_read((("x", "float32 [2]"),), 1, 0)
        with pytest.raises(RanksDiverged):
            peers.report_collective("world", WORLD, "barrier")
        assert peers.over
        assert not peers.has_rehearsed_peer(WORLD)
        peers.report_end("stopped", 0)

    def second(peers: Peers) -> None:
        with pytest.raises(RanksDiverged):
            peers.report_collective("world", WORLD, "allreduce")
        peers.report_end("stopped", 0)

    with Exchange(WORLD) as exchange, ranks(exchange, first, second):
        pass
    divergence = exchange.divergence
    assert divergence is not None
    by_rank = {side.ranks[0]: side for side in divergence.sides}
    assert by_rank[0].batch == (("x", "float32 [2]"),)
    frame = by_rank[0].call.innermost("user") if by_rank[0].call else None
    assert frame is not None
    assert (Path(frame.path).name, frame.function) == ("test_exchange.py", "first")


def test_a_rank_that_dies_without_a_word_lets_the_others_go() -> None:
    def first(peers: Peers) -> None:
        with pytest.raises(RanksDiverged) as stopped:
            peers.report_collective("world", WORLD, "barrier")
        assert stopped.value.reply.stopped_by == (1, "killed")

    with Exchange(WORLD) as exchange, ranks(exchange, first):
        exchange.note_workers([RankStatus(0, "running"), RankStatus(1, "killed")])
    assert exchange.divergence is None


def test_a_rank_that_was_stopped_after_its_steps_stops_the_others() -> None:
    def first(peers: Peers) -> None:
        with pytest.raises(PeerStepLimitReached):
            peers.report_collective("world", WORLD, "barrier")

    def second(peers: Peers) -> None:
        peers.report_end("enough", 10)

    with Exchange(WORLD) as exchange, ranks(exchange, first, second):
        pass
    assert exchange.divergence is None


def test_a_stranger_is_not_let_in() -> None:
    def stranger(peers: Peers) -> None:
        raise AssertionError("let in")

    with Exchange(WORLD, "127.0.0.1") as exchange:
        false = msgspec.structs.replace(exchange.address, key="00" * 32)
        with pytest.raises(AssertionError), ranks(exchange, stranger, where=false):
            pass


@pytest.mark.parametrize("joins", [{}, {"timeout": 5.0}, None], ids=["joined", "joined for a while", "left alone"])
def test_a_daemon_threads_collective_counts_where_the_program_waits_for_it(joins: dict[str, float] | None) -> None:
    ours, theirs = Pipe()
    done = threading.Event()
    with Exchange(WORLD) as exchange:
        peers = Peers(0, exchange.address, ours)
    undo = peers.track_thread_joins()
    try:

        def reduce() -> None:
            peers.record_thread_collective("world", WORLD, "allreduce", None)
            done.set()

        thread = threading.Thread(target=reduce, daemon=True)
        thread.start()
        assert done.wait(10)
        if joins is not None:
            thread.join(**joins)
        peers.report_end("completed", 0)
    finally:
        undo()
    heard: list[Message] = []
    while theirs.poll():  # at its end, too
        with suppress(EOFError):
            heard += msgspec.msgpack.decode(theirs.recv_bytes(), type=list[Message])
            continue
        break
    assert [one.call.group for one in heard if isinstance(one, ThreadCall)] == (["world"] if joins == {} else [])


SOURCE = """
def step(batch, rank):
    if batch is None:
        return
    for item in batch:
        try:
            if rank == 0:
                send(item)
            elif rank == 1:
                other(item)
        finally:
            last()
if __name__ == "__main__":
    step([1], 0)
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (8, [("else", 3), ("for", 5), ("if", 7)]),
        (10, [("else", 3), ("for", 5), ("else", 7), ("if", 9)]),
        (12, [("else", 3), ("for", 5)]),
        (4, [("if", 3)]),
        (14, []),
    ],
)
def test_conditions_around_a_line(tmp_path: Path, line: int, expected: list[tuple[str, int]]) -> None:
    path = tmp_path / f"program_{line}.py"
    path.write_text(SOURCE)
    frame = frame_of(str(path), line, "step")
    assert frame is not None
    assert [(guard.kind, guard.line) for guard in conditions_around_stack([frame])] == expected


PROGRAM = """
import os, sys, torch, torch.distributed as dist
from torch.utils.data import DataLoader
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
number = torch.tensor([rank + 1.0], device="cuda")
dist.all_reduce(number)
assert number.item() == 3
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
assert [one["rank"] for one in objects] == [0, 1]
from_last = torch.tensor([10.0 * rank], device="cuda")
dist.broadcast(from_last, src=1)
assert from_last.item() == 10
other = torch.zeros(1, device="cuda")
if rank == 0:
    with open("made.txt", "w") as file:
        file.write("by rank 0")
    dist.send(number, dst=1)
else:
    dist.recv(other, src=0)
    assert other.item() == 3
store = dist.TCPStore("localhost", 29777, 2, rank == 0)
if rank == 0:
    store.set("ready", "yes")
assert store.get("ready") == b"yes"
dist.barrier()
assert open("made.txt").read() == "by rank 0"
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(torch.randn(3 + rank, 4)):
    model(batch.cuda()).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.barrier()
"""


@pytest.mark.slow
def test_ranks_agree_and_then_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    monkeypatch.chdir(tmp_path)
    record: RehearsalRecord = rehearse(RehearsalRequest(["torchrun", "--nproc_per_node", "2", "train.py"], ranks="all"))
    report = rehearsal_report(record)
    assert not (tmp_path / "made.txt").exists()
    assert report.verdict is Verdict.NO_GO
    (finding,) = report.findings
    assert finding.hazard == "uneven-data-per-rank-hang"
    assert [(span.path, span.line) for span in finding.spans] == [("train.py", 35), ("train.py", 37), ("train.py", 32)]
    assert [rank.outcome for rank in record.ranks] == ["diverged", "diverged"]
    assert [rank.batches for rank in record.ranks] == [3, 4]  # beyond the two steps that were asked for


PIPELINE = """
import deepspeed, torch
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import nn
deepspeed.init_distributed()
layers = [LayerSpec(nn.Linear, 64, 64) for _ in range(4)]
net = PipelineModule(layers=layers, loss_fn=nn.MSELoss(), num_stages=2)
rows = torch.utils.data.TensorDataset(torch.randn(64, 64), torch.randn(64, 64))
config = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 0},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), training_data=rows, config=config)
for _ in range(2):
    engine.train_batch()
engine.save_checkpoint("saved")
"""


@pytest.mark.slow
def test_the_stages_of_a_pipeline_tell_each_other_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PIPELINE)
    command = ("deepspeed", "--num_gpus", "2", "train.py")
    record = rehearse(RehearsalRequest(command, gpus="2xH100-80G", ranks="all"))
    assert [(rank.outcome, rank.steps) for rank in record.ranks] == [("completed", 2)] * 2
    assert all({"forward", "backward", "step", "save"} <= set(rank.phases) for rank in record.ranks)
    assert record.ranks[0].as_run is not None
    assert record.ranks[0].as_run.strategy == "DeepSpeed pipeline"
    record = rehearse(RehearsalRequest(command, gpus="2xH100-80G"))
    assert "--ranks all" in record.ranks[0].unsupported[0].why
