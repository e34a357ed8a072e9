"""FSDP2's strategies, rehearsed for real: what the search learns of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_facts import model_in, request

from gonogo.trials.plan.candidates import Candidates
from gonogo.trials.plan.closed_form import fsdp_state_bytes
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.strategy import Family, Strategy


@pytest.mark.slow
def test_fsdp2_takes_what_it_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = model_in(tmp_path / "model", hidden_size=256, intermediate_size=1024, num_hidden_layers=4)
    asked = request(folder, "4xA100-80G", sharding="fsdp2")
    (tmp_path / "meter").mkdir()
    with Meter(asked, tmp_path / "meter", lambda done, of: None) as meter:
        candidates = Candidates(asked, meter.facts(), meter)
        states = fsdp_state_bytes(candidates.facts, 4)
        held = {}
        for family in (Family(3, fsdp=True), Family(3, fsdp=True, reshard=False), Family(3, "cpu", "cpu", fsdp=True)):
            choice = candidates.rehearse_full_depth(Strategy(family, False, 1, 2))
            assert choice is not None, candidates.failed
            assert 0 < choice.time.total < 10
            held[family] = choice.by_category
    kept, gathered, offloaded = held.values()
    for name in ("gradients", "optimizer"):
        assert kept[name] == pytest.approx(states[name], rel=0.02)
        assert offloaded.get(name, 0.0) < states[name] / 10
    of_model = 2 * candidates.facts.parameters
    assert kept["parameters"] < gathered["parameters"] == pytest.approx(states["parameters"] + of_model, rel=0.1)
