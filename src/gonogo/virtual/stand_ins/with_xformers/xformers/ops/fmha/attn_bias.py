"""Masks that are told by their kind and lengths (xformers/ops/fmha/attn_bias.py), not by a tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import torch

from xformers._rest import lacking

__getattr__ = lacking(
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
    """What queries attend to, in the kernels' words."""

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
    """Each query attends to its place and those before it."""

    causal = True

    def add_bias(self, bias: torch.Tensor) -> LowerTriangularMaskWithTensorBias:
        """The same with a tensor of biases."""
        return LowerTriangularMaskWithTensorBias(bias)

    def make_local_attention(self, window_size: int) -> LowerTriangularFromBottomRightLocalAttentionMask:
        """The same, of the last so many places."""
        return LowerTriangularFromBottomRightLocalAttentionMask(window_size)


class LowerTriangularFromBottomRightMask(LowerTriangularMask):
    """The same, where the last query stands at the last key."""


class LowerTriangularMaskWithTensorBias(LowerTriangularMask):
    """The same, with a tensor that is added."""

    has_tensor = True

    def __init__(self, bias: torch.Tensor) -> None:
        self.bias = bias


class LocalAttentionFromBottomRightMask(AttentionBias):
    """Each query attends to so many places on each side of it."""

    def __init__(self, window_left: int, window_right: int) -> None:
        self.window = (window_left, window_right)


class LowerTriangularFromBottomRightLocalAttentionMask(LowerTriangularFromBottomRightMask):
    """Each query attends to so many places, its own the last."""

    def __init__(self, _window_size: int) -> None:
        if _window_size < 1:
            raise ValueError(f"Expected `window_size > 0`, but window_size={_window_size}")
        self.window = (_window_size - 1, 0)


class BlockDiagonalMask(AttentionBias):
    """Sequences one behind the other in a batch of one, each attending to itself."""

    def __init__(self, q_seqlens: Sequence[int], kv_seqlens: Sequence[int], window: Window = _WHOLE) -> None:
        self.q_seqlens, self.kv_seqlens, self.window = list(q_seqlens), list(kv_seqlens), window
        self._batch_sizes: list[int] | None = None
        self.q_seqinfo, self.k_seqinfo = _SeqLenInfo(self.q_seqlens), _SeqLenInfo(self.kv_seqlens)

    @classmethod
    def from_seqlens(
        cls: type[_Blocks], q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, *, device: Any = None
    ) -> _Blocks:
        """By the lengths of the sequences."""
        if kv_seqlen is not None and len(kv_seqlen) != len(q_seqlen):
            raise AssertionError
        return cls(list(q_seqlen), list(kv_seqlen if kv_seqlen is not None else q_seqlen))

    @classmethod
    def from_tensor_list(cls: type[_Blocks], tensors: Sequence[torch.Tensor]) -> tuple[_Blocks, torch.Tensor]:
        """By tensors of (batch, length, …), which become one behind the other."""
        lengths = [tensor.shape[1] for tensor in tensors for _ in range(tensor.shape[0])]
        mask = cls.from_seqlens(lengths)
        mask._batch_sizes = [tensor.shape[0] for tensor in tensors]
        return mask, torch.cat([tensor.reshape(1, -1, *tensor.shape[2:]) for tensor in tensors], dim=1)

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors again of which one was made."""
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
        """Where each sequence begins, on the device, and the longest: of queries and keys."""
        of_q = self.q_seqinfo.seqstart.to(device)
        of_k = of_q if self.q_seqlens == self.kv_seqlens else self.k_seqinfo.seqstart.to(device)
        return of_q, of_k, self.q_seqinfo.max_seqlen, self.k_seqinfo.max_seqlen

    def make_causal(self) -> BlockDiagonalCausalMask:
        """The same, each query attending to no later place."""
        return BlockDiagonalCausalMask(self.q_seqlens, self.kv_seqlens)

    def make_causal_from_bottomright(self) -> BlockDiagonalCausalFromBottomRightMask:
        """The same, the last query of each sequence standing at its last key."""
        return BlockDiagonalCausalFromBottomRightMask(self.q_seqlens, self.kv_seqlens)

    def make_local_attention(self, window_size: int) -> BlockDiagonalCausalLocalAttentionMask:
        """Causal, over the last so many places."""
        return BlockDiagonalCausalLocalAttentionMask(self.q_seqlens, self.kv_seqlens, (window_size - 1, 0))

    def make_local_attention_from_bottomright(
        self, window_size: int
    ) -> BlockDiagonalCausalLocalAttentionFromBottomRightMask:
        """The same, the last query of each sequence standing at its last key."""
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
    """The same, each query attending to no later place."""

    causal = True


class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalCausalMask):
    """The same, the last query of each sequence standing at its last key."""


class BlockDiagonalCausalLocalAttentionMask(BlockDiagonalCausalMask):
    """Causal, over the last so many places."""


class BlockDiagonalCausalLocalAttentionFromBottomRightMask(BlockDiagonalCausalFromBottomRightMask):
    """Causal, over the last so many places, the last query standing at the last key."""


class _SeqLenInfo:
    """Lengths, and where each sequence begins."""

    def __init__(self, seqlens: Iterable[int]) -> None:
        lengths = [int(length) for length in seqlens]
        self.seqstart_py = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
        self.max_seqlen, self.min_seqlen = max(lengths, default=-1), min(lengths, default=-1)
        self.seqstart = torch.tensor(self.seqstart_py, dtype=torch.int32)

    @classmethod
    def from_seqlens(cls, seqlens: Iterable[int]) -> _SeqLenInfo:
        """By lengths."""
        return cls(seqlens)

    def intervals(self) -> Iterable[tuple[int, int]]:
        """Where each sequence begins and ends."""
        yield from zip(self.seqstart_py, self.seqstart_py[1:], strict=False)
