"""torch's own DDP and FSDP2, and flash-attn: by hand, and against the same programs run for real."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from virtual.forked import output_of, real_peaks, rehearse_all
from virtual.worlds import TRACKED, on_device

from gonogo.virtual.kernels.flash_attention import FlashAttention

ALONE = 'import os\nos.environ["WORLD_SIZE"] = "1"\n'
TORCH = "import torch, torch.distributed.fsdp, torch.nn.parallel\n"

FSDP2 = """
import os
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
where = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if where == "cuda" else "gloo")
mesh = init_device_mesh(where, (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
with torch.device(where):
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(8)))
    x = torch.randn(64, 1024)
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
parameter = model[0].weight
assert isinstance(parameter, DTensor) and parameter.device.type == where, parameter.device
if where == "cuda":  # as PyTorch's own, it stays on the device that it was made on when its local tensor is moved
    moved = DTensor.from_local(torch.ones(4, device=where), mesh)
    moved._local_tensor = moved._local_tensor.cpu()
    assert moved.device.type == where and moved.is_cuda and not moved.is_cpu, moved.device
    made = DTensor.from_local(torch.ones(4), mesh, run_check=False)
    assert made._local_tensor.device.type == made.device.type, made.device
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(2):
    model(x).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""

SHARDED = (
    FSDP2
    + """
import gc
gc.collect()
world, size = dist.get_world_size(), 4 * 1024 * 1024
kept = 3 * 8 * size // world + 4 * 64 * 1024  # parameters and moments; the input
assert kept <= torch.cuda.memory_allocated() <= kept + 4096, torch.cuda.memory_allocated() - kept
peak = 4 * 8 * size // world
assert peak < torch.cuda.max_memory_allocated() < peak + 5 * size, torch.cuda.max_memory_allocated() - peak
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
assert all(tensor.shape == (1024, 1024) and tensor.device.type == "cpu" for tensor in whole.values())
"""
)

OFFLOADED = """
import os
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
dist.init_process_group("nccl")
model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(8)))
for layer in model:
    fully_shard(layer, offload_policy=CPUOffloadPolicy())
fully_shard(model, offload_policy=CPUOffloadPolicy())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
assert all(parameter.device.type == "cpu" for parameter in model.parameters())
assert torch.cuda.max_memory_allocated() < 5 * 4 * 1024 * 1024
"""

DDP = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
where = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if where == "cuda" else "gloo")
with torch.device(where):
    model = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 1024))
    x = torch.randn(256, 1024)
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
for _ in range(2):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""

