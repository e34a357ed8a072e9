"""The stand-in for xFormers: attention of every form that training calls, its masks, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from virtual.worlds import virtual_session

from gonogo.virtual.ranks.session import Session
from gonogo.virtual.unsupported import UnsupportedOperator


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    if find_spec("xformers") is not None:
        pytest.fail("xFormers is installed here: the stand-in is not what is found")
    with virtual_session(tmp_path_factory.mktemp("scratch")) as session:
        yield session


def on_gpu(*shape: int, dtype: Any = torch.bfloat16, grad: bool = True) -> Any:
    return torch.zeros(*shape, device="cuda", dtype=dtype, requires_grad=grad)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", [(2, 16, 4, 32), (2, 16, 32), (2, 16, 2, 2, 32)])
def test_dense_attention_has_gradients_in_every_form(session: Session, dtype: Any, shape: tuple[int, ...]) -> None:
    from xformers.ops import LowerTriangularMask, memory_efficient_attention

    q, k, v = (on_gpu(*shape, dtype=dtype) for _ in range(3))
    for mask in (None, LowerTriangularMask()):
        out = memory_efficient_attention(q, k, v, attn_bias=mask, p=0.1)
        assert (out.shape, out.dtype, str(out.device)) == (q.shape, dtype, "cuda:0")
        out.sum().backward()
    assert [tensor.grad.shape for tensor in (q, k, v)] == [q.shape] * 3


def test_packed_sequences_are_told_by_their_lengths(session: Session) -> None:
    from xformers.ops import fmha, unbind
    from xformers.ops.fmha.attn_bias import BlockDiagonalCausalMask, BlockDiagonalMask

    weights = on_gpu(64, 192, grad=True)
    x = on_gpu(1, 128, 64, grad=False)
    q, k, v = unbind((x @ weights).view(1, 128, 3, 4, 16), 2)
    mask = BlockDiagonalCausalMask.from_seqlens([100, 28])
    for one in (mask, mask.make_local_attention(16), BlockDiagonalMask.from_seqlens([128], [128])):
        fmha.memory_efficient_attention(q, k, v, one).sum().backward(retain_graph=True)
    assert weights.grad.shape == weights.shape
    mask, packed = fmha.BlockDiagonalMask.from_tensor_list([on_gpu(2, 5, 4, 16), on_gpu(1, 3, 4, 16)])
    assert packed.shape == (1, 13, 4, 16)
    assert [part.shape for part in mask.split(packed)] == [(2, 5, 4, 16), (1, 3, 4, 16)]
    real = BlockDiagonalCausalMask.from_seqlens([2, 1]).materialize((3, 3))
    inf = float("inf")
    assert real.tolist() == [[0, -inf, -inf], [0, 0, -inf], [-inf, -inf, 0]]


def test_a_tensor_of_biases_and_a_chosen_kernel(session: Session) -> None:
    from xformers.ops import MemoryEfficientAttentionFlashAttentionOp, fmha, memory_efficient_attention

    q, k, v = (on_gpu(2, 16, 4, 32) for _ in range(3))
    bias = on_gpu(2, 4, 16, 16, grad=False)
    for given in ({"attn_bias": bias}, {"op": MemoryEfficientAttentionFlashAttentionOp}, {"op": (fmha.cutlass.FwOp,)}):
        memory_efficient_attention(q, k, v, **given).sum().backward()
    with pytest.raises(UnsupportedOperator, match="xFormers is not installed here"):
        fmha.merge_attentions([q], [k])


def test_what_the_real_one_refuses(session: Session) -> None:
    from xformers.ops import memory_efficient_attention
    from xformers.ops.fmha.attn_bias import BlockDiagonalMask

    q, k = on_gpu(2, 16, 4, 32), on_gpu(2, 16, 2, 32)
    with pytest.raises(ValueError, match="Incompatible shapes"):
        memory_efficient_attention(q, k, k)
    with pytest.raises(ValueError, match="all have the same dtype"):
        memory_efficient_attention(q, q.float(), q)
    with pytest.raises(ValueError, match="Expected batch_size=1"):
        memory_efficient_attention(q, q, q, BlockDiagonalMask.from_seqlens([16, 16]))
    with pytest.raises(NotImplementedError, match="No operator found"):
        memory_efficient_attention(q.cpu(), q.cpu(), q.cpu())


def test_its_layers(session: Session) -> None:
    from xformers.ops import RMSNorm, SwiGLU

    x = on_gpu(2, 16, 32)
    RMSNorm(32).cuda()(x.float()).sum().backward()
    layer = SwiGLU(32, 64).cuda().bfloat16()
    assert layer(x).shape == x.shape
    assert set(layer.state_dict()) == {"w12.weight", "w12.bias", "w3.weight", "w3.bias"}


def test_memory_of_the_flash_kernel_does_not_grow_with_the_square(session: Session) -> None:
    from xformers.ops import memory_efficient_attention

    q, k, v = (on_gpu(1, 8192, 8, 64) for _ in range(3))
    before = session.memory.device(torch.device("cuda", 0)).live
    out = memory_efficient_attention(q, k, v)
    kept = session.memory.device(torch.device("cuda", 0)).live - before
    assert out.nbytes <= kept < 2 * out.nbytes
