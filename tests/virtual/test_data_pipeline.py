"""Data on the CPU is as real in a rehearsal as in the run: whatever makes it, and whoever reads it."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from virtual.data_operations import CASES, made, outcome, outcomes
from virtual.worlds import virtual_session

from gonogo.evidence.rehearsal.loading import LoaderSharedMemory
from gonogo.virtual.hooks.lifecycle import RehearsalComplete
from gonogo.virtual.ranks.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with virtual_session(tmp_path) as session:
        yield session


def differ(expected: Any, found: Any) -> bool:
    """Whether two outcomes are not the same, but for rounding."""
    if isinstance(expected, float) and isinstance(found, float):
        return not math.isclose(expected, found, rel_tol=1e-4, abs_tol=1e-5) and not (
            math.isnan(expected) and math.isnan(found)
        )
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) != len(found) or any(map(differ, expected, found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() != found.keys() or any(differ(expected[key], found[key]) for key in expected)
    return bool(expected != found)


def in_a_loader(data: Any, case: Any, **options: Any) -> Any:
    loader = DataLoader([data], batch_size=1, collate_fn=lambda rows: [outcome(case, rows[0])], **options)
    (batch,) = loader
    return batch[0]


READ_BY_C = {"pack_padded_sequence"}
"""Their C++ reads a tensor's bytes: a program that does so with data outside a loader can't be rehearsed."""


@pytest.mark.slow
def test_what_pipelines_do_with_data_gives_what_it_gives_for_real(tmp_path: Path) -> None:
    real = dict(outcomes())
    assert [name for name, told in real.items() if isinstance(told, str) and "Error" in told] == []
    with virtual_session(tmp_path):
        found = {("in the program", name): told for name, told in outcomes() if name not in READ_BY_C}
        found |= {("in a loader", name): in_a_loader(made(), case) for name, case in CASES.items()}
    assert {key: (real[key[1]], told) for key, told in found.items() if differ(real[key[1]], told)} == {}


@pytest.mark.slow
def test_batches_of_a_pinning_loader_go_to_the_device(session: Session) -> None:
    rows = [torch.tensor([1, 2, 3]), torch.tensor([4])] * 2
    seen: list[Any] = []

    def collate(batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        labels = pad_sequence(batch, batch_first=True, padding_value=-100)
        labels[labels == 2] = -100
        seen.append(type(labels))
        return {"labels": labels, "mask": torch.where(labels >= 0, labels, 0).ne(0)}

    for batch in DataLoader(rows, batch_size=2, num_workers=2, pin_memory=True, collate_fn=collate):
        assert batch["labels"].device == torch.device("cpu")
        assert batch["labels"].is_pinned()
        assert batch["labels"].cuda().tolist() == [[1, -100, 3], [4, -100, -100]]
        assert batch["mask"].sum().item() == 3
    assert seen == [torch.Tensor] * 2


@pytest.mark.slow
def test_what_a_loader_changes_is_changed_in_the_program(session: Session) -> None:
    row, counts = torch.tensor([1, 2, 3]), torch.zeros(4)

    def collate(batch: list[torch.Tensor]) -> torch.Tensor:
        counts.add_(1)
        counts[0] = 7
        batch[0][1:] = -100
        batch[0].unsqueeze_(0)
        return batch[0]

    (batch,) = DataLoader([row], collate_fn=collate)
    assert batch.tolist() == row.tolist() == [[1, -100, -100]]
    assert counts.tolist() == [7, 1, 1, 1]


def test_what_is_unknown_stays_virtual_in_a_loader(session: Session) -> None:
    scores = nn.Parameter(torch.empty(4, 3)).detach()
    on_gpu = torch.ones(4, device="cuda")
    (batch,) = DataLoader([0], collate_fn=lambda _: (scores[:2] * 2, on_gpu + torch.ones(4, device="cuda"), scores))
    assert [one.shape for one in batch] == [(2, 3), (4,), (4, 3)]
    assert batch[1].tolist() == [2] * 4
    assert session.ledger.entries() == []


@pytest.mark.slow
def test_data_that_is_asked_for_anew_because_it_has_ended_has_enough(session: Session) -> None:
    layer = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(layer.parameters())
    loader = DataLoader(torch.ones(64, 4), batch_size=2)

    def train() -> None:
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(loader)
                batch = next(batches)
            layer(batch.cuda()).sum().backward()
            optimizer.step()

    with pytest.raises(RehearsalComplete):
        train()
    assert [len(list(loader)) for _ in range(2)] == [1, 1]  # as a loop over epochs has it, which goes on to its end


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "options", "shown"), [(33, {}, [8, 8, 8, 8, 1]), (33, {"drop_last": True}, [8, 8]),
                                                        (34, {}, [8, 8]), (8 * 40 + 1, {}, [8, 8])])  # fmt: skip
def test_a_last_batch_of_one_row_is_rehearsed_where_it_is_near(
    session: Session, rows: int, options: dict[str, bool], shown: list[int]
) -> None:
    layer = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(layer.parameters())
    loader = DataLoader(torch.ones(rows, 4), batch_size=8, **options)
    seen: list[list[int]] = []
    for _ in range(2):
        seen.append([])
        for batch in loader:
            seen[-1].append(len(batch))
            layer(batch.cuda()).sum().backward()
            optimizer.step()
    assert seen == [shown, [8]]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "read"), [(24, 12), (8_000, 2)])
def test_data_is_read_to_its_end_where_that_costs_little(session: Session, rows: int, read: int) -> None:
    session.life.to_the_end = True
    layer = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(layer.parameters())
    seen = 0
    for batch in DataLoader(torch.ones(rows, 4), batch_size=2):
        seen += 1
        layer(batch.cuda()).sum().backward()
        optimizer.step()
    assert seen == read


def test_a_loop_that_comes_to_a_step_by_itself_comes_to_it_once(session: Session, tmp_path: Path) -> None:
    """Its counter is not set meanwhile: what is done there would be done twice."""
    session.life.to_the_end = True
    program = tmp_path / "train.py"
    program.write_text("for step in range(12):\n    train()\n    if step % 5 == 4:\n        save(step)\n")
    layer = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(layer.parameters())
    saved: list[int] = []

    def train() -> None:
        layer(torch.ones(2, 4).cuda()).sum().backward()
        optimizer.step()

    exec(compile(program.read_text(), str(program), "exec"), {"train": train, "save": saved.append})
    assert saved == [4, 9]


@pytest.mark.parametrize("change", [abs, lambda row: row])
def test_spawned_workers_are_handed_the_data_set(session: Session, change: Any) -> None:
    loader = DataLoader(_Changed(change), num_workers=1, multiprocessing_context="spawn")
    if change is abs:
        assert len(list(loader)) == 2
        return
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        list(loader)


class _Changed(Dataset[Any]):
    def __init__(self, change: Any) -> None:
        self.change = change

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return self.change(torch.ones(2))


@pytest.mark.parametrize(("total", "ends"), [(10, False), (9, True), (3, True)])
def test_a_schedule_that_is_over_before_the_data_is_rehearsed_to_its_end(
    session: Session, total: int, ends: bool
) -> None:
    layer = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=total)

    def train() -> None:
        for number, batch in enumerate(DataLoader(torch.ones(20, 4), batch_size=1)):
            layer(batch.cuda()).sum().backward()
            if number % 2:
                optimizer.step()
                scheduler.step()

    if ends:
        with pytest.raises(ValueError, match="number of total steps"):
            train()
    else:
        train()
    assert session.life.ahead.overstepped == ends


def test_a_schedule_of_one_epoch_is_over_in_the_second_whatever_data_was_left_out(session: Session) -> None:
    layer = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    loader = DataLoader(torch.ones(6, 4), batch_size=1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader))

    def train() -> None:
        for _ in range(6):
            for batch in loader:
                layer(batch.cuda()).sum().backward()
                optimizer.step()
                scheduler.step()

    with pytest.raises(ValueError, match="number of total steps"):
        train()
    assert session.life.data_ended is not None
    assert session.life.ahead.overstepped


class Samples:
    """A data set whose samples go to the device, or only lie there."""

    def __init__(self, device: str, moves_to: str) -> None:
        self.rows = torch.ones(4, 2, device=device)
        self.moves_to = moves_to

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index].to(self.moves_to)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "moves_to", "options", "refused"),
    [
        ("cpu", "cuda", {"num_workers": 2}, True),
        ("cuda", "cuda", {"num_workers": 2}, True),
        ("cpu", "cpu", {"num_workers": 2, "collate_fn": lambda rows: torch.stack(rows).cuda()}, True),
        ("cpu", "cpu", {"num_workers": 2}, False),
        ("cpu", "cuda", {}, False),
        ("cpu", "cuda", {"num_workers": 2, "multiprocessing_context": "spawn"}, False),
    ],
)
def test_a_forked_worker_cant_use_the_accelerator(
    session: Session, device: str, moves_to: str, options: dict[str, Any], refused: bool
) -> None:
    torch.cuda.set_device(0)
    torch.ones(1, device="cuda")
    batches = iter(DataLoader(Samples(device, moves_to), batch_size=2, **options))
    if refused:
        with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
            next(batches)
    else:
        assert next(batches).shape == (2, 2)


def test_a_worker_of_a_process_without_cuda_has_its_own(session: Session) -> None:
    assert not torch.cuda.is_initialized()
    assert next(iter(DataLoader(Samples("cpu", "cuda"), batch_size=2, num_workers=2))).is_cuda


def test_what_workers_would_keep_in_shared_memory_is_told(session: Session) -> None:
    """Whole pages of each tensor once; as many batches as they read ahead, or as there are; the most of all loaders."""
    rows = [{"image": torch.zeros(1000), "name": "a"} for _ in range(40)]
    for batch in DataLoader(rows, batch_size=4):
        assert batch["image"].shape == (4, 1000)
    assert session.life.loading is None
    next(iter(DataLoader(rows, batch_size=4, num_workers=3)))
    assert session.life.loading == LoaderSharedMemory(workers=3, ahead=6, batch_bytes=16384)
    assert session.life.loading.held_bytes == 6 * 16384
    next(iter(DataLoader(rows, batch_size=4, num_workers=1)))
    assert session.life.loading.workers == 3
    next(iter(DataLoader(rows, batch_size=20, num_workers=2, prefetch_factor=9)))
    assert session.life.loading == LoaderSharedMemory(workers=2, ahead=2, batch_bytes=81920)
