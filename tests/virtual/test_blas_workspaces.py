"""cuBLAS's workspaces: how large, how many, and which release keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from virtual.forked import output_of, rehearse_all
from virtual.worlds import virtual_session

from gonogo.virtual.memory.blas_workspaces import BlasWorkspaces
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord

MIB = 1 << 20
SMALL = 8519680
BOTH = """
import torch
from torch import nn
layer = nn.Linear(256, 256, bias=False, device="cuda")
weight = layer.weight
held = lambda: torch.cuda.memory_allocated() - weight.numel() * 4 * (1 + (weight.grad is not None))
assert held() == 0, held()
layer(torch.randn(4, 256, device="cuda")).sum().backward()
assert held() // MIB == 64, held()
"""
PROGRAMS = {
    "forward alone, and once a stream": """
import torch
left = torch.randn(64, 64, device="cuda")
before = torch.cuda.memory_allocated()
for stream in (torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.current_stream()):
    with torch.cuda.stream(stream), torch.no_grad():
        left @ left
assert torch.cuda.memory_allocated() - before == 64 * MIB
torch.cuda.empty_cache()
assert torch.cuda.memory_allocated() - before == 64 * MIB
torch._C._cuda_clearCublasWorkspaces()
assert torch.cuda.memory_allocated() == before
""",
    "a thread of autograd's own": BOTH,
    "a checkpoint that recomputes in it": """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
layer = nn.Linear(256, 256, bias=False, device="cuda")
for reentrant in (True, False):
    given = torch.randn(4, 256, device="cuda", requires_grad=True)
    checkpoint(layer, given, use_reentrant=reentrant).sum().backward()
layer.zero_grad()
del given
assert torch.cuda.memory_allocated() // MIB == 64, torch.cuda.memory_allocated()
""",
    "the environment's size, read at the first product": """
import os, torch
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:2"
left = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
before = torch.cuda.memory_allocated()
left @ left
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
assert torch.cuda.memory_allocated() - before == 8 * MIB == torch._C._cuda_getCublasWorkspaceSize()
""",
    "no product, no workspace": """
import torch
torch.randn(64, 64) @ torch.randn(64, 64)
torch.randn(64, 64, device="cuda") * 2
assert torch.cuda.memory_allocated() == 0
""",
}


def test_what_programs_see(tmp_path: Path) -> None:
    programs = {name: f"MIB = 1 << 20\n{program}" for name, program in PROGRAMS.items()}
    records = rehearse_all(tmp_path, programs, stack="import torch\n")
    for name, record in records.items():
        assert record.outcome == "completed", (name, output_of(tmp_path, name))
    (device,) = records["a thread of autograd's own"].devices
    assert device.by_category["workspace"] == 64 * MIB
    assert "workspace" not in records["no product, no workspace"].devices[0].by_category


class Workspaces(BlasWorkspaces):
    """Of a session's devices, for any GPU and release; ``stream`` is the current one."""

    def __init__(self, capability: tuple[int, int] = (9, 0), release: str = "2.13.0", **said: str) -> None:
        self.stream = 0
        self.memory = MemoryRecord(lambda name: DeviceRecord(name, 80 << 30, 0, CachingAllocator(80 << 30)))
        super().__init__(self.memory, capability, lambda index: self.stream, release=release, environment=said)

    @property
    def record(self) -> DeviceRecord:
        return self.memory.device(torch.device("cuda", 0))


@pytest.mark.parametrize(
    ("capability", "release", "said", "size"),
    [
        ((9, 0), "2.1.0", "", 32 * MIB),
        ((8, 0), "2.13.0+cu130", "", SMALL),
        ((8, 9), "2.13.0", "", SMALL),
        ((10, 0), "2.11.0", "", SMALL),
        ((10, 0), "2.12.0", "", 32 * MIB),
        ((12, 0), "2.12.0a0+git1234", "", 32 * MIB),
        ((9, 0), "2.13.0", ":4096:2:16:8", SMALL),
        ((9, 0), "2.13.0", ":16:8", 128 << 10),
        ((8, 0), "2.13.0", "nonsense", SMALL),
        ((8, 0), "2.13.0", ":0:0", 0),
    ],
)
def test_size(capability: tuple[int, int], release: str, said: str, size: int) -> None:
    environment = {"CUBLAS_WORKSPACE_CONFIG": said} if said else {}
    assert Workspaces(capability, release, **environment).size == size


@pytest.fixture
def linear(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """The operands of a linear layer with a bias, and its result."""
    with virtual_session(tmp_path):
        bias, left, right = (torch.zeros(shape, device="cuda") for shape in ((8,), (4, 8), (8, 8)))
        yield (bias, left, right), torch.addmm(bias, left, right)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "said", "kept", "most"),
    [
        ("2.8.0", {}, 32, 33),
        ("2.9.0", {}, 33, 33),
        ("2.9.0", {"CUBLASLT_WORKSPACE_SIZE": "4096"}, 36, 36),
        ("2.9.0", {"CUBLASLT_WORKSPACE_SIZE": "many"}, 33, 33),
        ("2.9.0", {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "1"}, 32, 32),
        ("2.13.0", {}, 32, 32),
        ("2.13.0", {"CUBLASLT_WORKSPACE_SIZE": "65536"}, 32, 32),
        ("2.13.0", {"TORCH_CUBLASLT_UNIFIED_WORKSPACE": "0"}, 33, 33),
        ("2.15.0", {}, 0, 1),
        ("2.15.0", {"TORCH_CUBLAS_WORKSPACE_CACHE": "1"}, 32, 32),
    ],
)
def test_cublaslt_adds_the_bias(
    linear: tuple[Any, Any], release: str, said: dict[str, str], kept: int, most: int
) -> None:
    workspaces = Workspaces(release=release, **said)
    args, out = linear
    for _ in range(3):
        workspaces.allocate_for_operator("addmm", args, out)
    assert (workspaces.record.live, workspaces.record.peak) == (kept * MIB, most * MIB)


def test_the_newest_keep_none(linear: tuple[Any, Any]) -> None:
    workspaces = Workspaces(release="2.15.0")
    workspaces.allocate_for_operator("mm", linear[0][1:], linear[1])
    assert (workspaces.record.live, workspaces.record.peak) == (0, 32 * MIB)
    assert workspaces.record.as_device_memory().peak_reserved_bytes == 32 * MIB


def test_a_thread_that_has_ended_leaves_its_handle_to_the_next(linear: tuple[Any, Any]) -> None:
    workspaces = Workspaces()

    def multiply() -> None:
        workspaces.allocate_for_operator("mm", linear[0][1:], linear[1])

    multiply()
    for _ in range(3):
        thread = threading.Thread(target=multiply)
        thread.start()
        thread.join()
    assert workspaces.record.live == 64 * MIB


def test_one_stream_is_cleared_alone(linear: tuple[Any, Any]) -> None:
    workspaces = Workspaces()
    for workspaces.stream in (0, 7):
        workspaces.allocate_for_operator("mm", linear[0][1:], linear[1])
    workspaces.free_workspaces(7)
    assert workspaces.record.live == 32 * MIB
    workspaces.free_workspaces()
    assert workspaces.record.live == 0
