"""FSDP2's strategies, rehearsed for real: what the search learns of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from plan_facts import model_in, request

from gonogo.trials.plan.candidates import Candidates
from gonogo.trials.plan.closed_form import fsdp_state_bytes
from gonogo.trials.plan.measure import Meter
from gonogo.trials.plan.strategy import Family, Strategy
from gonogo.virtual.measuring.jobs import Measured


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


@pytest.mark.slow
def test_context_parallelism_divides_the_work_and_replicas_hold_whole_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate.parallelism_config")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 3, "max_position_embeddings": 8192}
    asked = request(model_in(tmp_path / "model", **sizes), "2xA100-80G", 2, sharding="fsdp2", seq_len=8192)
    plain = Family(3, fsdp=True)
    (tmp_path / "meter").mkdir()
    found = {}
    with Meter(asked, tmp_path / "meter", lambda done, of: None) as meter:
        candidates = Candidates(asked, meter.facts(), meter)
        families = (plain, replace(plain, context=2), replace(plain, context=4), replace(plain, replicas=2))
        for family in families:
            (answer,) = meter.measure([candidates.measurement_of(Strategy(family, True, 1, 2), 0)])
            assert isinstance(answer, Measured), answer
            found[family] = answer
    work = [found[family].work for family in families]
    flops = [sum(part.flops for part in parts if part.phase == "forward") for parts in work]
    assert flops[3] == flops[0]
    # A ring leaves out the half of the scores that the mask hides, but for those of a rank's own keys.
    assert flops[0] / 4 < flops[1] < flops[0] / 2
    assert flops[0] / 8 < flops[2] < flops[0] / 4
    every = [{key for part in parts for key in part.collectives} for parts in work]
    assert any(key.startswith("_allgather_base_") and key.endswith(" async") for key in every[0])  # FSDP's own stream
    keys = [{key.removesuffix(" async") for key in names} for names in every]
    assert not any(key.endswith(" of 2") for key in keys[0])
    assert {"_allgather_base_ of 2", "alltoall_base_ of 2"} <= keys[1]  # keys and values, and their gradients
    assert "_reduce_scatter_base_ of 2" in keys[3]
    assert "allreduce_ of 2 across nodes" in keys[3]
    held = [found[family].peaks["backward"].by_category["optimizer"] for family in families]
    assert held[:3] == [pytest.approx(held[0], rel=0.02)] * 3
    assert held[3] == pytest.approx(2 * held[0], rel=0.02)


@pytest.mark.slow
def test_ulysses_divides_the_work_and_computes_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate.parallelism_config")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 3, "max_position_embeddings": 8192}
    asked = request(model_in(tmp_path / "model", **sizes), "2xA100-80G", 2, seq_len=8192)
    (tmp_path / "meter").mkdir()
    found = []
    with Meter(asked, tmp_path / "meter", lambda done, of: None) as meter:
        candidates = Candidates(asked, meter.facts(), meter)
        if not candidates.facts.ulysses_sizes:
            pytest.skip("these releases of transformers, accelerate and DeepSpeed have no Ulysses")
        assert candidates.facts.ulysses_sizes == (2, 4)  # 4 heads, 2 of keys and values
        for context in (1, 2, 4):
            cell = candidates.measurement_of(Strategy(Family(3, context=context), True, 1, 2), 0)
            (answer,) = meter.measure([cell])
            assert isinstance(answer, Measured), answer
            found.append(answer)
    flops = [sum(part.flops for part in answer.work if part.phase == "forward") for answer in found]
    assert flops[1:] == [pytest.approx(flops[0] / 2, rel=0.01), pytest.approx(flops[0] / 4, rel=0.01)]
    keys = [{key for part in answer.work for key in part.collectives} for answer in found]
    assert not any(key.startswith("alltoall") for key in keys[0])
    assert [key for key in keys[2] if "alltoall" in key] == ["alltoall_base_ of 4 across nodes"]
    # The loss's temporary fp32 tensors are divided as well.
    temporary = [answer.peaks["backward"].by_category["temporary"] for answer in found]
    assert temporary[1] < 0.6 * temporary[0]
    assert temporary[2] < 0.3 * temporary[0]


@pytest.mark.slow
def test_transformers_spreads_the_experts_and_splits_the_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = model_in(
        tmp_path / "model", architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=256,
        moe_intermediate_size=128, num_experts=12, num_experts_per_tok=2, decoder_sparse_step=1, head_dim=64,
        num_hidden_layers=3,
    )  # fmt: skip
    asked = request(folder, "4xH100-80G", sharding="any", seq_len=512)
    plain = Family(3, fsdp=True)
    (tmp_path / "meter").mkdir()
    found = []
    with Meter(asked, tmp_path / "meter", lambda done, of: None) as meter:
        candidates = Candidates(asked, meter.facts(), meter)
        if not candidates.facts.expert_sizes:
            pytest.skip("this release of transformers has no expert parallelism with FSDP2")
        assert candidates.facts.expert_sizes == (2, 4)  # of 12 experts
        assert candidates.facts.tensor_sizes == (2,)  # 2 key and value heads
        assert candidates.facts.expert_parameters == 3 * 12 * 3 * 256 * 128
        assert {group.family.experts for group in candidates.groups()} == {1, 4}  # as many as a node has room for
        for family in (plain, replace(plain, experts=4), replace(plain, tensor=2)):
            (answer,) = meter.measure([candidates.measurement_of(Strategy(family, False, 1, 2), 0)])
            assert isinstance(answer, Measured), answer
            assert answer.record.outcome == "completed", answer.record.failure
            found.append(answer)
    keys = [{key.removesuffix(" async") for part in answer.work for key in part.collectives} for answer in found]
    assert not any(key.startswith("alltoall") for key in keys[0] | keys[2])
    assert any(key.startswith("alltoall") for key in keys[1])  # tokens to their experts, and back
    gathered = [_sent(answer, "_allgather_base_") for answer in found]
    assert gathered[1] < gathered[0] / 2  # the experts' weights stay where they are
    held = [answer.peaks["step"].by_category for answer in found]
    for name in ("parameters", "optimizer"):  # states are shared by all four in each
        assert held[1][name] == pytest.approx(held[0][name], rel=0.05), name
        assert held[2][name] == pytest.approx(held[0][name], rel=0.05), name
    assert [answer.record.as_run.tensor_ranks for answer in found if answer.record.as_run] == [1, 1, 2]


def _sent(answer: Measured, operator: str) -> float:
    return sum(sent for part in answer.work for key, (_, sent) in part.collectives.items() if key.startswith(operator))
