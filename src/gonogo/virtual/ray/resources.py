"""Nodes, their resources, and placement groups: Ray's accounting of CPUs and GPUs."""

from __future__ import annotations

from typing import Any

UNLIMITED_CPUS = 4096.0
"""CPUs of a node if their number is unspecified."""


class RayNode:
    """One node: the free share of each GPU by number, and all other resources by name."""

    def __init__(self, number: int, cpus: float | None, gpus: int, custom_resources: dict[str, float]) -> None:
        self.number = number
        self.id = f"{number + 1:056x}"
        self.total = {"CPU": UNLIMITED_CPUS if cpus is None else float(cpus), "GPU": float(gpus), **custom_resources}
        if not gpus:
            del self.total["GPU"]
        self.free = dict(self.total)
        self.gpus = dict.fromkeys(range(gpus), 1.0)

    def has_free(self, resources: dict[str, float]) -> bool:
        """True if that much is free."""
        return all(self.free.get(name, 0.0) + 1e-6 >= count for name, count in resources.items() if count)

    def has_capacity_for(self, resources: dict[str, float]) -> bool:
        """True if the node has that much in total."""
        return all(self.total.get(name, 0.0) + 1e-6 >= count for name, count in resources.items() if count)

    def reserve(self, resources: dict[str, float]) -> tuple[int, ...]:
        """Reserve the resources; returns the assigned GPUs."""
        for name, count in resources.items():
            if count:
                self.free[name] = self.free.get(name, 0.0) - count
        return take_gpus(self.gpus, resources.get("GPU", 0.0))

    def release(self, resources: dict[str, float], gpus: tuple[int, ...]) -> None:
        """Release the resources."""
        for name, count in resources.items():
            if count:
                self.free[name] = self.free.get(name, 0.0) + count
        for gpu in gpus:
            self.gpus[gpu] = min(1.0, self.gpus[gpu] + resources["GPU"] / len(gpus))


def take_gpus(free_shares: dict[int, float], count: float) -> tuple[int, ...]:
    """Reserve whole GPUs, or a share of one, lowest numbers first."""
    if not count:
        return ()
    share, several = (1.0, int(count)) if count >= 1 else (count, 1)
    found = [gpu for gpu, left in free_shares.items() if left + 1e-6 >= share][:several]
    for gpu in found:
        free_shares[gpu] -= share
    return tuple(found)


class Bundle:
    """One bundle of a placement group: its node, and its free resources."""

    def __init__(self, resources: dict[str, float]) -> None:
        self.wanted = resources
        self.node: RayNode | None = None
        self.gpus: tuple[int, ...] = ()
        self.free = dict(resources)
        self.free_gpus: dict[int, float] = {}

    def place(self, node: RayNode) -> None:
        """Reserve the bundle on a node."""
        self.node, self.gpus = node, node.reserve(self.wanted)
        share = min(1.0, self.wanted.get("GPU", 0.0)) if self.gpus else 0.0
        self.free_gpus = dict.fromkeys(self.gpus, share)

    def has_free(self, resources: dict[str, float]) -> bool:
        """True if that much of the bundle is free."""
        return all(self.free.get(name, 0.0) + 1e-6 >= count for name, count in resources.items() if count)

    def reserve(self, resources: dict[str, float]) -> tuple[int, ...]:
        """Reserve part of the bundle; returns the assigned GPUs."""
        for name, count in resources.items():
            if count:
                self.free[name] -= count
        return take_gpus(self.free_gpus, resources.get("GPU", 0.0))

    def release(self, resources: dict[str, float], gpus: tuple[int, ...]) -> None:
        """Release the resources."""
        for name, count in resources.items():
            if count:
                self.free[name] += count
        for gpu in gpus:
            self.free_gpus[gpu] += min(1.0, resources["GPU"])


class PlacementGroup:
    """A placement group's bundles."""

    def __init__(self, name: str, bundles: list[dict[str, float]], strategy: str) -> None:
        self.name = name
        self.strategy = strategy or "PACK"
        self.bundles = [Bundle(dict(bundle)) for bundle in bundles]
        self.placed = False
        self.removed = False
        self.waiting: list[Any] = []

    def place(self, nodes: list[RayNode]) -> bool:
        """Reserve all bundles at once according to the strategy; returns False if they don't fit now."""
        chosen: list[RayNode] | None = None
        if self.strategy == "STRICT_PACK":
            whole = sum_resources([bundle.wanted for bundle in self.bundles])
            chosen = next(([node] * len(self.bundles) for node in nodes if node.has_free(whole)), None)
        else:
            chosen = self._assign_nodes(nodes)
        if chosen is None:
            return False
        for bundle, node in zip(self.bundles, chosen, strict=True):
            bundle.place(node)
        self.placed = True
        return True

    def _assign_nodes(self, nodes: list[RayNode]) -> list[RayNode] | None:
        free = {node.number: dict(node.free) for node in nodes}
        used: set[int] = set()
        chosen = []
        for bundle in self.bundles:
            order = list(nodes)
            if "SPREAD" in self.strategy:
                order.sort(key=lambda node: node.number in used)
            for node in order:
                if self.strategy == "STRICT_SPREAD" and node.number in used:
                    continue
                left = free[node.number]
                if all(left.get(name, 0.0) + 1e-6 >= count for name, count in bundle.wanted.items() if count):
                    for name, count in bundle.wanted.items():
                        left[name] = left.get(name, 0.0) - count
                    used.add(node.number)
                    chosen.append(node)
                    break
            else:
                return None
        return chosen

    def remove(self) -> None:
        """Release all bundles."""
        for bundle in self.bundles if self.placed else ():
            assert bundle.node is not None
            bundle.node.release(bundle.wanted, bundle.gpus)
        self.placed, self.removed = False, True


def sum_resources(resource_dicts: list[dict[str, float]]) -> dict[str, float]:
    """The amounts of all of them, by resource."""
    total: dict[str, float] = {}
    for one in resource_dicts:
        for name, count in one.items():
            total[name] = total.get(name, 0.0) + count
    return total
