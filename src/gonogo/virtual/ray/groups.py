"""Placement groups, with Ray's own class and checks: their placement and readiness."""

from __future__ import annotations

import os
import sys
from typing import Any

from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.ray.cluster import Cluster
from gonogo.virtual.ray.resources import PlacementGroup


def replacements(
    ray: Any, cluster: Cluster, reference_class: type, ensure_connected: Any, current: Any
) -> dict[str, Any]:
    """Functions of ``ray.util.placement_group`` by name. ``current``: the placement group of the running process."""
    module: Any = sys.modules["ray.util.placement_group"]

    def placement_group(
        bundles: Any,
        strategy: Any = None,
        name: str = "",
        lifetime: Any = None,
        _soft_target_node_id: Any = None,
        bundle_label_selector: Any = None,
        topology_strategy: Any = None,
    ) -> Any:
        ensure_connected()
        strategy = strategy or "PACK"
        module.validate_placement_group(bundles, strategy, lifetime)
        made = module.PlacementGroup(ray.PlacementGroupID(os.urandom(18)), bundles)
        group = cluster.groups[made.id.hex()] = PlacementGroup(name, list(bundles), strategy)
        group.place(cluster.nodes)
        return made

    def ready_reference(handle: Any) -> Any:
        answer = reference_class()
        group = cluster.groups[handle.id.hex()]
        if group.placed:
            answer.answer.set(cluster.pack(handle))
        else:
            answer.answer.never = cluster.unschedulable_reason(group) or ""
            answer.answer.if_nobody_runs = lambda: "" if group.placed else cluster.infeasible_message(group)
            group.waiting.append(answer.answer)
        return answer

    def is_placed(group_id: Any, timeout_seconds: Any) -> bool:
        return cluster.groups[group_id.hex()].placed

    def remove_placement_group(placement_group: Any) -> None:
        cluster.groups[placement_group.id.hex()].remove()
        cluster.retry_pending()

    def placement_group_row(group_id: str) -> dict[str, Any]:
        group = cluster.groups[group_id]
        state = "REMOVED" if group.removed else "CREATED" if group.placed else "PENDING"
        nodes = {index: bundle.node.id if bundle.node else "" for index, bundle in enumerate(group.bundles)}
        return {
            "placement_group_id": group_id,
            "name": group.name,
            "bundles": {index: dict(bundle.wanted) for index, bundle in enumerate(group.bundles)},
            "bundles_to_node_id": nodes,
            "strategy": group.strategy,
            "state": state,
            "stats": {},
        }

    def placement_group_table(placement_group: Any = None) -> dict[str, Any]:
        if placement_group is not None:
            return placement_group_row(placement_group.id.hex())
        return {group_id: placement_group_row(group_id) for group_id in cluster.groups}

    def get_placement_group(placement_group_name: str) -> Any:
        for group_id, group in cluster.groups.items():
            if group.name == placement_group_name and not group.removed:
                return module.PlacementGroup(
                    ray.PlacementGroupID(bytes.fromhex(group_id)), [bundle.wanted for bundle in group.bundles]
                )
        raise ValueError(f"Failed to look up placement group with name: {placement_group_name}")

    return {
        "placement_group": placement_group,
        "_call_placement_group_ready_async": ready_reference,
        "_call_placement_group_ready": is_placed,
        "remove_placement_group": remove_placement_group,
        "placement_group_table": placement_group_table,
        "get_placement_group": get_placement_group,
        "get_current_placement_group": current,
    }


def install(patches: Patches, ray: Any, functions: dict[str, Any], cluster: Cluster) -> None:
    """Install the functions, also under their aliases in ``ray.util``."""
    module: Any = sys.modules["ray.util.placement_group"]
    for name, function in functions.items():
        if hasattr(module, name):
            patches.set(module, name, function)
        if name in vars(ray.util) and callable(vars(ray.util)[name]):
            patches.set(ray.util, name, function)
    patches.set(module.PlacementGroup, "ready", lambda self: functions["_call_placement_group_ready_async"](self))
    state = ray._private.state
    patches.set(
        type(state.state),
        "placement_group_table",
        lambda self, placement_group_id=None: functions["placement_group_table"](
            None if placement_group_id is None else _HasGroupId(placement_group_id)
        ),
    )


class _HasGroupId:
    """Carries a placement group's id in ``.id``."""

    def __init__(self, group_id: Any) -> None:
        self.id = group_id
