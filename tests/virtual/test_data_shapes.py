"""The kinds of batches that other ranks will read, seen from one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, IterableDataset, SequentialSampler

from gonogo.virtual.values.batches import describe_batch
from gonogo.virtual.values.data_shapes import shapes_by_rank


class Mixture(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample: dict[str, Any] = {"input_ids": torch.zeros(4 + index, dtype=torch.int64)}
        if index % 4 == 2:
            sample["pixel_values"] = torch.zeros(3, 8, 8)
        return sample


TEXT = "input_ids int64 2d"
IMAGE = "input_ids int64 2d, pixel_values float32 4d"


def test_of_a_distributed_sampler() -> None:
    data = Mixture()
    loader = DataLoader(data, sampler=DistributedSampler(data, num_replicas=4, rank=1, shuffle=False))
    assert shapes_by_rank(loader, 1, 4, 1) == [TEXT, TEXT, IMAGE, TEXT]
    assert shapes_by_rank(loader, 1, 4, 9)[2] == f"{IMAGE} | {IMAGE}"


def test_of_accelerates_share_of_a_batch_sampler() -> None:
    data = Mixture()
    batches = BatchSamplerShard(BatchSampler(SequentialSampler(data), 1, False), num_processes=4, process_index=0)
    assert shapes_by_rank(DataLoader(data, batch_sampler=batches), 0, 4, 1) == [TEXT, TEXT, IMAGE, TEXT]


class Stream(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter(range(4))


@pytest.mark.parametrize("loader", [DataLoader(Mixture()), DataLoader(Stream())])
def test_where_only_this_ranks_data_is_known(loader: Any) -> None:
    assert shapes_by_rank(loader, 0, 4, 1) == []


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"x": torch.zeros(2, 3), "empty": None, "ids": ["a"]}, (("x", "float32 [2, 3]"), ("ids", "list of 1"))),
        ((torch.zeros(2), 3), (("0", "float32 [2]"), ("1", "int"))),
        (torch.zeros(()), (("0", "float32 []"),)),
    ],
)
def test_a_batch_in_a_few_words(batch: Any, expected: Any) -> None:
    assert describe_batch(batch) == expected