FLASH = """
import torch
from flash_attn import (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func,
)
from flash_attn.bert_padding import pad_input, unpad_input
batch, length, heads, grouped, size = 2, 1000, 8, 2, 128
def tensor(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=True)
def blocks(*sizes):
    return sum(-(-one // 512) * 512 for one in sizes)
q, k, v = tensor(batch, length, heads, size), *(tensor(batch, length, grouped, size) for _ in range(2))
before = torch.cuda.memory_allocated()
out = flash_attn_func(q, k, v, causal=True)
assert (out.shape, out.dtype, out.device) == (q.shape, q.dtype, q.device)
output, lse = 2 * q.numel(), 4 * batch * heads * length
assert torch.cuda.memory_allocated() - before == blocks(output, lse, 16)  # no scores
gradient = torch.randn_like(out)
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
out.backward(gradient)
gradients = 2 * (q.numel() + k.numel() + v.numel())
rows = 1024  # in blocks of 128
transient = [4 * batch * heads * rows, 4 * batch * rows * heads * size, *[2 * batch * length * heads * size] * 2]
peak = torch.cuda.max_memory_allocated() - before
assert blocks(gradients, *transient) <= peak <= blocks(gradients, *transient) + (1 << 20), peak
assert (q.grad.shape, k.grad.shape) == (q.shape, k.shape)

qkv = tensor(batch, length, 3, heads, 100)  # no multiple of 8: padded
flash_attn_qkvpacked_func(qkv, causal=True).sum().backward()
assert qkv.grad.shape == qkv.shape
kv = tensor(batch, length, 2, grouped, size)
flash_attn_kvpacked_func(q, kv).sum().backward()
assert kv.grad.shape == kv.shape

mask = torch.ones(2, length, dtype=torch.long, device="cuda")
mask[1, 100:] = 0
tokens, indices, starts, longest, _ = unpad_input(torch.randn(2, length, 8, device="cuda"), mask)
assert (tokens.shape, starts.tolist(), longest) == ((1100, 8), [0, 1000, 1100], 1000)
assert pad_input(tokens, indices, 2, length).shape == (2, length, 8)
packed = [tensor(1100, n, size) for n in (heads, grouped, grouped)]
out, lse, _ = flash_attn_varlen_func(*packed, starts, starts, longest, longest, causal=True, return_attn_probs=True)
assert (out.shape, lse.shape, lse.dtype) == ((1100, heads, size), (heads, 1100), torch.float32)
out.sum().backward()

for wrong, message in (
    ((tensor(1, 8, 4, 64, dtype=torch.float32),) * 3, "FlashAttention only support fp16 and bf16 data type"),
    ((tensor(1, 8, 4, 320),) * 3, "head dimension at most 256"),
    ((tensor(1, 8, 5, 64), tensor(1, 8, 2, 64), tensor(1, 8, 2, 64)), "must divide number of heads in query"),
    ((tensor(1, 8, 4, 64), tensor(1, 8, 4, 64).cpu(), tensor(1, 8, 4, 64)), "k must be on CUDA"),
):
    try:
        flash_attn_func(*wrong)
    except RuntimeError as error:
        assert message in str(error), error
    else:
        raise SystemExit(f"not refused: {message}")
import importlib.metadata
from transformers.utils import is_flash_attn_2_available
assert importlib.metadata.version("flash-attn") == "2.8.3" and is_flash_attn_2_available()
"""


@pytest.mark.very_slow
@pytest.mark.timeout(1800)
def test_sharded_data_parallel_and_flash_attention(tmp_path: Path) -> None:
    compared = {"fsdp2": FSDP2, "ddp": DDP}
    programs = {"sharded": SHARDED, "offloaded": OFFLOADED, "flash": FLASH}
    programs |= {name: ALONE + program for name, program in compared.items()}
    records = rehearse_all(tmp_path, programs, world=4, stack=TORCH)
    for name, record in records.items():
        assert record.outcome == "completed", output_of(tmp_path, name)
    calls = {total.operator: total for total in records["sharded"].collectives}
    gathered, of_state_dict = 2 * 2 * 8 * 2 * 1024 * 1024 // 4, 8 * 4 * 1024 * 1024 // 4
    assert calls["_allgather_base_"].bytes == gathered + of_state_dict, calls
    assert calls["_reduce_scatter_base_"].count == 2 * 8, calls
    assert calls["_reduce_scatter_base_"].bytes == 2 * 8 * 4 * 1024 * 1024, calls
    assert calls["allreduce_"].count == 2 * 8, calls  # the norm of each gradient
    assert "flash-attn 2.8.3 is installed on the machine" in [a.what for a in records["flash"].assumptions]
    host = records["offloaded"].host
    assert host is not None
    assert host.peak_bytes >= 4 * 8 * 4 * 1024 * 1024 // 4  # parameters, gradients and moments, a quarter of each
    real = real_peaks(tmp_path, compared, stack=TORCH, runner=TRACKED)
    for name, peak in real.items():
        found = on_device(records[name])
        assert abs(found - peak) <= 0.005 * peak, f"{name}: recorded {found:,}, really {peak:,}"


def test_flash_attention_needs_an_ampere() -> None:
    kernels = FlashAttention(lambda tensor: None, lambda what: None, (7, 0))
    q = torch.empty(1, 8, 4, 64, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="FlashAttention only supports Ampere GPUs or newer"):
        kernels.fwd(q, q, q, None, None, 0.0, 1.0, False, -1, -1, 0.0, False)
