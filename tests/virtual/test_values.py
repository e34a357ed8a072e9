"""What is known of values: exact where it can be, an assumption on record where it can't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader
from virtual.worlds import virtual_session

from gonogo.evidence.rehearsal.record import AssumptionKind
from gonogo.virtual import private
from gonogo.virtual.ranks.session import Session
from gonogo.virtual.values.contents import CHOSEN_NUMBER


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with virtual_session(tmp_path) as session:
        yield session


def unknown(*shape: int, device: str = "cuda") -> torch.Tensor:
    """A parameter's values are unknown."""
    return nn.Parameter(torch.empty(*shape, device=device)).detach()


def assumed(session: Session) -> list[str]:
    return [entry.what for entry in session.ledger.entries()]


def test_each_assumption_that_findings_ask_for_has_its_kind(session: Session) -> None:
    values = unknown(4)
    asks: list[tuple[AssumptionKind, Callable[[], object]]] = [
        ("number", lambda: values.sum().item()),
        ("number", lambda: (values > 0).any().item()),
        ("number", lambda: values.long().sum().item()),
        ("number", lambda: torch.equal(values, values + 1)),
        ("zeros", lambda: values.cpu().numpy()),
        ("scores", lambda: values.argsort()),
        ("chosen_number", lambda: values.argmax().item()),
    ]
    for kind, ask in asks:
        session.ledger.counts.clear()
        ask()
        assert kind in {entry.kind for entry in session.ledger.entries()}, assumed(session)


def test_a_computed_number_equals_no_constant(session: Session) -> None:
    one = torch.tensor(1.0, device="cuda")
    assert torch.equal(torch.ones((), device="cuda"), one)
    assert not torch.equal(torch.randn((), device="cuda"), one)
    assert not torch.equal(one, unknown(4).sum())
    assert torch.equal(unknown(4), unknown(4)), "two copies of weights may well be"


@pytest.mark.slow
def test_values_go_through_views_writes_and_devices(session: Session) -> None:
    tensor = torch.arange(12).reshape(3, 4)
    tensor[1] = 0
    tensor.t()[0] += 100
    moved = tensor.to("cuda:3")
    target = torch.empty(3, 4, dtype=torch.float32, device="cuda:1")
    target.copy_(moved)
    assert target.cpu().tolist() == [[100, 1, 2, 3], [100, 0, 0, 0], [108, 9, 10, 11]]
    assert (target[2, 1:] * 2).sum().item() == 60
    assert assumed(session) == []


@pytest.mark.slow
def test_large_storage_of_one_number_is_known_until_part_of_it_is_written(session: Session) -> None:
    ones = torch.ones(1 << 30, device="cuda")
    assert bool((ones == 1).all())
    assert ones.add(1).amax().item() == 2
    assert assumed(session) == []
    ones[:5] = 3
    ones.amax().item()
    assert assumed(session) == ["a number computed from unknown values is 16 in one step, 1/16 in the next"]


@pytest.mark.slow
def test_large_storages_of_one_number_keep_their_shape(session: Session) -> None:
    large = torch.empty(3000, 3000).normal_()
    close = torch.isclose(large, large.mT) & torch.isfinite(large)
    assert close.shape == (3000, 3000)
    assert (torch.ones(3000, 3000) * 2).mT[7].sum().item() == 6000


@pytest.mark.slow
def test_unknown_write_makes_every_view_unknown(session: Session) -> None:
    base = torch.zeros(4, device="cuda")
    view = base[2:]
    base[:1].copy_(unknown(1))
    view.sum().item()
    assert len(assumed(session)) == 1


@pytest.mark.slow
def test_masks_select_exactly_where_they_are_known(session: Session) -> None:
    mask = torch.tensor([True, False, True, False], device="cuda")
    values = unknown(4, 3)
    assert mask.nonzero().cpu().tolist() == [[0], [2]]
    assert values[mask].shape == (2, 3)
    assert values.masked_select(mask[:, None]).shape == (6,)
    assert values[:, 0].index_put((mask,), torch.zeros(2, device="cuda")).shape == (4,)
    assert torch.unique(torch.tensor([3, 1, 3], device="cuda")).cpu().tolist() == [1, 3]
    assert assumed(session) == []


@pytest.mark.slow
def test_unknown_mask_selects_everything_and_that_is_recorded(session: Session) -> None:
    values = unknown(4, 3)
    assert values[values > 0].shape == (12,)
    assert assumed(session) == ["an unknown mask selects every element"]
    (entry,) = session.ledger.entries()
    assert entry.where.startswith(__file__)


@pytest.mark.slow
def test_unknown_values_are_finite(session: Session) -> None:
    values = unknown(4)
    assert not values.isnan().any()
    assert not torch.isinf(values).any()
    assert torch.isfinite(values.sum())
    assert not (values != values).any()
    assert set(assumed(session)) == {"values are finite (no NaN, no infinity)"}


