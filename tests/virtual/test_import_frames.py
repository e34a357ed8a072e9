"""The import of torch._dynamo, which a meta kernel may bring about in the middle of a step, keeps no tensors."""

from __future__ import annotations

from pathlib import Path

from virtual.forked import output_of, rehearse_all

PROGRAM = """
import importlib, sys, torch

def one_case():
    inputs = torch.zeros(1024, 1024, device="cuda")
    importlib.import_module("torch._dynamo")

assert "torch._dynamo" not in sys.modules
one_case()
assert torch.cuda.memory_allocated() == 0, torch.cuda.memory_allocated()
"""


def test_frames_of_the_import_are_freed(tmp_path: Path) -> None:
    record = rehearse_all(tmp_path, {"one": PROGRAM}, stack="import torch\n")["one"]
    assert record.outcome == "completed", output_of(tmp_path, "one")
