"""Processes that an actor's library starts by itself: an engine's workers, each with a process group and a GPU."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from gonogo.virtual.ray.cluster import Cluster, Place, Waiting
from gonogo.virtual.ray.process import Process

Unsupported = Callable[[str, str], BaseException]
_EACH, _BUNDLES = "VLLM_RAY_PER_WORKER_GPUS", "VLLM_RAY_BUNDLE_INDICES"
"""vLLM's variables: the share of a GPU that each worker takes, and the bundles that they are placed in."""


class WorkerProcess:
    """One of them; what is done in its :meth:`turn` is its own."""

    def __init__(self, cluster: Cluster, process: Process, device: torch.device) -> None:
        self._cluster = cluster
        self._process = process
        self.device = device

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The actor waits meanwhile."""
        with self._cluster.turns.as_process(self._process), torch.cuda.device(self.device):
            yield


def start(cluster: Cluster, name: str, count: int, backend: Any, unsupported: Unsupported) -> list[WorkerProcess]:
    """The workers of an engine of the actor whose turn it is. Raises ValueError in vLLM's words."""
    owner = cluster.machine.current
    assert owner is not None
    if backend == "ray":
        placed = _placed_by_ray(cluster, name, count, unsupported)
        made = [WorkerProcess(cluster, cluster.process(name, one, {}, hides=True), torch.device("cuda", 0))
                for one in placed]  # fmt: skip
    else:
        if torch.cuda.device_count() < count:
            raise unsupported(
                f"vLLM tensor_parallel_size={count}", f"this process sees {torch.cuda.device_count()} GPU(s): an "
                "engine over several nodes is not stood in for",
            )  # fmt: skip
        place = Place(cluster.nodes[owner.node], owner.gpus, lambda: None)
        variables = dict(os.environ)
        made = [WorkerProcess(cluster, cluster.process(name, place, variables, hides=False),
                              torch.device("cuda", rank)) for rank in range(count)]  # fmt: skip
    for rank, worker in enumerate(made):
        with worker.turn():
            dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29401", world_size=count, rank=rank)
    return made


def _placed_by_ray(cluster: Cluster, name: str, count: int, unsupported: Unsupported) -> list[Place]:
    """As vLLM's Ray executor places them: in the bundles of the actor's placement group."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    group = sys.modules["ray.util.placement_group"].get_current_placement_group()
    if group is None:
        raise unsupported("vLLM distributed_executor_backend='ray'", "outside a placement group")
    with_gpu = [index for index, bundle in enumerate(group.bundle_specs) if bundle.get("GPU")]
    if count > len(with_gpu):
        raise ValueError(
            "The number of required GPUs exceeds the total number of available GPUs in the placement group."
        )
    said = [int(one) for one in os.environ.get(_BUNDLES, "").split(",") if one.strip()]
    wanted = {"GPU": float(os.environ.get(_EACH) or 1.0)}
    places: list[Place] = []
    for bundle in (said or with_gpu)[:count]:
        strategy = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        cluster.queue(Waiting(name, wanted, strategy, places.append, lambda _: None))
    if len(places) < count:
        raise unsupported("vLLM's workers on Ray", f"{len(places)} of {count} find {wanted} free in their bundles")
    return places
