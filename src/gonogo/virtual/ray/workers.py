"""Processes that a library starts from an actor: an engine's workers, each with a process group and a GPU.

Their placement, and what is rejected, is based on vLLM 0.29.0 and 0.33.0 (vllm/v1/executor/ray_utils.py,
ray_executor.py and ray_executor_v2.py; vllm/config/parallel.py). As there, workers on Ray follow the order of the
bundles, on one node.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from gonogo.finding import translated
from gonogo.virtual.ray.cluster import Cluster, PendingPlacement, RayPlacement
from gonogo.virtual.ray.process import RayProcess
from gonogo.virtual.unsupported import Unsupported

_EACH, _BUNDLES = "VLLM_RAY_PER_WORKER_GPUS", "VLLM_RAY_BUNDLE_INDICES"
"""vLLM's variables for the share of a GPU that each worker takes, and the bundles in which they are placed."""


class WorkerProcess:
    """A worker process; code inside :meth:`turn` runs as that process."""

    def __init__(self, cluster: Cluster, process: RayProcess, device: torch.device) -> None:
        self._cluster = cluster
        self._process = process
        self.device = device

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run as the worker while the actor waits."""
        with self._cluster.turns.as_process(self._process), torch.cuda.device(self.device):
            yield


def start_engine_workers(
    cluster: Cluster, name: str, count: int, backend: Any, unsupported_error: Unsupported
) -> list[WorkerProcess]:
    """Start the workers of the current actor's engine. Raises ValueError with vLLM's messages.

    Without a ``backend``, vLLM uses Ray if an actor in a placement group needs several workers.
    """
    owner = cluster.machine.current
    assert owner is not None
    enough = torch.cuda.device_count() >= count
    if backend == "ray" or (backend is None and count > 1 and enough and _current_placement_group() is not None):
        placed = _ray_executor_bundles(cluster, name, count, unsupported_error)
        processes = [cluster.create_process(name, one, {}, hide_other_gpus=True) for one in placed]
        made = [WorkerProcess(cluster, process, torch.device("cuda", 0)) for process in processes]
    else:
        if not enough:
            seen = torch.cuda.device_count()
            raise unsupported_error(
                f"vLLM tensor_parallel_size={count}",
                translated(
                    "this process sees {seen} GPU(s): gonogo's stand-in does not support a multi-node engine"
                ).format(seen=seen),
            )
        place = RayPlacement(cluster.nodes[owner.node], owner.gpus, lambda: None)
        variables = dict(os.environ)
        made = [WorkerProcess(cluster, cluster.create_process(name, place, variables, hide_other_gpus=False),
                              torch.device("cuda", rank)) for rank in range(count)]  # fmt: skip
    for rank, worker in enumerate(made):
        with worker.turn():
            dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29401", world_size=count, rank=rank)
    return made


def _current_placement_group() -> Any:
    return sys.modules["ray.util.placement_group"].get_current_placement_group()


def _ray_executor_bundles(
    cluster: Cluster, name: str, count: int, unsupported_error: Unsupported
) -> list[RayPlacement]:
    """Place workers as vLLM's Ray executor does: in the bundles of the actor's placement group."""
    strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
    group = _current_placement_group()
    if group is None:
        raise unsupported_error(
            "vLLM distributed_executor_backend='ray'",
            translated(
                "the engine's actor is not in a placement group: vLLM would create one, which gonogo's stand-in "
                "does not support"
            ),
        )
    with_gpu = _bundles_with_gpu(group, count)
    bundles = [int(one) for one in os.environ.get(_BUNDLES, "").split(",") if one]
    if bundles:
        _check_indices(bundles, count)
    wanted = {"GPU": float(os.environ.get(_EACH) or 1.0)}
    places: list[RayPlacement] = []
    for bundle in (bundles or with_gpu)[:count]:
        strategy = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        cluster.place_or_queue(PendingPlacement(name, wanted, strategy, places.append, lambda _: None))
    if len(places) < count:
        raise unsupported_error(
            "vLLM's workers on Ray",
            translated(
                "only {there} of {count} engine workers find {wanted} free in their placement group's "
                "bundles: the engine would wait for the others"
            ).format(there=len(places), count=count, wanted=str(wanted)),
        )
    return places


def _bundles_with_gpu(group: Any, count: int) -> list[int]:
    """Indices of the bundles that have a GPU. Raises the errors of ``initialize_ray_cluster``."""
    with_gpu = [index for index, bundle in enumerate(group.bundle_specs) if bundle.get("GPU")]
    if any(bundle.get("GPU", 0) > 1 for bundle in group.bundle_specs):
        raise ValueError("Placement group bundle cannot have more than 1 GPU.")
    if count > len(with_gpu):
        raise ValueError(
            "The number of required GPUs exceeds the total number of available GPUs in the placement group. "
            f"Required number of devices: {count}. Total number of devices: {len(with_gpu)}."
        )
    return with_gpu


def _check_indices(bundle_indices: list[int], world_size: int) -> None:
    """Raise the errors of ``get_bundles_for_indices``."""
    assert len(bundle_indices) == world_size, (
        f"{_BUNDLES} must have the same size as the world size, but got {bundle_indices=} and {world_size=}"
    )
    assert len(set(bundle_indices)) == len(bundle_indices), (
        f"{_BUNDLES} cannot have duplicate values, but got {bundle_indices=}"
    )
