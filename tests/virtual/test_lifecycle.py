"""Whose a peak of host memory is: a node's first rank gathers the model to save it, and the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from virtual.worlds import virtual_session

from gonogo.virtual.hooks import lifecycle
from gonogo.virtual.hooks.lifecycle import Lifecycle, RehearsalComplete
from gonogo.virtual.memory.tracking import DeviceRecord, MemoryRecord
from gonogo.virtual.values.assumptions import Ledger


def life_on_host() -> tuple[Lifecycle, DeviceRecord]:
    memory = MemoryRecord(lambda name: DeviceRecord(name, 0, 0, None))
    life = Lifecycle(2, memory, Ledger("/nowhere"))
    host = memory.device("cpu")
    host.moment = life.phase_and_step
    return life, host


def test_what_a_save_gathers_is_the_saves_even_while_it_lingers() -> None:
    life, host = life_on_host()
    life.enter("forward")
    trained = life.memory.new_cell("cpu", 100)
    with life.during("save"):
        gathered = life.memory.new_cell("cpu", 1000)
    life.enter("step")
    record = host.as_host_memory()
    assert (record.peak_bytes, record.peak_phase, record.steady_peak_bytes) == (1100, "save", 100)
    del gathered, trained
    assert host.live == 0


def test_a_program_that_goes_on_far_beyond_its_steps_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_MAX_CHEAP_CPU_SECONDS", 0.0)
    life, _ = life_on_host()
    for _ in range(life.target + 7):
        life.on_optimizer_step("the optimizer")
    assert life.has_made_steps
    with pytest.raises(RehearsalComplete):
        life.on_optimizer_step("the optimizer")
    assert [f"steps beyond the first {life.step}" in one.what for one in life.omitted_parts()] == [True]


@pytest.mark.parametrize(("everywhere", "more"), [([300, 25], 25), ([400, 0], 0), (None, 0)])
def test_a_loop_of_cheap_steps_goes_on_as_far_as_it_is_cheap_on_each_rank(
    everywhere: list[int] | None, more: int
) -> None:
    """What it does at its fortieth step, or behind it, is then run; ranks stop at the same step."""
    life, _ = life_on_host()
    life.ask_left = lambda _: everywhere
    for _ in range(life.target + 7 + more):
        life.on_optimizer_step("the optimizer")
    with pytest.raises(RehearsalComplete):
        life.on_optimizer_step("the optimizer")


def test_of_several_optimizers_each_steps_once_in_an_iteration() -> None:
    """So that the second iteration, in which all states are there, is rehearsed; one within another is no step more."""
    life, _ = life_on_host()
    for iteration in range(life.target):
        assert not life.has_made_steps
        for optimizer in ("muon", "adamw", "critic"):
            life.on_optimizer_step(optimizer)
            assert life.step == iteration + 1
    assert life.has_made_steps


@pytest.mark.slow
@pytest.mark.parametrize(("held", "idle"), [("others", True), ("its own", False), ("stepped in backward", False)])
def test_an_optimizer_of_other_tensors_than_the_models_is_idle(tmp_path: Path, held: str, idle: bool) -> None:
    with virtual_session(tmp_path) as session:
        model = nn.Linear(4, 2).cuda()
        parameters = list(model.parameters())
        if held == "others":  # those that FSDP has replaced
            parameters = [nn.Parameter(parameter.detach().clone()) for parameter in parameters]
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        if held == "stepped in backward":
            for parameter in parameters:
                parameter.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", None))
        for _ in range(2):
            model(torch.ones(3, 4, device="cuda")).sum().backward()
            optimizer.step()
        run = session.record("completed").as_run
    assert run is not None
    assert run.idle == idle


@pytest.mark.parametrize(
    ("has_optimizer", "has_engine", "empty", "backward", "wants_step"),
    [
        (False, False, False, True, False),
        (True, False, False, True, True),
        (False, True, False, True, True),
        (False, False, True, True, True),
        (False, False, False, False, True),
    ],
    ids=["no optimizer", "one that never steps", "an engine", "no batch", "nothing trained"],
)
def test_a_program_without_an_optimizer_has_none_to_step(
    has_optimizer: bool, has_engine: bool, empty: bool, backward: bool, wants_step: bool
) -> None:
    """It ran to its own end, with nothing cut short: its backward is all that the run does."""
    life, _ = life_on_host()
    life.has_optimizer, life.has_engine, life.empty_pass = has_optimizer, has_engine, empty
    for phase in ("forward", "backward") if backward else ("forward",):
        life.enter(phase)  # type: ignore[arg-type]
    life.on_program_end()
    assert ("step" in life.expected) == wants_step


def test_an_optimizer_that_is_made_is_seen(tmp_path: Path) -> None:
    with virtual_session(tmp_path) as session:
        model = nn.Linear(2, 2)
        assert not session.life.has_optimizer
        torch.optim.Adam(model.parameters())
        assert session.life.has_optimizer


def _through_a_generator(end: Callable[[], StopIteration]) -> BaseException:
    """What ends a program that asks for its next batch by name, of a generator that goes through the loader."""

    class Loader:
        def __iter__(self) -> Loader:
            return self

        def __next__(self) -> None:
            raise end()

    def batches() -> Iterator[None]:
        yield from Loader()

    try:
        next(batches())
    except StopIteration as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(("steps", "ended", "is_of_it"), [(2, True, True), (1, True, False), (2, False, False)])
def test_the_end_of_data_that_a_generator_hands_on_is_the_rehearsals(steps: int, ended: bool, is_of_it: bool) -> None:
    life, _ = life_on_host()
    for _ in range(steps):
        life.on_optimizer_step("the optimizer")
    error = _through_a_generator((lambda: life.end.stop_after(1)) if ended else StopIteration)
    assert error is not life.end.exception
    assert life.is_caused_by_ended_data(error) == is_of_it


def test_an_end_of_the_programs_own_after_the_datas_is_a_failure() -> None:
    life, _ = life_on_host()
    for _ in range(2):
        life.on_optimizer_step("the optimizer")
    _through_a_generator(lambda: life.end.stop_after(1))
    with pytest.raises(StopIteration) as own:
        next(iter(()))
    assert not life.is_caused_by_ended_data(own.value)
