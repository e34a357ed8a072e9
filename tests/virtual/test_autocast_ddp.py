"""Autocast on an accelerator, and DistributedDataParallel."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from packaging.version import Version
from torch import nn
from virtual.worlds import rehearse, virtual_session
from virtual_worker import answers

from gonogo.virtual.ranks.session import Session

GPU = torch.device("cuda", 0)

DDP = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("nccl")
torch.cuda.set_device(0)
assert dist.get_world_size() == 4
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
model = DistributedDataParallel(model, device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(64, 64), torch.randint(0, 8, (64,)))
for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data), pin_memory=True):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with virtual_session(tmp_path) as session:
        yield session


def live(session: Session) -> int:
    """Bytes of the program's tensors, without cuBLAS's workspaces."""
    gc.collect()
    record = session.memory.device(GPU)
    return record.live - record.bytes_by_category().get("workspace", 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_operators_run_in_the_dtype_of_their_list(session: Session, dtype: torch.dtype) -> None:
    single, half = torch.randn(4, 4, device="cuda"), torch.randn(4, 4, device="cuda", dtype=dtype)
    labels = torch.zeros(4, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        lower = [
            single @ single, single.mm(half), F.linear(single, single, single[0]),
            torch.bmm(single[None], single[None]), torch.einsum("ij,jk->ik", single, half),
            F.conv1d(single[None], single[:, :, None]), torch.addmm(single, single, half),
            F.scaled_dot_product_attention(single[None, None], single[None, None], half[None, None]),
        ]  # fmt: skip
        upper = [
            F.softmax(half, -1), F.log_softmax(half, -1), F.layer_norm(half, (4,)), half.exp(), half.sum(), half.pow(2),
            F.cross_entropy(half, labels), F.mse_loss(half, single), half.norm(), half.cumsum(0),
        ]  # fmt: skip
        promoted = [single + half, torch.addcmul(single, half, half), torch.cat([single, half])]
        as_given = [half + half, F.relu(half), half.mul(2), F.gelu(half), F.softmax(half, -1, dtype=dtype)]
        (upper if Version(torch.__version__) >= Version("2.12") else as_given).append(F.rms_norm(half, (4,)))
        integer = labels @ labels
    assert [t.dtype for t in lower] == [dtype] * len(lower)
    assert [t.dtype for t in upper] == [torch.float32] * len(upper)
    assert [t.dtype for t in promoted] == [torch.float32] * len(promoted)
    assert [t.dtype for t in as_given] == [dtype] * len(as_given)
    assert integer.dtype == torch.int64
    assert (single @ single).dtype == torch.float32


@pytest.mark.slow
def test_a_function_of_several_operators_is_cast_operator_by_operator(session: Session) -> None:
    """Multi-head attention that hands out its weights: products in bfloat16, their softmax in float32, as ATen does."""
    attention = nn.MultiheadAttention(64, 4, batch_first=True, device="cuda")
    logits = torch.randn(2, 8, 64, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        before = live(session)
        out, weights = attention(logits, logits, logits)
        assert (out.dtype, weights.dtype) == (torch.bfloat16, torch.float32)
        assert F.gumbel_softmax(logits.bfloat16()).dtype == torch.float32
        assert F.normalize(logits.bfloat16()).dtype == torch.float32
        scores = 2 * 4 * 8 * 8
        assert live(session) - before > scores * (4 + 2)  # the softmax's result, and what the product makes of it
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=False):
        assert attention(logits, logits, logits)[0].dtype == torch.float32


def test_autocast_can_be_off_within_itself(session: Session) -> None:
    single = torch.randn(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.autocast("cuda", enabled=False):
            assert (single @ single).dtype == torch.float32
        assert (single @ single).dtype == torch.bfloat16
    with torch.autocast("cuda", enabled=False):
        assert (single @ single).dtype == torch.float32


def test_casted_weight_is_held_once_and_until_autocast_is_left(session: Session) -> None:
    layer = nn.Linear(1024, 1024, bias=False, device="cuda")
    x = torch.ones(1, 1024, device="cuda", dtype=torch.bfloat16)
    casted = 2 * 1024 * 1024
    with torch.no_grad():
        before = live(session)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            layer(x)
            assert live(session) - before == casted
            layer(x)
            assert live(session) - before == casted
        assert live(session) == before
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            layer(x)
            assert live(session) == before


def test_gradients_of_casted_weights_are_in_the_weights_dtype(session: Session) -> None:
    layer = nn.Linear(16, 16, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = layer(torch.ones(2, 16, device="cuda")).float().sum()
    loss.backward()
    assert layer.weight.grad is not None
    assert (layer.weight.grad.dtype, layer.weight.grad.device) == (torch.float32, GPU)


UNUSED = """
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
def train(unused=True, **options):
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]).cuda()
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers
        def forward(self, x):
            return layers[0](x) if unused else layers[1](layers[0](x))
    model = DistributedDataParallel(Model(), **options)
    try:
        with model.no_sync():  # nothing is reduced here, and nothing has to be
            model(torch.ones(1, 4, device="cuda")).sum().backward()
        model(torch.ones(1, 4, device="cuda"))  # a forward without a backward begins no reduction
        for _ in range(2):
            model(torch.ones(1, 4, device="cuda")).sum().backward()
    except RuntimeError as error:
        return str(error)
    return "fine"
answer(unused=train(), found=train(find_unused_parameters=True), used=train(unused=False))
"""


@pytest.mark.slow
def test_ddp_trains_and_its_collectives_are_recorded(tmp_path: Path) -> None:
    record = rehearse(tmp_path, DDP, world=4)
    parameters = 64 * 256 + 256 + 256 * 8 + 8
    assert record.steps == 2
    assert record.parameters_without_gradient == []
    totals = {total.operator: total for total in record.collectives}
    reduced = totals["allreduce_"]
    assert reduced.count >= record.steps
    assert reduced.bytes == record.steps * 4 * parameters
    assert "barrier" in totals
    assert totals["broadcast_"].bytes >= 4 * parameters
    assert "every rank's model has the same parameters" in [entry.what for entry in record.assumptions]


COPIED_DDP = """
import copy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = DistributedDataParallel(nn.Linear(64, 8).cuda(), device_ids=[0])
for step in range(2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    model = copy.deepcopy(model)
"""


@pytest.mark.slow
def test_a_copy_of_a_ddp_module_reduces_its_own_gradients(tmp_path: Path) -> None:
    record = rehearse(tmp_path, COPIED_DDP, world=4)
    assert record.outcome == "completed", record.failure
    reduced = {total.operator: total for total in record.collectives}["allreduce_"]
    assert reduced.bytes == 2 * 4 * (64 * 8 + 8)


def test_ddp_asks_whether_the_last_reduction_was_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    told = answers(folder, UNUSED, world=2)
    assert told["unused"].startswith("Expected to have finished reduction in the prior iteration")
    assert "did not receive grad for rank 0: 2 3" in told["unused"]
    assert told["found"] == told["used"] == "fine"
