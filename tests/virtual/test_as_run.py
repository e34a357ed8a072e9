"""What was run, as seen; and whose the states are: under ZeRO, FSDP and plain optimizers, all in one go."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import rehearse_all
from virtual.strategies import TRAINER

from gonogo.evidence.rehearsal.record import DeviceMemory, HostMemory, RankRecord
from gonogo.finding.as_run import AsRun, Recomputed

WORLD = 8
BUCKETS = 'zero={"reduce_bucket_size": 100_000, "allgather_bucket_size": 100_000}'
"""Small ones, so that the peak is one of states, not of two buckets of 500 million elements."""

ON_DEVICE = "with torch.device('cuda'):\n    built = model()\n"
"""Built there, so that the host's peak is not that of the model before it is moved."""

FSDP2 = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(8)))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(2):
    model(torch.randn(1, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
"""

PROGRAMS = {
    "zero-1": f"train(model(), zero(1, {BUCKETS}))",
    "zero-2": f"train(model(), zero(2, {BUCKETS}), gradient_accumulation_steps=2)",
    "zero-2 offload": f"{ON_DEVICE}train(built, zero(2, optimizer='cpu', {BUCKETS}), gradient_accumulation_steps=2)",
    "zero-3": f"train(model(), zero(3, {BUCKETS}), gradient_checkpointing=True)",
    "zero-3 offload": f"{ON_DEVICE}train(built, zero(3, optimizer='cpu', parameters='cpu', {BUCKETS}))",
    "zero-3 prefetched": f"train(model(config(vocab_size=200_000, hidden_size=64)), zero(3, {BUCKETS}))",
    "ddp": "train(model(attn_implementation='eager'))",
    "lora": f"train(with_lora(model()), zero(2, {BUCKETS}))",
    "quantized": """
m = AutoModelForCausalLM.from_pretrained(folder(), quantization_config=BitsAndBytesConfig(load_in_4bit=True))
train(with_lora(prepare_model_for_kbit_training(m, gradient_checkpointing_kwargs={"use_reentrant": False})))
""",
}

LM_HEAD = 1024 * 128


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RankRecord]:
    programs = {name: f"{TRAINER}\n{program}" for name, program in PROGRAMS.items()} | {"fsdp2": FSDP2}
    found = rehearse_all(tmp_path_factory.mktemp("as_run"), programs, world=WORLD)
    assert {name: record.outcome for name, record in found.items() if record.outcome != "completed"} == {}
    return found


def memories(record: RankRecord) -> list[DeviceMemory | HostMemory]:
    return [*record.devices, *([record.host] if record.host is not None else [])]


def held(memory: DeviceMemory | HostMemory, module: str, category: str) -> int:
    return sum(each.by_category.get(category, 0) for each in memory.modules if each.module == module)


@pytest.mark.slow
def test_modules_add_up_to_each_category_at_the_peak(records: dict[str, RankRecord]) -> None:
    for name, record in records.items():
        for memory in memories(record):
            for category, total in memory.by_category.items():
                of_modules = [each.by_category.get(category, 0) for each in memory.modules]
                assert (sum(of_modules), min(of_modules, default=0) >= 0) == (total, True), (name, category)


@pytest.mark.parametrize("name", ["zero-1", "zero-2", "zero-3"])
def test_masters_and_moments_under_zero_are_those_of_the_modules_they_hold(
    records: dict[str, RankRecord], name: str
) -> None:
    """Of ZeRO-3's masters each module has an eighth; of ZeRO-1's and -2's flat partition, what lies in it."""
    (device,) = records[name].devices
    outside = held(device, "", "optimizer")
    assert device.by_category["optimizer"] > 0
    assert outside <= 0.02 * device.by_category["optimizer"], device.modules
    if name == "zero-3":
        each = 4 * LM_HEAD // WORLD
        assert held(device, "lm_head", "optimizer") in (each, 3 * each)  # masters; with moments from the first step on
        assert held(device, "model.embed_tokens", "optimizer") == held(device, "lm_head", "optimizer")
        layers = next(each for each in device.modules if each.module == "model.layers.*.mlp.up_proj")
        assert layers.count == 2


def test_what_zero_3_prefetches_is_that_of_the_module_that_will_use_it(records: dict[str, RankRecord]) -> None:
    """lm_head's weight is gathered while an earlier module runs, and kept for backward, where the peak is."""
    (device,) = records["zero-3 prefetched"].devices
    whole = 2 * 200_000 * 64
    assert device.peak_phase == "backward"
    for name in ("lm_head", "model.embed_tokens"):
        assert held(device, name, "parameters") == whole + whole // WORLD, name


@pytest.mark.slow
def test_weights_of_an_engine_that_could_not_be_made_are_parameters(tmp_path: Path) -> None:
    """They came to the device while the engine was made: what dies there has parameters, and no optimizer's states."""
    broken = '{"type": "Adam", "params": {"nonsense": 1}}'
    program = f'{TRAINER}\ntrain(model(), {{**zero(1), "optimizer": {broken}}})'
    record = rehearse_all(tmp_path, {"broken": program}, world=WORLD)["broken"]
    (device,) = record.devices
    assert (record.outcome, device.peak_phase) == ("raised", "init")
    assert held(device, "lm_head", "parameters") == 2 * LM_HEAD
    assert device.by_category["optimizer"] < 1024
    assert held(device, "", "parameters") == 0


@pytest.mark.parametrize("name", ["zero-2 offload", "zero-3 offload"])
def test_offloaded_states_are_their_modules_on_the_host(records: dict[str, RankRecord], name: str) -> None:
    host = records[name].host
    assert host is not None
    assert host.by_category["optimizer"] > 0
    assert held(host, "", "optimizer") <= 0.05 * host.by_category["optimizer"], host.modules
    (device,) = records[name].devices
    assert device.by_category["optimizer"] < host.by_category["optimizer"]


def test_states_of_plain_optimizers_and_of_fsdp_are_their_parameters(records: dict[str, RankRecord]) -> None:
    for name in ("ddp", "fsdp2"):
        (device,) = records[name].devices
        outside = {category: held(device, "", category) for category in ("parameters", "gradients", "optimizer")}
        total = {category: device.by_category[category] for category in outside}
        assert all(outside[category] <= 0.02 * total[category] + 1024 for category in outside), (name, device.modules)
    (device,) = records["ddp"].devices
    assert held(device, "lm_head", "parameters") == 4 * LM_HEAD


def test_what_was_run_is_what_was_seen(records: dict[str, RankRecord]) -> None:
    runs = {name: record.as_run for name, record in records.items() if record.as_run is not None}
    assert runs.keys() == records.keys()
    facts = ("strategy", "stage", "optimizer", "states_on", "weights_on", "attention", "accumulation")
    seen = {name: tuple(getattr(run, fact) for fact in facts) for name, run in runs.items()}
    one, two = (1, 1), (2, 2)
    on, off = ("cuda",), ("cpu",)
    assert seen == {
        "zero-1": ("DeepSpeed ZeRO-1", 1, "AdamW", on, on, ("sdpa",), one),
        "zero-2": ("DeepSpeed ZeRO-2", 2, "AdamW", on, on, ("sdpa",), two),
        "zero-2 offload": ("DeepSpeed ZeRO-2", 2, "DeepSpeedCPUAdam", off, on, ("sdpa",), two),
        "zero-3": ("DeepSpeed ZeRO-3", 3, "AdamW", on, on, ("sdpa",), one),
        "zero-3 offload": ("DeepSpeed ZeRO-3", 3, "DeepSpeedCPUAdam", off, off, ("sdpa",), one),
        "zero-3 prefetched": ("DeepSpeed ZeRO-3", 3, "AdamW", on, on, ("sdpa",), one),
        "ddp": ("DDP", None, "AdamW", on, on, ("eager",), one),
        "lora": ("DeepSpeed ZeRO-2", 2, "AdamW", on, on, ("sdpa",), one),
        "quantized": ("DDP", None, "AdamW", on, on, ("sdpa",), one),
        "fsdp2": ("FSDP2", None, "AdamW", on, on, (), one),
    }
    trained = [run for name, run in runs.items() if name != "fsdp2"]
    assert {(run.model, run.samples, run.tokens) for run in trained} == {("Qwen2ForCausalLM", (2, 2), (64, 64))}
    assert {run.products for run in trained} == {"bfloat16"}
    assert {run.masters for run in trained} == {"float32"}


def test_parameters_are_counted_whole(records: dict[str, RankRecord]) -> None:
    def counts(name: str) -> tuple[int, int, int]:
        run = records[name].as_run
        assert isinstance(run, AsRun)
        return run.parameters, run.trainable, run.quantized

    assert counts("zero-3") == counts("ddp") == (558208, 558208, 0)
    assert counts("fsdp2") == (8 << 20, 8 << 20, 0)
    assert counts("lora") == (571520, 13312, 0)
    assert counts("quantized") == (571520, 13312, 294912)


def test_checkpointing_is_seen_by_what_ran_again(records: dict[str, RankRecord]) -> None:
    layers = (Recomputed("Qwen2DecoderLayer", 2, 2),)
    seen = {name: record.as_run.recomputed for name, record in records.items() if record.as_run is not None}
    assert {name for name, recomputed in seen.items() if recomputed} == {"zero-3", "quantized"}
    assert seen["zero-3"] == seen["quantized"] == layers
