"""Memory that PyTorch's own code takes besides an operator's result, and what it must not keep."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual.forked import output_of, rehearse_all

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
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_peak(tmp_path: Path, name: str) -> None:
    record = rehearse_all(tmp_path, {"one": f"import torch\n{PROGRAMS[name]}"}, stack="import torch\n")["one"]
    assert record.outcome == "completed", output_of(tmp_path, "one")
