"""The memory record against what is really allocated: the same programs for real on the CPU, and counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import real_peaks, rehearse_all
from virtual.worlds import COUNTED, TRACKED, of_tensors, on_device, rehearse

from gonogo.evidence.rehearsal.record import RankRecord

MLP = """
import sys
import torch
from torch import nn
where = "cuda" if torch.cuda.is_available() else "cpu"
with torch.device(where):
    model = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 512))
    x, y = torch.randn(512, 1024), torch.randn(512, 512)
if sys.argv[1] == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
else:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=sys.argv[1] == "foreach")
for _ in range(2):
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""

QWEN2 = """
import sys
import torch
from transformers import AutoModelForCausalLM, Qwen2Config
where = "cuda" if torch.cuda.is_available() else "cpu"
config = Qwen2Config(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8,
                     num_key_value_heads=4, vocab_size=4096, use_cache=False)
with torch.device(where):
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tokens = torch.randint(0, 4096, (4, 192))
model.train()
if sys.argv[1] == "checkpointing":
    model.gradient_checkpointing_enable({"use_reentrant": sys.argv[2] == "reentrant"})
    model.enable_input_require_grads()
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(2):
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

LOOP = """
import sys
import torch
from torch import nn
where = "cuda" if torch.cuda.is_available() else "cpu"
with torch.device(where):
    model = nn.Linear(64, 8192)
    x = torch.randn(1024, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def evaluate():
    with torch.no_grad():
        model(x[:8])
def train():
    step = 0
    while step < 4:
        if sys.argv[1] == "mode":
            model.train()
        logits = [part.double() for part in model(x).split(256)]
        sum(nn.functional.log_softmax(part, -1).sum() for part in logits).backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if sys.argv[1] == "evaluation" and step % 3 == 0:
            evaluate()
train()
"""

DEEPSPEED = """
import sys
import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch import nn
where = get_accelerator().current_device_name()
config = {
    "train_micro_batch_size_per_gpu": 32, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": int(sys.argv[1]), "reduce_bucket_size": 4000000,
                          "stage3_param_persistence_threshold": 10000},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True, "foreach": False}},
}
deepspeed.init_distributed()
with torch.device(where):
    model = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 512))
    x, y = torch.randn(32, 1024).bfloat16(), torch.randn(32, 512).bfloat16()
engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for _ in range(4):
    engine.backward(nn.functional.mse_loss(engine(x), y))
    engine.step()
"""


CROSS_ENTROPY = """
import torch
from torch import nn
with torch.device("cuda"):
    model, x = nn.Linear(64, 8192, bias=False), torch.randn(1024, 64)
    target = torch.randint(0, 8192, (1024,))
with torch.autocast("cuda", torch.bfloat16):
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, target)
loss.backward()
"""

N = 8 * 1024 * 1024
"""Parameters of OFFLOADED's model, in eight layers alike."""

ADAMW = """
import torch
from torch import nn
with torch.device("cuda"):
    model = nn.Sequential(nn.Linear(1000, 2000), nn.ReLU(), nn.Linear(2000, 500))
    x = torch.randn(1, 1000)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(2):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

OFFLOADED = """
import sys
import deepspeed
import torch
from torch import nn
stage = int(sys.argv[1])
offload = {"device": "cpu", "pin_memory": True}
config = {
    "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True},
    "zero_optimization": {"stage": stage, "offload_optimizer": offload, "stage3_param_persistence_threshold": 0,
                          **({"offload_param": offload} if stage == 3 else {})},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
}
deepspeed.init_distributed()
with deepspeed.zero.Init(config_dict_or_path=config, enabled=stage == 3):
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(8)))
engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
x = torch.randn(1, 1024, device="cuda", dtype=torch.bfloat16)
for _ in range(2):
    engine.backward(engine(x).float().sum())
    engine.step()
