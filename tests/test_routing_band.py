"""The peak of a model with experts, as a band over what its router may do."""

from __future__ import annotations

import pytest

from gonogo.evidence.rehearsal.record import DeviceMemory
from gonogo.finding.as_run import Experts
from gonogo.finding.rehearsal import ModuleMemory
from gonogo.judge.routing import routing_band

_GIB = 1 << 30


def _device(total: int = 80) -> DeviceMemory:
    modules = (
        ModuleMemory("model.layers.*.mlp.experts.linear_fc1", {"parameters": 9 * _GIB, "activations": 3 * _GIB}, 2),
        ModuleMemory("model.layers.*.mlp", {"activations": _GIB}, 2),
        ModuleMemory("model.layers.*.self_attn", {"activations": 20 * _GIB}, 2),
        ModuleMemory("model.layers.*.mlp.shared_experts.up", {"activations": 5 * _GIB}, 2),
    )
    return DeviceMemory("cuda:0", 40 * _GIB, 44 * _GIB, 0, total * _GIB, "backward", 1, {}, modules=modules)


@pytest.mark.parametrize(
    ("experts", "most"),
    [
        (Experts(64, 4, 8), 8.0),  # eight local experts take all four of each token's
        (Experts(8, 4, 4), 2.0),  # two local ones take two of them
        (Experts(64, 4, 8, 1.25), 1.25),  # the rest is dropped
    ],
)
def test_as_many_tokens_as_can_come(experts: Experts, most: float) -> None:
    band = routing_band(_device(), experts)
    assert band is not None
    assert band.most_share == most
    assert (band.least_bytes, band.even_bytes) == (36 * _GIB, 40 * _GIB)
    assert band.most_bytes == 40 * _GIB + (most - 1) * 4 * _GIB
    assert band.fits_share == 1 + (80 - 44) / 4


def test_without_shared_experts_there_is_no_band() -> None:
    assert routing_band(_device(), Experts(64, 4, 1)) is None
    dense = DeviceMemory("cuda:0", _GIB, _GIB, 0, 80 * _GIB, "backward", 1, {})
    assert routing_band(dense, Experts(64, 4, 8)) is None


def test_what_does_not_fit_even_when_spread_evenly_has_a_share_below_one() -> None:
    band = routing_band(_device(total=42), Experts(64, 4, 8))
    assert band is not None
    assert band.fits_share == 0.5
