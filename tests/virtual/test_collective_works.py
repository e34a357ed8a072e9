"""What a collective hands back: its work and its future, and what came from a rank that is not rehearsed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    for name, value in {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "29501"}.items():
        monkeypatch.setenv(name, value)
    with virtual_session(tmp_path) as session:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl")
        yield session


def test_the_work_is_done_and_its_future_has_the_outputs(session: Session) -> None:
    """As ProcessGroupNCCL's: a loop until ``is_completed`` ends, and ``then`` is given the list of outputs."""
    sent = torch.ones(4, device="cuda")
    work = dist.all_reduce(sent, async_op=True)
    assert work is not None
    assert work.is_completed()
    assert work.wait()
    (result,) = work.get_future().then(lambda future: [future.value()[0] * 2]).value()
    assert result.device == sent.device
    assert result.tolist() == [16.0] * 4
    parts = [torch.empty_like(sent) for _ in range(8)]
    gathered = dist.all_gather(parts, sent, async_op=True)
    assert gathered is not None
    assert len(gathered.get_future().value()[0]) in (4, 8)


@pytest.mark.parametrize("hook", ["fp16", "bf16", "powerSGD", "own"])
def test_hooks_of_distributed_data_parallel(session: Session, hook: str) -> None:
    model = DistributedDataParallel(nn.Linear(256, 256, device="cuda"), device_ids=[0])

    def own(group, bucket):  # type: ignore[no-untyped-def]  # torch looks at annotations, which are text here
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        assert work is not None
        return work.get_future().then(lambda future: future.value()[0] / 8)

    if hook == "powerSGD":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    else:
        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook, "own": own}
        model.register_comm_hook(None, hooks[hook])
    for _ in range(3):
        model(torch.randn(4, 256, device="cuda")).sum().backward()
        assert model.module.weight.grad is not None
        assert model.module.weight.grad.device.type == "cuda"


def test_what_another_rank_alone_knows_is_not_known(session: Session) -> None:
    """A buffer of zeros that another rank fills is no buffer of zeros; the first rank tells what all have."""
    said = session.ledger.entries
    buffer = torch.zeros(2, device="cuda")
    dist.broadcast(buffer, 0)
    assert buffer.tolist() == [0.0, 0.0]
    assert not said()
    dist.broadcast(buffer, 3)
    assert buffer[0].item() != 0.0
    assert len(said()) == 1
    received = torch.zeros(2, device="cuda")
    dist.recv(received, 1)
    assert received[0].item() != 0.0
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, buffer, 1), dist.P2POp(dist.irecv, received.zero_(), 7)]
    ):
        work.wait()
    assert received[0].item() != 0.0


@pytest.mark.slow
def test_context_parallel_attention_takes_the_fused_kernel(session: Session) -> None:
    """DTensors of virtual tensors: on the math path, plain tensors would meet them."""
    parallel = pytest.importorskip("torch.distributed.tensor.experimental", reason="newer than torch 2.4")
    if not hasattr(parallel, "context_parallel"):
        pytest.skip("this torch has no context_parallel")
    mesh = dist.device_mesh.init_device_mesh("cuda", (8,))
    queries = torch.randn(1, 4, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    whole = torch.randn(1, 512, device="cuda")
    with parallel.context_parallel(mesh, buffers=(whole,), buffer_seq_dims=(1,)):
        assert whole.shape == (1, 64)
        out = F.scaled_dot_product_attention(queries, queries, queries, is_causal=True)
        out.sum().backward()
    assert out.shape == queries.shape
    assert queries.grad is not None