"""


def called(program: str, *arguments: str) -> str:
    """The program as it runs with those arguments."""
    return f"import sys\nsys.argv[1:] = {list(arguments)!r}\n{program}"


PLAIN = {
    **{optimizer: called(MLP, optimizer) for optimizer in ("sgd", "single", "foreach")},
    **{
        how: called(QWEN2, *how.split("_"))
        for how in ("without", "checkpointing_reentrant", "checkpointing_non-reentrant")
    },
}
LOOPS = {f"loop_with_{what}": called(LOOP, what) for what in ("mode", "evaluation")}
STAGES = {f"stage_{stage}": called(DEEPSPEED, stage) for stage in "123"}


def completed(records: dict[str, RankRecord]) -> dict[str, RankRecord]:
    assert {name: record.outcome for name, record in records.items()} == dict.fromkeys(records, "completed")
    return records


@pytest.mark.very_slow
def test_programs_take_what_they_really_take(tmp_path: Path) -> None:
    """One test of all: they share what imports the stack, and test workers side by side share nothing."""
    real = real_peaks(tmp_path, PLAIN, runner=TRACKED) | real_peaks(tmp_path, LOOPS | STAGES, runner=COUNTED)
    recorded = completed(rehearse_all(tmp_path, PLAIN | LOOPS | STAGES, world=1))
    wrong = {
        name: f"recorded {on_device(recorded[name]):,}, really {really:,}"
        for name, really in real.items()
        if abs(on_device(recorded[name]) - really) > 0.02 * really
    }
    assert wrong == {}
    assert set(real) == {*PLAIN, *LOOPS, *STAGES}


@pytest.mark.slow
def test_adamw_by_hand(tmp_path: Path) -> None:
    record = rehearse(tmp_path, ADAMW)
    (device,) = record.devices
    parameters = 1000 * 2000 + 2000 + 2000 * 500 + 500
    largest = 1000 * 2000
    assert device.peak_phase == "step"
    assert device.by_category == {
        "parameters": 4 * (parameters + 1000),  # and the input, which the program makes beside them
        "gradients": 4 * parameters,
        "optimizer": 2 * 4 * parameters,
        "activations": 0,
        "communication": 0,
        "temporary": 2 * 4 * largest,  # the root of the second moment, and that over the bias correction
        "workspace": 2 * (32 << 20),  # cuBLAS's, of the forward's thread and of autograd's
    }
    blocks = 1 << 20  # an allocation's block may be that much larger: the caching allocator doesn't split the rest off
    asked = sum(device.by_category.values())
    assert asked <= device.peak_allocated_bytes <= asked + 20 * blocks
    assert record.host is not None
    assert record.host.peak_bytes in (
        4 * 4,
        4 * 4 + 4,
    )  # AdamW's step of each parameter; torch 2.15 has one more number


@pytest.mark.slow
def test_cross_entropy_under_autocast_by_hand(tmp_path: Path) -> None:
    """ATen's cross_entropy has the log-softmax in its input's dtype; autocast casts only what nll_loss is given."""
    (device,) = rehearse(tmp_path, CROSS_ENTROPY).devices
    logits, weight, inputs = 1024 * 8192, 64 * 8192, 64 * 1024
    assert device.peak_phase == "backward"
    least = logits * (2 + 2 + 4 + 4)  # logits, their log-softmax, its copy for nll_loss, and that copy's gradient
    least += weight * 4 + inputs * (4 + 2) + 1024 * 8
    assert least <= of_tensors(device) <= least + 1024  # and a few numbers


@pytest.mark.slow
def test_offload_by_hand(tmp_path: Path) -> None:
    # Without transformers, which keeps a few numbers in tensors: what lies on the host is counted to the byte.
    programs = {stage: called(OFFLOADED, stage) for stage in "23"}
    records = completed(rehearse_all(tmp_path, programs, world=1, stack="import deepspeed\n"))
    offload_of_stage_2(records["2"])
    offload_of_stage_3(records["3"])


def offload_of_stage_2(record: RankRecord) -> None:
    assert record.host is not None
    masters_and_moments, buffer_of_bit16, gradients, largest_gradient = 12 * N, 2 * N, 4 * N, 2 * N // 8
    kept = masters_and_moments + buffer_of_bit16 + gradients + largest_gradient
    assert kept <= record.host.peak_bytes <= kept + 1024
    assert record.host.by_category["gradients"] == gradients
    pinned = 4 * N + buffer_of_bit16 + gradients + largest_gradient
    assert record.host.peak_pinned_bytes == pinned


def offload_of_stage_3(record: RankRecord) -> None:
    assert record.host is not None
    parameters, masters_and_moments, gradients = 2 * N, 12 * N, 4 * N + 2 * N  # gradients in bf16, and in float32
    assert record.host.by_category["parameters"] == parameters
    assert record.host.by_category["gradients"] == gradients
    assert masters_and_moments <= record.host.by_category["optimizer"] <= masters_and_moments + 64
    assert sum((parameters, masters_and_moments, gradients)) <= record.host.peak_bytes
    assert record.host.peak_bytes <= sum((parameters, masters_and_moments, gradients)) + 1024


FROZEN = """
import deepspeed
import torch
from torch import nn
config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
deepspeed.init_distributed()
model = nn.Sequential(nn.Linear(1024, 4096, bias=False), nn.Linear(4096, 64, bias=False))
model[0].weight.requires_grad_(False)
engine, *_ = deepspeed.initialize(model=model, config=config, model_parameters=[model[1].weight])
x = torch.randn(1, 1024, device="cuda", dtype=torch.bfloat16)
for _ in range(2):
    engine.backward(engine(x).float().sum())
    engine.step()
"""


@pytest.mark.slow
def test_frozen_weights_are_no_optimizer_states(tmp_path: Path) -> None:
    (device,) = rehearse(tmp_path, FROZEN).devices
    frozen, trained = 1024 * 4096, 4096 * 64
    inputs = 2 * 1024  # made beside them
    assert device.by_category["parameters"] == 2 * (frozen + trained) + inputs
    assert 12 * trained <= device.by_category["optimizer"] <= 12 * trained + 1024
