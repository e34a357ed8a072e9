"""``--ray``: ranks on the two nodes of a local Ray cluster, one of which goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gonogo.evidence.rehearsal.record import RankRecord, RehearsalRecord
from gonogo.finding import UserError
from gonogo.rehearse.progress import RehearsalStatus
from gonogo.rehearse.request import RehearsalRequest
from gonogo.rehearse.run import rehearse
from gonogo.rehearse.workers import ray_shipment
from gonogo.rehearse.workers.ray_cluster import connect_to_cluster
from gonogo.rehearse.workers.ray_pool import _cpu_fraction_per_rank

TWO_RANKS = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(64, 64).cuda()
for step in range(3):
    loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    print("step", step, flush=True)
    while "wait" in sys.argv and not os.path.exists("go"):
        time.sleep(0.1)
"""
_VARIES = {"seconds", "rss_bytes"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of one node, to which tests add others."""
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = started(lambda: Cluster(initialize_head=True, head_node_args=_NODE))
    yield made
    made.shutdown()


def started(start: Callable[[], Any]) -> Any:
    """A node, tried three times: on a busy machine one may take longer than the half minute that Ray grants it."""
    for _ in range(2):
        with contextlib.suppress(Exception):
            return start()
    return start()


_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text(textwrap.dedent(TWO_RANKS))
    return tmp_path


def run(
    *program: str,
    ray: str | None,
    ranks: str = "all",
    on_status: Callable[[RehearsalStatus], None] | None = None,
    **more: Any,
) -> RehearsalRecord:
    command = ["torchrun", "--nproc_per_node", "2", "train.py", *program]
    more = {"gpus": "2xH100-80G", "timeout": 300.0, **more}
    return rehearse(RehearsalRequest(command, ranks=ranks, ray=ray, **more), on_status)


def comparable(record: RankRecord) -> dict[str, Any]:
    return {name: value for name, value in msgspec.to_builtins(record).items() if name not in _VARIES}


@pytest.mark.very_slow
@pytest.mark.timeout(900)
def test_records_are_those_of_the_local_pool_also_after_a_node_was_lost(cluster: Any, folder: Path) -> None:
    here = run(ray=None)
    node = started(lambda: cluster.add_node(**_NODE))
    lost: list[float] = []

    def lose_the_node(status: RehearsalStatus) -> None:
        if not lost and len(status.ranks) == 2 and all(rank.progress is not None for rank in status.ranks):
            lost.append(time.monotonic())
            cluster.remove_node(node, allow_graceful=False)
            Path("go").touch()

    there = run("wait", ray=cluster.address, on_status=lose_the_node, keep=folder / "kept")
    assert lost
    assert [rank.outcome for rank in here.ranks] == [rank.outcome for rank in there.ranks] == ["completed"] * 2
    assert [comparable(rank) for rank in there.ranks] == [comparable(rank) for rank in here.ranks]
    assert here.divergence is there.divergence is None
    for rank in (0, 1):
        assert "step 2" in (folder / "kept" / f"rank-{rank}" / "output.log").read_text()


@pytest.mark.very_slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("outcome", ["timed-out", "interrupted"])
def test_the_deadline_and_ctrl_c_end_the_tasks(cluster: Any, folder: Path, outcome: str) -> None:
    (folder / "train.py").write_text("import time\ntime.sleep(600)")
    interrupted: list[Any] = []

    def interrupt(status: RehearsalStatus) -> None:
        running = [rank for rank in status.ranks if rank.progress is not None]
        if outcome == "interrupted" and running and not interrupted:
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            interrupted.append(timer)
            timer.start()

    timeout = 300.0 if outcome == "interrupted" else 45.0
    started = time.monotonic()
    record = run(ray=cluster.address, ranks="0", on_status=interrupt, timeout=timeout)
    assert record.ranks[0].outcome == outcome
    assert time.monotonic() - started < 200
    if outcome == "interrupted":  # the worker was there to hear of it
        assert any("the program was at:" in event for event in record.ranks[0].events), record.ranks[0].events


@pytest.mark.very_slow
@pytest.mark.timeout(900)
def test_a_rank_whose_nodes_are_lost_each_time_is_killed(
    cluster: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gonogo.rehearse.workers.ray_pool.MAX_NODE_RETRIES", 0)
    (folder / "train.py").write_text("import time\ntime.sleep(600)")
    node = started(lambda: cluster.add_node(**_NODE))
    occupied = _occupy_the_head(cluster)
    lost: list[bool] = []

    def lose_the_node(status: RehearsalStatus) -> None:
        if not lost and any(rank.progress is not None for rank in status.ranks):
            lost.append(True)
            cluster.remove_node(node, allow_graceful=False)

    try:
        record = run(ray=cluster.address, ranks="0", on_status=lose_the_node)
    finally:
        occupied.kill()
        occupied.wait()
    (rank,) = record.ranks
    assert (rank.outcome, rank.rank) == ("killed", 0)
    assert "its Ray node was lost" in rank.events[0]
    assert rank.last_activity


def _occupy_the_head(cluster: Any) -> Any:
    """Another job that holds the head's only CPU; returns its process."""
    import subprocess

    code = (
        "import ray, time\n"
        f"ray.init(address={cluster.address!r}, log_to_driver=False)\n"
        "from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On\n"
        f"@ray.remote(num_cpus=1, scheduling_strategy=On({cluster.head_node.node_id!r}, soft=False))\n"
        "class Holder:\n    def held(self): return True\n"
        "holder = Holder.remote()\nprint(ray.get(holder.held.remote()), flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "True"
    return process


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "--ray 127.0.0.1:1: can't connect to a Ray cluster (Connection refused)"),
        ("ray://127.0.0.1:1", "--ray ray://127.0.0.1:1: ranks can only be started from a node of the cluster"),
        ("nowhere", "--ray nowhere: write HOST:PORT"),
        ("host:port", "--ray host:port: write HOST:PORT"),
    ],
)
def test_an_address_without_a_cluster(address: str, said: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError) as caught, connect_to_cluster(address):
        pass
    assert caught.value.text.en.startswith(said)
    assert address in caught.value.text.zh