@pytest.mark.slow
def test_false_decides_a_conjunction_and_true_a_disjunction(session: Session) -> None:
    open_condition = unknown(3) > 0
    false, true = torch.zeros(3, dtype=torch.bool, device="cuda"), torch.ones((), dtype=torch.bool, device="cuda")
    assert not bool((open_condition & false).any())
    assert bool((true | open_condition).all())
    assert bool(torch.logical_or(open_condition, true).all())
    whole = open_condition.clone()
    whole &= false
    assert not bool(whole.any())
    assert assumed(session) == []
    part = open_condition.clone()
    part[:1] &= false[:1]
    bool((open_condition & true).any())
    bool(part.any())
    assert len(assumed(session)) == 2


@pytest.mark.slow
def test_norm_is_not_negative(session: Session) -> None:
    norm = torch.linalg.vector_norm(unknown(100))
    total = torch.stack([norm, norm]).norm()
    assert not norm < 0
    assert total != -1
    assert total.item() >= 0
    assert assumed(session) == ["a number computed from unknown values is 16 in one step, 1/16 in the next"]


@pytest.mark.slow
def test_open_condition_goes_one_way_in_one_step_and_the_other_in_the_next(session: Session) -> None:
    answers = []
    for step in range(4):
        session.ledger.step = step
        answers.append(bool(unknown(1).sum() > 3))
    assert answers == [True, False, True, False]
    assert session.ledger.entries()[0].count == 4


@pytest.mark.slow
def test_while_on_an_unknown_condition_ends(session: Session) -> None:
    rounds = 0
    while bool(unknown(1).sum() > 0) and rounds < 1000:
        rounds += 1
    assert 0 < rounds < 1000


@pytest.mark.slow
def test_choices_among_unknown_scores_are_valid_and_spread(session: Session) -> None:
    _, experts = torch.topk(unknown(6, 4), 2, dim=-1)
    assert torch.bincount(experts.flatten(), minlength=4).cpu().tolist() == [3, 3, 3, 3]
    assert "choices among unknown scores are evenly spread" in assumed(session)


@pytest.mark.slow
def test_what_is_computed_of_a_choice_is_known_to_be_one(session: Session) -> None:
    _, chosen = torch.topk(unknown(6, 4), 2, dim=-1)
    for derived in (
        chosen + 1,
        chosen.flatten()[:2],
        torch.zeros(9, device="cuda")[chosen.flatten()],
        chosen.sort()[0],
    ):
        assert derived.cell.chosen, derived
    assert not (chosen * unknown(6, 2)).cell.chosen  # its values are not known at all
    assert not torch.arange(3).cell.chosen
    with pytest.raises(Exception, match=r"out of|assert") as raised:
        nn.functional.embedding(chosen + 100, unknown(8, 4))
    assert any(one.chosen for one in raised.value.gonogo_call.operands)
    chosen[0, 0].item()
    assert CHOSEN_NUMBER.en in assumed(session)


@pytest.mark.slow
def test_real_tensor_beside_a_virtual_one(session: Session) -> None:
    with private.without_dispatch_modes():
        real = torch.tensor([1.0, 2.0, 3.0])
    known = torch.ones(3)
    assert (known + real).tolist() == [2, 3, 4]
    assert real.add_(known) is real
    assert real.tolist() == [2, 3, 4]
    assert real.to("cuda").cpu().tolist() == [2, 3, 4]
    assert assumed(session) == []


@pytest.mark.slow
def test_real_tensor_into_which_something_unknown_was_written(session: Session) -> None:
    with private.without_dispatch_modes():
        real = torch.zeros(3)
    real.add_(unknown(3, device="cpu"))
    doubled = real * 2
    assert bool(doubled.sum() > 1)
    assert assumed(session) == ["a condition that depends on unknown values is true in one step, false in the next"]


@pytest.mark.slow
def test_batches_are_virtual_and_their_values_known(session: Session) -> None:
    with private.without_dispatch_modes():
        data = [{"ids": torch.tensor([i, i + 1])} for i in range(4)]
    batch = next(iter(DataLoader(data, batch_size=2)))
    ids = batch["ids"].to("cuda")
    assert ids.device.type == "cuda"
    assert ids.cpu().tolist() == [[0, 1], [1, 2]]
    assert assumed(session) == []


@pytest.mark.slow
def test_kernel_that_the_cpu_lacks_leaves_its_result_unknown(session: Session) -> None:
    heads = torch.ones(1, 1, 4, 8, device="cuda", dtype=torch.bfloat16)
    out = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    assert (out.shape, out.device.type) == (heads.shape, "cuda")
    out.sum().item()
    assert assumed(session) == ["a number computed from unknown values is 16 in one step, 1/16 in the next"]
