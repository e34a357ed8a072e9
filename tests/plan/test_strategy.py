"""What can be chosen, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_facts import SEVEN_BILLION, request

from gonogo.evidence.environment.hardware import all_accelerators, find_accelerator
from gonogo.trials.plan.closed_form import estimate_memory
from gonogo.trials.plan.launch_files.arguments import training_arguments
from gonogo.trials.plan.roofline import collective_seconds, step_time
from gonogo.trials.plan.strategy import (
    Family,
    Strategy,
    deepspeed_config,
    distributed_config,
    launch_environment,
    micro_batches,
    parallelism_config,
    strategy_families,
)
from gonogo.virtual.tracing.operator_time import operator_seconds


def test_micro_batches_divide_a_ranks_share() -> None:
    assert micro_batches(64, 8) == (1, 2, 4, 8)
    assert micro_batches(24, 8) == (1, 3)
    assert micro_batches(10, 8) == ()


def test_one_gpu_divides_nothing() -> None:
    assert [family for family in strategy_families(1, nvme=False) if family.optimizer == "gpu"] == [Family(0)]


def test_nvme_only_where_there_is_some() -> None:
    assert not any("nvme" in (family.optimizer, family.parameters) for family in strategy_families(8, nvme=False))
    assert any(family.optimizer == "nvme" for family in strategy_families(8, nvme=True))


def test_fsdp_is_tried_where_there_are_several_gpus() -> None:
    found = [family for family in strategy_families(8, nvme=True, sharding="any") if family.fsdp]
    assert [(family.reshard, family.optimizer, family.parameters) for family in found] == [
        (True, "gpu", "gpu"), (False, "gpu", "gpu"), (True, "cpu", "cpu"),
    ]  # fmt: skip
    assert not any(family.small_buckets for family in found)
    assert list(strategy_families(8, nvme=True, sharding="fsdp2")) == found
    assert not any(family.fsdp for family in strategy_families(1, nvme=True, sharding="any"))
    assert not any(family.fsdp for family in strategy_families(8, nvme=True, sharding="zero"))


def test_replicas_are_tried_on_several_nodes_and_split_sequences_where_they_can_be_split() -> None:
    found = list(strategy_families(32, nvme=False, sharding="fsdp2", nodes=4, context_sizes=(2, 4)))
    assert [family.replicas for family in found] == [4, 4, 2, 2, 1, 1, 1, 1, 1]
    assert [family.context for family in found] == [1, 1, 1, 1, 1, 1, 2, 4, 1]
    hybrid = Strategy(found[0], True, 1, 2)
    assert parallelism_config(hybrid, 32) == {"dp_replicate_size": 4, "dp_shard_size": 8}
    assert found[0].sharding_ranks(32) == 8
    assert [family.data_ranks(32) for family in found[-3:]] == [16, 8, 32]
    plain, split = (
        estimate_memory(SEVEN_BILLION, Strategy(family, True, 1, 2), world_size=32, seq_len=4096).by_category
        for family in (found[4], found[6])
    )
    assert split["activations"] == plain["activations"] / 2
    assert split["optimizer"] == plain["optimizer"]


def test_ulysses_is_tried_by_deepspeed_where_heads_can_be_split() -> None:
    assert not any(family.context > 1 for family in strategy_families(8, nvme=False, context_sizes=(2, 4)))
    found = [family for family in strategy_families(8, nvme=False, ulysses_sizes=(2, 4)) if family.context > 1]
    assert not any(family.fsdp for family in found)
    assert {(family.zero, family.context) for family in found} == {(2, 2), (2, 4), (3, 2), (3, 4)}
    strategy = Strategy(Family(3, context=4), True, 2, 3)
    assert strategy.label.en == "ZeRO-3, Ulysses over 4 GPUs, checkpointing"
    assert launch_environment(strategy, 8) == {
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2",
        "PARALLELISM_CONFIG_SP_SIZE": "4",
        "PARALLELISM_CONFIG_SP_BACKEND": "deepspeed",
        "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION": "sdpa",
    }
    assert launch_environment(Strategy(Family(3), True, 2, 3), 8) == {}
    assert "train_batch_size" not in deepspeed_config(strategy, world_size=8)


def test_what_transformers_shards_itself_is_of_the_trainer_alone() -> None:
    sizes = {"tensor_sizes": (2, 4), "expert_sizes": (8,)}
    assert not any(family.is_native for family in strategy_families(8, nvme=False, **sizes))  # ZeRO alone
    small = strategy_families(4, nvme=False, sharding="fsdp2", tensor_sizes=(2, 4))
    assert {family.tensor for family in small} == {1, 2}  # with 4, FSDP2 would have nothing to shard
    every = strategy_families(16, nvme=False, sharding="any", nodes=2, **sizes)
    found = [family for family in every if family.is_native]
    assert {(family.replicas, family.tensor, family.experts) for family in found} == {
        (2, 1, 8), (1, 1, 8), (1, 2, 1), (1, 4, 1),
    }  # fmt: skip
    experts, tensor = Strategy(found[0], True, 1, 2), Strategy(found[-1], False, 1, 1)
    assert experts.label.en == "FSDP2, 2 replicas (HSDP), experts spread over 8 GPUs (EP), checkpointing"
    assert distributed_config(experts, 16) == {
        "dp_replicate_size": 2, "ep_size": 8, "fsdp_size": 8, "fsdp_mixed_precision": True,
    }  # fmt: skip
    assert distributed_config(tensor, 16) == {"tp_size": 4, "fsdp_size": 4, "fsdp_mixed_precision": True}
    assert [one.family.data_ranks(16) for one in (experts, tensor)] == [16, 4]
    assert [launch_environment(one, 16) for one in (experts, tensor)] == [{}, {}]
    hosts = [
        estimate_memory(SEVEN_BILLION, one, world_size=16, seq_len=4096).host
        for one in (experts, tensor, Strategy(Family(3, fsdp=True), True, 1, 2))
    ]
    assert hosts[:2] == [0.0, 0.0]
    assert hosts[2] > 0
    assert distributed_config(Strategy(Family(3, fsdp=True, context=2), True, 1, 1), 16) == {}


def test_fsdp_shards_what_zero_3_does_and_keeps_trained_weights_in_fp32() -> None:
    def states(family: Family) -> dict[str, float]:
        strategy = Strategy(family, True, 1, 2)
        return estimate_memory(SEVEN_BILLION, strategy, world_size=8, seq_len=0).by_category

    of_zero, of_fsdp = states(Family(3)), states(Family(3, fsdp=True))
    names = ("parameters", "gradients", "optimizer")
    assert sum(of_fsdp[name] for name in names) == pytest.approx(sum(of_zero[name] for name in names))
    assert of_fsdp["parameters"] == 2 * of_zero["parameters"]
    kept = states(Family(3, fsdp=True, reshard=False))["communication"]
    assert kept == 2 * SEVEN_BILLION.parameters > of_fsdp["communication"]


def test_whole_gradients_are_not_kept_over_a_step_of_fsdp() -> None:
    asked = request(Path("model"))
    for accumulation in (1, 4):
        arguments = training_arguments(Strategy(Family(3, fsdp=True), False, 1, accumulation), asked)
        assert ("accelerator_config" in arguments) == (accumulation > 1)


@pytest.mark.parametrize("family", list(strategy_families(8, nvme=True)))
def test_the_three_sizes_of_a_batch_agree(family: Family) -> None:
    config = deepspeed_config(Strategy(family, True, 2, 4), world_size=8)
    assert config["train_batch_size"] == 64
    zero = config["zero_optimization"]
    assert zero["stage"] == family.zero
    assert ("offload_optimizer" in zero, "offload_param" in zero) == (
        family.optimizer != "gpu",
        family.parameters != "gpu",
    )


def test_every_accelerator_has_its_speed() -> None:
    for accelerator in all_accelerators():
        assert accelerator.speed is not None, accelerator.name
        assert accelerator.speed.source


def test_an_operator_takes_the_longer_of_computing_and_moving() -> None:
    speed = find_accelerator("A100-80G").speed
    assert speed is not None
    assert operator_seconds(10**13, 1, speed) == pytest.approx(10**13 / (312e12 * 0.6))
    assert operator_seconds(1, 10**10, speed) == pytest.approx(10**10 / (2039e9 * 0.8))


def test_an_all_reduce_moves_twice_what_a_reduce_scatter_does() -> None:
    assert collective_seconds("allreduce_", 1 << 30, 8, 300e9) == pytest.approx(
        2 * collective_seconds("_reduce_scatter_base_", 1 << 30, 8, 300e9)
    )
    assert collective_seconds("_allgather_base_", 1 << 30, 1, 300e9) == 0


def test_the_optimizer_on_the_host_comes_after_the_rest() -> None:
    speed = find_accelerator("A100-80G").speed
    assert speed is not None
    shape = {"compute": 2.0, "communication": 1.0, "to_host_bytes": 0.0, "from_host_bytes": 0.0,
             "nvme_parameters": 0.0, "ranks_per_node": 8, "nvme_drive_count": 1, "speed": speed}  # fmt: skip
    without = step_time(host_parameters=0.0, **shape)  # type: ignore[arg-type]
    offloaded = step_time(host_parameters=1e9, **shape)  # type: ignore[arg-type]
    assert without.total == 2.0
    assert offloaded.total == pytest.approx(2.0 + 8e9 * 28 / 300e9)
    assert (without.limit, offloaded.limit) == ("compute", "compute")
