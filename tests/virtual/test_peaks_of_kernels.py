"""Memory that PyTorch's own code takes besides an operator's result, and what it must not keep."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, rehearse_all

from gonogo.virtual.operators.reductions import partial_results_bytes

PROGRAMS = {
    # A meta kernel may bring about this import in the middle of a step, in frames that hold the program's tensors.
    "the import of torch._dynamo keeps no tensors": """
import importlib, sys

def one_case():
    inputs = torch.zeros(1024, 1024, device="cuda")
    importlib.import_module("torch._dynamo")

assert "torch._dynamo" not in sys.modules
one_case()
assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
""",
    "softmax's backward takes a product and the result": """
inputs = torch.randn(1024, 1024, device="cuda", requires_grad=True)
gradient = torch.randn(1024, 1024, device="cuda")
for function, tensors in ((torch.softmax, 2), (torch.log_softmax, 1)):
    output = function(inputs, -1)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    (result,) = torch.autograd.grad(output, inputs, gradient)
    assert torch.cuda.max_memory_allocated() - before == tensors << 22, function
    del result, output
    assert torch.cuda.memory_allocated() == 2 << 22
""",
    "a sum over rows takes the blocks' partial results": """
gradient = torch.randn(2048, 8192, device="cuda", dtype=torch.bfloat16)
before = torch.cuda.memory_allocated()
for reduce, taken in ((lambda: gradient.sum(0), 128 << 20), (lambda: gradient.sum(1), 0), (lambda: gradient.sum(), 0)):
    torch.cuda.reset_peak_memory_stats()
    result = reduce()
    assert taken <= torch.cuda.max_memory_allocated() - before <= taken + (16 << 10)
    del result
    assert torch.cuda.memory_allocated() == before
""",
    "a model that the program has let go is free once another one is trained": """
def train(width):
    layer = torch.nn.Linear(width, width, device="cuda")
    layer(torch.ones(4, width, device="cuda")).sum().backward()
    return layer

train(1024)
kept = train(8)
held = torch.cuda.memory_allocated() - (64 << 20)  # cuBLAS's
assert held < 1 << 20, held
""",
    "RMSNorm is one kernel, which keeps one number a row": """
if hasattr(torch.ops.aten, "_fused_rms_norm"):
    inputs = torch.randn(4, 256, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    norm = torch.nn.RMSNorm(1024, device="cuda", dtype=torch.bfloat16)
    before = torch.cuda.memory_allocated()
    output = norm(inputs)
    assert output.dtype == torch.bfloat16
    assert torch.cuda.memory_allocated() - before == (2 << 20) + (4 << 10)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    output.sum().backward()  # its gradient is expanded, and copied
    assert torch.cuda.max_memory_allocated() - before >= 4 << 20
    assert inputs.grad.shape == inputs.shape and norm.weight.grad.shape == (1024,)
""",
}


@pytest.mark.parametrize(
    ("columns", "mib"), [(1024, 16), (2048, 32), (4096, 64), (8192, 108), (16384, 112), (32768, 112)]
)
def test_partial_results_are_those_of_a_published_benchmark(columns: int, mib: int) -> None:
    """Liger-Kernel's RMSNorm of 0.2.1 sums 2,048 rows in bfloat16; its figures of an A100 have so much more."""
    assert partial_results_bytes(columns, 2048, columns, 4, 108 * 2048) == mib << 20


@pytest.mark.parametrize("name", PROGRAMS)
def test_peak(tmp_path: Path, name: str) -> None:
    record = rehearse_all(tmp_path, {"one": f"import torch\n{PROGRAMS[name]}"}, stack="import torch\n")["one"]
    assert record.outcome == "completed", output_of(tmp_path, "one")
