"""A rank's memory for any routing of a mixture of experts: the peak as a range."""

from __future__ import annotations

from gonogo.evidence.rehearsal.record import DeviceMemory
from gonogo.finding.as_run import Experts
from gonogo.finding.rehearsal import RoutingBand

_TOKEN_DEPENDENT_CATEGORIES = ("activations", "temporary")


def routing_band(device: DeviceMemory, experts: Experts) -> RoutingBand | None:
    """How far routing can move a rank's peak; None if every rank has all experts or the peak has no such part.

    The part that grows with a rank's tokens is the activations and temporary tensors at the peak of its experts, and
    of the layers that contain them.
    """
    of_tokens = _token_dependent_bytes(device)
    if experts.most <= 1 or not of_tokens:
        return None
    even = device.peak_allocated_bytes
    room = device.total_bytes - device.allowance_bytes - device.peak_reserved_bytes
    return RoutingBand(
        experts=experts.count,
        chosen=experts.chosen,
        expert_parallel=experts.expert_parallel,
        least_bytes=even - of_tokens,
        even_bytes=even,
        most_bytes=even + round(of_tokens * (experts.most - 1)),
        most_share=round(experts.most, 2),
        fits_share=round(max(1 + room / of_tokens, 0.0), 2),
    )


def _token_dependent_bytes(device: DeviceMemory) -> int:
    owners = {one.module.partition(".experts")[0] for one in device.modules if _is_expert_module(one.module)}
    return sum(
        one.by_category.get(category, 0)
        for one in device.modules
        if _is_expert_module(one.module) or one.module in owners
        for category in _TOKEN_DEPENDENT_CATEGORIES
    )


def _is_expert_module(path: str) -> bool:
    return "experts" in path.split(".")