def test_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="pip install") as caught, connect_to_cluster("auto"):
        pass
    assert "[ray]" in caught.value.text.zh


def test_a_node_without_the_files_or_with_other_versions_refuses(folder: Path) -> None:
    shipment = ray_shipment.Shipment(
        plan=None,  # type: ignore[arg-type]
        python=sys.executable,
        environment={},
        cwd=str(folder),
        folder="/nowhere",
        files=b"",
        changed=(),
        needed=(str(folder), str(folder / "train.py")),
        versions=ray_shipment.versions(),
    )
    assert ray_shipment.unsuitable_node_reason(shipment, "10.0.0.2") is None
    other = msgspec.structs.replace(shipment, versions={**shipment.versions, "torch": "1.0"})
    refused = ray_shipment.unsuitable_node_reason(other, "10.0.0.2")
    assert refused is not None
    assert refused.en.startswith("Ray node 10.0.0.2 has torch ")
    (folder / "train.py").unlink()
    refused = ray_shipment.unsuitable_node_reason(shipment, "10.0.0.2")
    assert refused is not None
    assert refused.en.startswith(f"Ray node 10.0.0.2: {folder / 'train.py'} does not exist")


@pytest.mark.parametrize(
    ("cpus", "ranks", "share"),
    [([8.0, 8.0], 16, 1.0), ([2.0, 2.0], 5, 0.6666), ([1.0], 8, 0.125), ([64.0, 1.0], 512, 0.1267), ([0.0], 2, 0.0)],
)
def test_ranks_in_touch_all_fit_at_once(cpus: list[float], ranks: int, share: float) -> None:
    class Ray:
        @staticmethod
        def nodes() -> list[dict[str, Any]]:
            return [{"Alive": True, "Resources": {"CPU": cpu}} for cpu in cpus]

        @staticmethod
        def cluster_resources() -> dict[str, float]:
            return {"CPU": sum(cpus)}

        available_resources = cluster_resources

    assert _cpu_fraction_per_rank(Ray, ranks) == share
