"""The cluster of a rehearsal: nodes, processes, placement groups, and named actors."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.ray.object_transfer import PickledObject, pack, unpack
from gonogo.virtual.ray.process import ClusterDevices, RayProcess
from gonogo.virtual.ray.references import PendingResult
from gonogo.virtual.ray.resources import Bundle, PlacementGroup, RayNode
from gonogo.virtual.ray.turns import TurnScheduler
from gonogo.virtual.values.assumptions import Assume

JOB_ID = "01000000"
_CPU_ASSUMPTION = translated(
    "Ray's nodes have as many CPUs as are requested"
)  # this machine's CPUs say nothing about the cluster's


class RayPlacement:
    """Where an actor or task was placed, and how to release its resources."""

    def __init__(self, node: RayNode, gpus: tuple[int, ...], release: Callable[[], None], group: Any = None) -> None:
        self.node = node
        self.gpus = gpus
        self.give_back = release
        self.group = group


class PendingPlacement:
    """A request that waits for resources; ``start`` is called once it is placed."""

    def __init__(
        self,
        waiting_for: str,
        resources: dict[str, float],
        strategy: Any,
        start: Callable[[RayPlacement], None],
        on_failure: Any,
    ) -> None:
        self.what = waiting_for
        self.wanted = resources
        self.strategy = strategy
        self.start = start
        self.fail = on_failure
        """Called with the reason if the request can never be placed."""


class Cluster:
    """Nodes, processes, placement groups and named actors of one rehearsal."""

    def __init__(self, cluster_devices: ClusterDevices, nodes: int, accelerator_name: str, assume: Assume) -> None:
        self.machine = cluster_devices
        self.turns = TurnScheduler(cluster_devices.switch_to)
        self._count = nodes
        self._product = accelerator_name
        self.assume = assume
        self.nodes: list[RayNode] = []
        self.joined = False
        self.namespace = ""
        self.environment: dict[str, str] = {}
        """The environment of each new process: the driver's variables when Ray was started, and the job's."""
        self.named: dict[tuple[str, str], Any] = {}
        self.groups: dict[str, PlacementGroup] = {}
        self.passed: tuple[type, ...] = ()
        """Types whose objects are passed by reference."""
        self.driver: RayProcess | None = None
        self.names: dict[str, int] = {}
        """Number of processes by name."""
        self._numbers = 0
        self._waiting: list[PendingPlacement] = []

    def start(
        self,
        cpus: float | None,
        gpus: int | None,
        custom_resources: dict[str, float],
        variables: dict[str, str],
        namespace: str,
    ) -> None:
        """``ray.init``: make the driver a process of the cluster."""
        per_node = self.machine.per_node if gpus is None else gpus
        custom_resources = (
            {**custom_resources, f"accelerator_type:{self._product}": 1.0} if per_node else dict(custom_resources)
        )
        self.nodes = [RayNode(number, cpus, per_node, custom_resources) for number in range(self._count)]
        if cpus is None:
            self.assume(_CPU_ASSUMPTION, "cluster")
        self.namespace = namespace
        self.environment = {**os.environ, **variables}
        if self.driver is None:
            self.driver = RayProcess(0, "driver", self.machine, dict(os.environ), 0, ())
            self.machine.register_new_modules()
            self.driver.save(self.machine)
            self.machine.current = self.driver
            self.turns.main = self.driver
            self.turns.join(self.driver)
        self.joined = True

    def create_process(
        self, name: str, place: RayPlacement, variables: dict[str, str], *, hide_other_gpus: bool
    ) -> RayProcess:
        """Create a process at ``place``. ``hide_other_gpus``: set CUDA_VISIBLE_DEVICES to the assigned GPUs, as Ray
        does."""
        self._numbers += 1
        self.names[name] = self.names.get(name, 0) + 1
        environment = {**self.environment, **variables}
        if hide_other_gpus and not any(key.startswith("RAY_EXPERIMENTAL_NOSET_CUDA") for key in environment):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in place.gpus)
        return RayProcess(self._numbers, name, self.machine, environment, place.node.number, place.gpus)

    def pack(self, value: Any) -> PickledObject:
        """Serialize a value for another process."""
        return pack(value, self.passed)

    def resolve_arguments(self, packed_arguments: PickledObject) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as the receiving process sees them, with references replaced by their values."""
        args, kwargs = unpack(packed_arguments)

        def resolve_reference(value: Any) -> Any:
            answer = getattr(value, "answer", None)
            return answer.receive_copy() if isinstance(answer, PendingResult) else value

        return tuple(resolve_reference(one) for one in args), {
            name: resolve_reference(one) for name, one in kwargs.items()
        }

    def place_or_queue(self, request: PendingPlacement) -> None:
        """Place the request now, or queue it until there is room."""
        if not self._try_to_place(request):
            self._waiting.append(request)

    def retry_pending(self) -> None:
        """Retry after resources were released: first placement groups, then requests that wait for them or for
        nodes."""
        for group in self.groups.values():
            if not group.placed and not group.removed and group.place(self.nodes):
                for answer in group.waiting:
                    answer.set(self.pack(None))
                group.waiting = []
        waiting, self._waiting = self._waiting, []
        self._waiting = [one for one in waiting if not self._try_to_place(one)] + self._waiting

    def _try_to_place(self, request: PendingPlacement) -> bool:
        found = (
            self._find_bundle(request)
            if getattr(request.strategy, "placement_group", None)
            else self._find_node(request)
        )
        if found is None:
            return False
        owner, node, group = found
        gpus = owner.reserve(request.wanted)

        def release_resources() -> None:
            owner.release(request.wanted, gpus)
            self.retry_pending()

        request.start(RayPlacement(node, gpus, release_resources, group))
        return True

    def _find_node(self, request: PendingPlacement) -> tuple[Any, RayNode, Any] | None:
        wanted_id = getattr(request.strategy, "node_id", None)
        nodes = [node for node in self.nodes if wanted_id in (None, node.id)]
        if not nodes:
            request.fail(f"The node specified via NodeAffinitySchedulingStrategy doesn't exist: {wanted_id}")
            return None
        for node in nodes:
            if node.has_free(request.wanted):
                return node, node, None
        if not any(node.has_capacity_for(request.wanted) for node in nodes):
            request.fail(f"{request.what}: no node has {format_resources(request.wanted)}; {self.summary()}")
        return None

    def _find_bundle(self, request: PendingPlacement) -> tuple[Bundle, RayNode, Any] | None:
        handle = request.strategy.placement_group
        group = self.groups[handle.id.hex()]
        if not group.placed:
            if (why := self.unschedulable_reason(group)) is not None:
                request.fail(why)
            return None
        index = getattr(request.strategy, "placement_group_bundle_index", -1)
        bundles = group.bundles if index is None or index < 0 else [group.bundles[index]]
        for bundle in bundles:
            if bundle.has_free(request.wanted):
                assert bundle.node is not None
                return bundle, bundle.node, handle
        return None

    def unschedulable_reason(self, group: PlacementGroup) -> str | None:
        """Why a placement group can never be placed, or None if it already is or can be."""
        if group.placed:
            return None
        empty = [
            RayNode(n.number, n.total["CPU"], int(n.total.get("GPU", 0)), _custom_resources(n)) for n in self.nodes
        ]
        trial = PlacementGroup(group.name, [bundle.wanted for bundle in group.bundles], group.strategy)
        return None if trial.place(empty) else self.infeasible_message(group)

    def infeasible_message(self, group: PlacementGroup) -> str:
        """An explanation that Ray's log doesn't give: why there is no room for the placement group."""
        asked = [bundle.wanted for bundle in group.bundles]
        return (
            f"placement group {group.name or '(unnamed)'} is infeasible: {len(asked)} bundle(s) of "
            f"{format_resources(asked[0])}, {group.strategy}; {self.summary()}. Ray waits for it for ever"
        )

    def summary(self) -> str:
        """The cluster's resources as text, for error messages."""
        gpus = sum(int(node.total.get("GPU", 0)) for node in self.nodes)
        free = sum(node.free.get("GPU", 0.0) for node in self.nodes)
        return f"the cluster has {gpus} GPU(s) on {len(self.nodes)} node(s), {free:g} of them free"


def _custom_resources(node: RayNode) -> dict[str, float]:
    return {name: count for name, count in node.total.items() if name not in ("CPU", "GPU")}


def format_resources(resources: dict[str, float]) -> str:
    """Resources as text: ``{"GPU": 1, "CPU": 2}``."""
    return "{" + ", ".join(f'"{name}": {count:g}' for name, count in resources.items() if count) + "}"
