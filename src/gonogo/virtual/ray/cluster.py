"""The cluster of a rehearsal: nodes, processes, placement groups, and actors by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gonogo.finding import Text, translated
from gonogo.virtual.ray.process import ClusterDevices, RayProcess
from gonogo.virtual.ray.references import PendingResult
from gonogo.virtual.ray.resources import Bundle, PlacementGroup, RayNode
from gonogo.virtual.ray.sending import Sent, pack, unpack
from gonogo.virtual.ray.turns import TurnScheduler

JOB = "01000000"
_CPUS = translated(
    "Ray's nodes have as many CPUs as are requested"
)  # what this machine has says nothing of the one that trains


class RayPlacement:
    """What an actor or a task was given: where, and how to give it back."""

    def __init__(self, node: RayNode, gpus: tuple[int, ...], give_back: Callable[[], None], group: Any = None) -> None:
        self.node = node
        self.gpus = gpus
        self.give_back = give_back
        self.group = group


class Waiting:
    """Something that waits for resources: ``start`` is called with its place."""

    def __init__(
        self, what: str, wanted: dict[str, float], strategy: Any, start: Callable[[RayPlacement], None], fail: Any
    ) -> None:
        self.what = what
        self.wanted = wanted
        self.strategy = strategy
        self.start = start
        self.fail = fail
        """Called with why it will never be placed."""


class Cluster:
    """See the module."""

    def __init__(self, machine: ClusterDevices, nodes: int, product: str, assume: Callable[[Text], object]) -> None:
        self.machine = machine
        self.turns = TurnScheduler(machine.enter)
        self._count = nodes
        self._product = product
        self.assume = assume
        self.nodes: list[RayNode] = []
        self.joined = False
        self.namespace = ""
        self.environment: dict[str, str] = {}
        """What each new process finds: the driver's variables when Ray started, and the job's."""
        self.named: dict[tuple[str, str], Any] = {}
        self.groups: dict[str, PlacementGroup] = {}
        self.passed: tuple[type, ...] = ()
        """Types whose objects are handed over as they are."""
        self.driver: RayProcess | None = None
        self.names: dict[str, int] = {}
        """By name, how many processes there were."""
        self._numbers = 0
        self._waiting: list[Waiting] = []

    def start(
        self, cpus: float | None, gpus: int | None, others: dict[str, float], variables: dict[str, str], namespace: str
    ) -> None:
        """``ray.init``: the driver becomes a process of the cluster."""
        per_node = self.machine.per_node if gpus is None else gpus
        others = {**others, f"accelerator_type:{self._product}": 1.0} if per_node else dict(others)
        self.nodes = [RayNode(number, cpus, per_node, others) for number in range(self._count)]
        if cpus is None:
            self.assume(_CPUS)
        self.namespace = namespace
        self.environment = {**os.environ, **variables}
        if self.driver is None:
            self.driver = RayProcess(0, "driver", self.machine, dict(os.environ), 0, ())
            self.machine.look()
            self.driver.save(self.machine)
            self.machine.current = self.driver
            self.turns.main = self.driver
            self.turns.join(self.driver)
        self.joined = True

    def process(self, name: str, place: RayPlacement, variables: dict[str, str], *, hides: bool) -> RayProcess:
        """A new process there. ``hides``: Ray hides the GPUs that it was not given."""
        self._numbers += 1
        self.names[name] = self.names.get(name, 0) + 1
        environment = {**self.environment, **variables}
        if hides and not any(key.startswith("RAY_EXPERIMENTAL_NOSET_CUDA") for key in environment):
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu) for gpu in place.gpus)
        return RayProcess(self._numbers, name, self.machine, environment, place.node.number, place.gpus)

    def pack(self, value: Any) -> Sent:
        """A value as it is sent."""
        return pack(value, self.passed)

    def resolved(self, sent: Sent) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments as a process receives them: references among them are read."""
        args, kwargs = unpack(sent)

        def value(one: Any) -> Any:
            answer = getattr(one, "answer", None)
            return answer.read() if isinstance(answer, PendingResult) else one

        return tuple(value(one) for one in args), {name: value(one) for name, one in kwargs.items()}

    def queue(self, waiting: Waiting) -> None:
        """Place it now, or as soon as there is room."""
        if not self._place(waiting):
            self._waiting.append(waiting)

    def try_again(self) -> None:
        """Something was given back: groups first, then what waits for them or for nodes."""
        for group in self.groups.values():
            if not group.placed and not group.removed and group.place(self.nodes):
                for answer in group.waiting:
                    answer.set(self.pack(None))
                group.waiting = []
        waiting, self._waiting = self._waiting, []
        self._waiting = [one for one in waiting if not self._place(one)] + self._waiting

    def _place(self, waiting: Waiting) -> bool:
        found = self._bundle(waiting) if getattr(waiting.strategy, "placement_group", None) else self._node(waiting)
        if found is None:
            return False
        owner, node, group = found
        gpus = owner.take(waiting.wanted)

        def give_back() -> None:
            owner.give_back(waiting.wanted, gpus)
            self.try_again()

        waiting.start(RayPlacement(node, gpus, give_back, group))
        return True

    def _node(self, waiting: Waiting) -> tuple[Any, RayNode, Any] | None:
        wanted_id = getattr(waiting.strategy, "node_id", None)
        nodes = [node for node in self.nodes if wanted_id in (None, node.id)]
        if not nodes:
            waiting.fail(f"The node specified via NodeAffinitySchedulingStrategy doesn't exist: {wanted_id}")
            return None
        for node in nodes:
            if node.fits(waiting.wanted):
                return node, node, None
        if not any(node.could(waiting.wanted) for node in nodes):
            waiting.fail(f"{waiting.what}: no node has {shown(waiting.wanted)}; {self.summary()}")
        return None

    def _bundle(self, waiting: Waiting) -> tuple[Bundle, RayNode, Any] | None:
        handle = waiting.strategy.placement_group
        group = self.groups[handle.id.hex()]
        if not group.placed:
            if (why := self.why_never(group)) is not None:
                waiting.fail(why)
            return None
        index = getattr(waiting.strategy, "placement_group_bundle_index", -1)
        bundles = group.bundles if index is None or index < 0 else [group.bundles[index]]
        for bundle in bundles:
            if bundle.fits(waiting.wanted):
                assert bundle.node is not None
                return bundle, bundle.node, handle
        return None

    def why_never(self, group: PlacementGroup) -> str | None:
        """Why a placement group will never be placed, or None where it is or may be."""
        if group.placed:
            return None
        empty = [RayNode(n.number, n.total["CPU"], int(n.total.get("GPU", 0)), _others(n)) for n in self.nodes]
        trial = PlacementGroup(group.name, [bundle.wanted for bundle in group.bundles], group.strategy)
        return None if trial.place(empty) else self.waits_for_ever(group)

    def waits_for_ever(self, group: PlacementGroup) -> str:
        """What Ray's log never says of a placement group for which there is no room."""
        asked = [bundle.wanted for bundle in group.bundles]
        return (
            f"placement group {group.name or '(unnamed)'} is infeasible: {len(asked)} bundle(s) of "
            f"{shown(asked[0])}, {group.strategy}; {self.summary()}. Ray waits for it for ever"
        )

    def summary(self) -> str:
        """What the cluster has, for a message."""
        gpus = sum(int(node.total.get("GPU", 0)) for node in self.nodes)
        free = sum(node.free.get("GPU", 0.0) for node in self.nodes)
        return f"the cluster has {gpus} GPU(s) on {len(self.nodes)} node(s), {free:g} of them free"


def _others(node: RayNode) -> dict[str, float]:
    return {name: count for name, count in node.total.items() if name not in ("CPU", "GPU")}


def shown(wanted: dict[str, float]) -> str:
    """Resources as text: ``{"GPU": 1, "CPU": 2}``."""
    return "{" + ", ".join(f'"{name}": {count:g}' for name, count in wanted.items() if count) + "}"
