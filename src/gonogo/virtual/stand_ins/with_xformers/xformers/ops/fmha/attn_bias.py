"""Masks that are told by their kind and lengths (xformers/ops/fmha/attn_bias.py), not by a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import torch

from xformers._rest import missing_name_getattr

__getattr__ = missing_name_getattr(
    __name__,
    (
        *(
            "PagedBlockDiagonalPaddedKeysMask",
            "PagedBlockDiagonalCausalWithOffsetPaddedKeysMask",
            "BlockDiagonalGappyKeysMask",
        ),
        *(
            "BlockDiagonalPaddedKeysMask",
            "BlockDiagonalCausalWithOffsetPaddedKeysMask",
            "PagedBlockDiagonalGappyKeysMask",
        ),
        *("BlockDiagonalCausalWithOffsetGappyKeysMask", "BlockDiagonalLocalAttentionPaddedKeysMask", "VARLEN_BIASES"),
    ),
)
Window = tuple[int, int]
_WHOLE: Window = (-1, -1)
_Blocks = TypeVar("_Blocks", bound="BlockDiagonalMask")


class AttentionBias:
    """Base class of attention masks that the kernels implement."""

    causal: bool = False
    window: Window = _WHOLE
    has_tensor: ClassVar[bool] = False

    def to(self, device: Any) -> Any:
        """The same mask: it holds no tensor of its own until it is used."""
        return self

    def materialize(self, shape: Sequence[int], dtype: Any = torch.float32, device: Any = "cpu") -> torch.Tensor:
        """The mask as a tensor of zeros and minus infinities."""
        queries, keys = shape[-2:]
        allowed = torch.ones((queries, keys), dtype=torch.bool, device=device)
        if self.causal:
            allowed = allowed.tril()
        mask = torch.zeros((queries, keys), dtype=dtype, device=device).masked_fill(~allowed, float("-inf"))
        return mask.expand(*shape)


class LowerTriangularMask(AttentionBias):
    """A causal mask, aligned so that the first query attends to the first key."""

    causal = True

    def add_bias(self, bias: torch.Tensor) -> LowerTriangularMaskWithTensorBias:
        """The same mask with a tensor of biases that is added to the scores."""
        return LowerTriangularMaskWithTensorBias(bias)

    def make_local_attention(self, window_size: int) -> LowerTriangularFromBottomRightLocalAttentionMask:
        """The same mask, limited to a sliding window."""
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


class LowerTriangularFromBottomRightMask(LowerTriangularMask):
    """A causal mask, aligned so that the last query attends up to the last key."""


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    """A causal mask with a tensor of biases that is added to the scores."""

    has_tensor = True

    def __init__(self, bias: torch.Tensor) -> None:
        self.bias = bias


class LocalAttentionFromBottomRightMask(AttentionBias):
    """Each query attends to a window of keys around its position, aligned at the last key."""

    def __init__(self, window_left: int, window_right: int) -> None:
        self.window = (window_left, window_right)


class LowerTriangularFromBottomRightLocalAttentionMask(LowerTriangularFromBottomRightMask):
    """A causal mask with a sliding window, aligned at the last key."""

    def __init__(self, _window_size: int) -> None:
        if _window_size < 1:
            raise ValueError(f"Expected `window_size > 0`, but window_size={_window_size}")
        self.window = (_window_size - 1, 0)


class BlockDiagonalMask(AttentionBias):
    """Sequences packed into a batch of one, each attending only to itself."""

    def __init__(self, q_seqlens: Sequence[int], kv_seqlens: Sequence[int], window: Window = _WHOLE) -> None:
        self.q_seqlens, self.kv_seqlens, self.window = list(q_seqlens), list(kv_seqlens), window
        self._batch_sizes: list[int] | None = None
        self.q_seqinfo, self.k_seqinfo = _SeqLenInfo(self.q_seqlens), _SeqLenInfo(self.kv_seqlens)

    @classmethod
    def from_seqlens(
        cls: type[_Blocks], q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, *, device: Any = None
    ) -> _Blocks:
        """The mask for sequences of these lengths."""
        if kv_seqlen is not None and len(kv_seqlen) != len(q_seqlen):
            raise AssertionError
        return cls(list(q_seqlen), list(kv_seqlen if kv_seqlen is not None else q_seqlen))

    @classmethod
    def from_tensor_list(cls: type[_Blocks], tensors: Sequence[torch.Tensor]) -> tuple[_Blocks, torch.Tensor]:
        """The mask for tensors of shape (batch, length, …), and the tensors packed into one."""
        lengths = [tensor.shape[1] for tensor in tensors for _ in range(tensor.shape[0])]
        mask = cls.from_seqlens(lengths)
        mask._batch_sizes = [tensor.shape[0] for tensor in tensors]
        return mask, torch.cat([tensor.reshape(1, -1, *tensor.shape[2:]) for tensor in tensors], dim=1)

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Split a packed tensor into the tensors that :meth:`from_tensor_list` packed."""
        if self._batch_sizes is None:
            return list(tensor.split(self.q_seqlens, dim=1))  # type: ignore[no-untyped-call]
        pieces, first = [], 0
        for count in self._batch_sizes:
            length = self.q_seqlens[first]
            pieces.append(count * length)
            first += count
        parts = tensor.split(pieces, dim=1)  # type: ignore[no-untyped-call]
        sizes = zip(parts, self._batch_sizes, strict=True)
        return [part.reshape(count, -1, *part.shape[2:]) for part, count in sizes]

    def lengths(self, device: Any) -> tuple[torch.Tensor, torch.Tensor, int, int]:
        """(query offsets, key offsets, longest query sequence, longest key sequence), the offsets on ``device``."""
        of_q = self.q_seqinfo.seqstart.to(device)
        of_k = of_q if self.q_seqlens == self.kv_seqlens else self.k_seqinfo.seqstart.to(device)
        return of_q, of_k, self.q_seqinfo.max_seqlen, self.k_seqinfo.max_seqlen

    def make_causal(self) -> BlockDiagonalCausalMask:
        """The same mask, causal within each sequence."""
        return BlockDiagonalCausalMask(self.q_seqlens, self.kv_seqlens)

    def make_causal_from_bottomright(self) -> BlockDiagonalCausalFromBottomRightMask:
        """The same mask, causal within each sequence and aligned at its last key."""
        return BlockDiagonalCausalFromBottomRightMask(self.q_seqlens, self.kv_seqlens)

    def make_local_attention(self, window_size: int) -> BlockDiagonalCausalLocalAttentionMask:
        """The same mask, causal within each sequence, with a sliding window."""
        return BlockDiagonalCausalLocalAttentionMask(self.q_seqlens, self.kv_seqlens, (window_size - 1, 0))

    def make_local_attention_from_bottomright(
        self, window_size: int
    ) -> BlockDiagonalCausalLocalAttentionFromBottomRightMask:
        """The same mask, causal with a sliding window, aligned at each sequence's last key."""
        kind = BlockDiagonalCausalLocalAttentionFromBottomRightMask
        return kind(self.q_seqlens, self.kv_seqlens, (window_size - 1, 0))

    def materialize(self, shape: Sequence[int], dtype: Any = torch.float32, device: Any = "cpu") -> torch.Tensor:
        """The mask as a tensor of zeros and minus infinities."""
        whole = torch.full(tuple(shape[-2:]), float("-inf"), dtype=dtype, device=device)
        of_q = of_k = 0
        for queries, keys in zip(self.q_seqlens, self.kv_seqlens, strict=True):
            block = super().materialize((queries, keys), dtype, device)
            whole[of_q : of_q + queries, of_k : of_k + keys] = block
            of_q, of_k = of_q + queries, of_k + keys
        return whole.expand(*shape)


class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Packed sequences with a causal mask within each."""

    causal = True


class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalCausalMask):
    """Packed sequences with a causal mask within each, aligned at its last key."""


class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    """Packed sequences with a causal mask and a sliding window within each."""


class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalFromBottomRightMask):
    """Packed sequences with a causal mask and a sliding window within each, aligned at its last key."""


class _SeqLenInfo:
    """The lengths of packed sequences, and the offset at which each begins."""

    def __init__(self, seqlens: Iterable[int]) -> None:
        lengths = [int(length) for length in seqlens]
        self.seqstart_py = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        self.max_seqlen, self.min_seqlen = max(lengths, default=-1), min(lengths, default=-1)
        self.seqstart = torch.tensor(self.seqstart_py, dtype=torch.int32)

    @classmethod
    def from_seqlens(cls, seqlens: Iterable[int]) -> _SeqLenInfo:
        """Create it from the sequences' lengths."""
        return cls(seqlens)

    def intervals(self) -> Iterable[tuple[int, int]]:
        """(begin, end) of each sequence."""
        yield from zip(self.seqstart_py, self.seqstart_py[1:], strict=False)
