"""What collectives give where each rank's values are known: held against what torch does with gloo."""

from __future__ import annotations

import pytest
import torch

from gonogo.virtual.values.collective_values import collective_results, pack_tensors, reduce_tensors, unpack_tensors


def tensors(*values: list[float]) -> list[list[torch.Tensor]]:
    return [[torch.tensor(value)] for value in values]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0,)])
def test_values_travel(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    sent = torch.ones(shape).to(dtype)
    (back,) = unpack_tensors(pack_tensors([sent]))
    assert (back.dtype, back.shape) == (dtype, sent.shape)
    assert torch.equal(back, sent)


def test_one_number_for_many_elements_travels() -> None:
    assert torch.equal(unpack_tensors(pack_tensors([torch.tensor(2.0).expand(4)]))[0], torch.full((4,), 2.0))
    assert unpack_tensors(pack_tensors([torch.tensor(2.0).expand(1)]))[0].tolist() == [2.0]


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("SUM", [4, 6]), ("AVG", [2, 3]), ("MIN", [1, 2]), ("MAX", [3, 4]), ("PRODUCT", [3, 8]), ("BXOR", [2, 6])],
)
def test_reductions(reduction: str, expected: list[int]) -> None:
    out = reduce_tensors(reduction, [torch.tensor([1, 2]), torch.tensor([3, 4])])
    assert out is not None
    assert out.tolist() == expected


def test_a_reduction_that_is_not_known() -> None:
    assert reduce_tensors("PREMUL_SUM", [torch.ones(1)]) is None
    assert collective_results("allreduce_", tensors([1.0], [2.0]), 0, reduction="PREMUL_SUM") is None


@pytest.mark.parametrize(
    ("operator", "mine", "options", "expected"),
    [
        ("allreduce_", 0, {}, [[4.0, 6.0]]),
        ("reduce_", 0, {"root": 0}, [[4.0, 6.0]]),
        ("reduce_", 1, {"root": 0}, [None]),
        ("broadcast_", 0, {"root": 1}, [[3.0, 4.0]]),
        ("allgather_", 0, {}, [[1.0, 2.0], [3.0, 4.0]]),
        ("_allgather_base_", 1, {}, [[1.0, 2.0, 3.0, 4.0]]),
        ("gather_", 0, {"root": 0}, [[1.0, 2.0], [3.0, 4.0]]),
        ("gather_", 1, {"root": 0}, []),
        ("_reduce_scatter_base_", 1, {}, [[6.0]]),
        ("alltoall_base_", 1, {"splits": ([], [])}, [[2.0, 4.0]]),
        ("alltoall_base_", 0, {"splits": ([2, 0], [1, 1])}, [[1.0, 2.0, 3.0]]),
    ],
)
def test_what_a_member_gets(operator: str, mine: int, options: dict, expected: list) -> None:
    out = collective_results(operator, tensors([1.0, 2.0], [3.0, 4.0]), mine, **options)
    assert out is not None
    assert [None if one is None else one.tolist() for one in out] == expected


def test_an_operator_that_is_not_known() -> None:
    assert collective_results("allgather_coalesced_", tensors([1.0], [2.0]), 0) is None
