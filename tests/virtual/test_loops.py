"""Training loops of other forms than the Trainer's: batches asked for by name, autograd's engine called directly."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, rehearse_all

BEGINNING = """
import torch
from torch import nn
rows = torch.utils.data.TensorDataset(torch.randn(400, 8))
loader = torch.utils.data.DataLoader(rows, batch_size=8)
model = nn.Linear(8, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
def step(x):
    model(x.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BY_NAME = """
batches = iter(loader)
for iteration in range(50):
    x, = next(batches)
    step(x)
"""
ENGINE = """
def backward(loss, accumulate):
    torch.autograd.Variable._execution_engine.run_backward(
        (loss,), (torch.ones_like(loss),), False, False,
        () if accumulate else tuple(model.parameters()), allow_unreachable=True, accumulate_grad=accumulate,
    )
"""
PROGRAMS = {
    "by_name": BEGINNING + BY_NAME,
    "in_a_generator": f"""{BEGINNING}
def endless():
    batches = iter(loader)
    while True:
        yield next(batches)
for iteration, (x,) in zip(range(50), endless()):
    step(x)
""",
    "of_less_data_than_steps": f"""{BEGINNING}
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 8)), batch_size=8)
{BY_NAME}""",
    "an_end_of_its_own": f"{BEGINNING}\nfor x, in loader:\n    step(x)\nnext(iter(()))\n",
    "engine": f"""{BEGINNING}{ENGINE}
for _ in range(2):
    backward(model(torch.randn(4, 8, device="cuda")).sum(), True)
    optimizer.step()
    optimizer.zero_grad()
""",
    "engine_for_gradients_alone": f"""{BEGINNING}{ENGINE}
backward(model(torch.randn(4, 8, device="cuda")).sum(), False)
""",
    "memory_pool_in_an_annotation": """
import torch
pool: torch.cuda.MemPool | None = None
allocator: torch.cuda.memory.CUDAPluggableAllocator | None = None
assert not isinstance(3, torch.cuda.MemPool)
""",
    "memory_pool": "import torch\ntorch.cuda.MemPool()\n",
}


@pytest.mark.slow
def test_loops_of_any_form(tmp_path: Path) -> None:
    records = rehearse_all(tmp_path, PROGRAMS, stack="import torch\n")
    outcomes = {name: record.outcome for name, record in records.items()}
    assert outcomes == {
        **dict.fromkeys(PROGRAMS, "completed"),
        "of_less_data_than_steps": "raised",
        "an_end_of_its_own": "raised",
        "memory_pool": "unsupported",
    }, output_of(tmp_path, "by_name")
    assert records["by_name"].steps == records["in_a_generator"].steps == 2
    assert records["of_less_data_than_steps"].steps == 1
    assert {"forward", "backward", "step"} <= set(records["engine"].phases)
    assert "backward" not in records["engine_for_gradients_alone"].phases


LOOP = """
import torch
from megatron.training import training
training.pretrain()
"""
MEGATRON = """
from types import SimpleNamespace
import torch
from torch import nn
args = SimpleNamespace(train_iters=50, iteration=0, eval_iters=10, save="saved", skip_train=False)
model = nn.Linear(8, 2).cuda()
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.TensorDataset(torch.randn(400, 8))
def get_args():
    return args
def batches():
    return iter(torch.utils.data.DataLoader(rows, batch_size=8))
def train(data):
    while args.iteration < args.train_iters:
        x, = next(data)
        model(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        args.iteration += 1
    return args.iteration
def evaluate_and_print_results(data):
    model.eval()
    with torch.no_grad():
        for _ in range(args.eval_iters):
            model(next(data)[0].cuda())
    model.train()
def save_checkpoint(iteration):
    torch.save(model.state_dict(), f"iteration_{iteration}.pt")
def pretrain():
    iteration = train(batches())
    save_checkpoint(iteration)
    evaluate_and_print_results(batches())
"""


def test_megatrons_loop_ends_by_its_own_count(tmp_path: Path) -> None:
    """The names are those of Megatron-LM's training.py; the real one is rehearsed by benchmarks/published."""
    package = tmp_path / "site" / "megatron" / "training"
    package.mkdir(parents=True)
    (package / "training.py").write_text(MEGATRON)
    program = f"import sys\nsys.path.insert(0, {str(tmp_path / 'site')!r})\n{LOOP}"
    record = rehearse_all(tmp_path, {"loop": program}, stack="import torch\n")["loop"]
    assert (record.outcome, record.steps) == ("completed", 2), output_of(tmp_path, "loop")
    assert {"evaluate", "save"} <= set(record.phases)
    assert record.saved_bytes
    assert "save" in record.expected_phases


SOFTMAX = """
import torch
import {name} as kernels
inputs = torch.randn(2, 4, 16, 16, device="cuda", dtype=torch.{dtype})
given = torch.empty(16, device="cuda")
before = torch.cuda.memory_allocated()
results = kernels.forward(inputs, torch.tensor(1.0))
gradient = torch.ones_like(results)
assert kernels.backward(gradient, results, torch.tensor(1.0)) is gradient
assert torch.cuda.memory_allocated() - before == 2 * inputs.numel() * 2
"""


def test_apexs_softmax(tmp_path: Path) -> None:
    names = ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda")
    programs = {name: SOFTMAX.format(name=name, dtype="bfloat16") for name in names}
    programs["float32"] = SOFTMAX.format(name=names[0], dtype="float32")
    programs["batches"] = (
        "from scaled_masked_softmax_cuda import get_batch_per_block as of\n"
        "assert [of(16, keys, 1, 1) for keys in (16, 64, 128, 129, 4096)] == [16, 8, 8, 4, 4]\n"
    )
    records = rehearse_all(tmp_path, programs, stack="import torch\n")
    for name in (*names, "batches"):
        assert records[name].outcome == "completed", output_of(tmp_path, name)
    assert [entry.what for entry in records[names[0]].assumptions if "Apex" in entry.what]
    failure = records["float32"].failure
    assert failure is not None
    assert failure.message == "Only fp16 and bf16 are supported"
