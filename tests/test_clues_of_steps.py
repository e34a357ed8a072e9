"""Logs without an exception: what the steps' numbers say, and the stacks of a hang."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_explanations import clues, report_on

STEP = "{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 2e-05, 'epoch': {epoch}}}\n"


def steps(*values: tuple[str, str]) -> str:
    return "".join(
        STEP.format(loss=loss, norm=norm, epoch=f"{0.01 * (index + 1):.2f}")
        for index, (loss, norm) in enumerate(values)
    )


def answer(tmp_path: Path, log: str) -> str:
    report = report_on(tmp_path, log)
    return report.answer.because.en if report.answer is not None else ""


def test_the_first_loss_that_is_no_number_is_named_with_its_step(tmp_path: Path) -> None:
    said = answer(tmp_path, steps(("0.81", "2.1"), ("0.79", "1.9"), ("inf", "nan"), ("nan", "nan"), ("nan", "nan")))
    assert "the loss is inf at epoch 0.03" in said
    assert "0.79 just before" in said


def test_gradients_that_are_lost_before_the_loss_are_said(tmp_path: Path) -> None:
    said = answer(tmp_path, steps(("0.81", "2.1"), ("0.79", "nan"), ("nan", "nan"), ("nan", "nan")))
    assert "gradient norm was lost at epoch 0.02 already" in said


def test_gradients_of_zero_beside_a_loss_are_told(tmp_path: Path) -> None:
    said = answer(tmp_path, steps(("2.312", "0.0"), ("'2.318'", "'0'"), ("2.309", "0.0"), ("2.315", "0")))
    assert "the gradient norm is 0 in all 4 steps" in said
    assert "between 2.309 and 2.318" in said


def test_a_loss_that_jumps_and_stays_is_told(tmp_path: Path) -> None:
    usual = [("2.0", "1"), ("2.1", "1"), ("1.9", "1"), ("2.0", "1"), ("2.1", "1")]
    assert "jumps from 2 to 9.4 at epoch 0.06" in answer(tmp_path, steps(*usual, ("9.4", "50"), ("9.1", "30")))


@pytest.mark.parametrize(
    "log",
    [
        steps(("2.3", "1.0"), ("2.1", "0.9"), ("2.2", "0.9"), ("2.0", "1.1"), ("2.6", "0.8"), ("1.9", "0.7")),
        steps(("2.3", "0.0"), ("2.1", "0.9"), ("2.2", "0.9")),
        steps(("nan", "nan"), ("2.1", "0.9"), ("2.2", "0.9")),
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536\n" + steps(*[("2.1", "0.0")] * 4),
        steps(*[("0.0", "0.0")] * 4),
    ],
    ids=["ordinary", "zero once", "not lost for good", "loss scale", "no advantage in any group"],
)
def test_ordinary_numbers_say_nothing(tmp_path: Path, log: str) -> None:
    said = clues(report_on(tmp_path, log))
    assert not any(word in said for word in ("never a number again", "gradient norm is 0", "jumps from"))


ONE = (
    'Thread 301 (active): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2930)\n'
    "    whiten (slime/utils/distributed_utils.py:140)\n    train (slime/backends/actor.py:250)\n"
)
OTHER = (
    'Thread 300 (active): "MainThread"\n    recv_forward (megatron/core/pipeline_parallel/p2p_communication.py:310)\n'
    "    train (slime/backends/actor.py:250)\n"
)


def test_processes_in_different_calls_are_told_in_one_sentence(tmp_path: Path) -> None:
    said = answer(tmp_path, ONE + OTHER)
    assert "a rank in whiten (distributed_utils.py:140) of slime" in said
    assert "another in recv_forward (p2p_communication.py:310)" in said


def test_threads_of_one_process_do_not_wait_for_each_other(tmp_path: Path) -> None:
    said = clues(report_on(tmp_path, ONE + OTHER.replace("MainThread", "Thread-3 (_run)")))
    assert "different calls" not in said


def test_pythons_own_folders_in_py_spys_paths_are_no_telling_frame(tmp_path: Path) -> None:
    log = (
        'Thread 7 (idle): "MainThread"\n    wait (multiprocessing/synchronize.py:349)\n'
        "    commit (deepspeed/runtime/checkpoint_engine/decoupled_checkpoint_engine.py:139)\n"
    )
    assert "in commit (decoupled_checkpoint_engine.py:139) of deepspeed" in answer(tmp_path, log)


OUT_OF_MEMORY = (
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3.11/site-packages/nemo_automodel/moe.py", line 9, in permute\n'
    "    rows = tokens.index_select(0, indices)\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 28.13 GiB. GPU 5 has a total capacity of 79.11 "
    "GiB of which 11.02 GiB is free.\n"
)


def test_a_loss_that_was_lost_before_the_exception_comes_first(tmp_path: Path) -> None:
    assert "the loss was nan at epoch 0.02 already" in answer(
        tmp_path, steps(("0.81", "2.1"), ("nan", "nan")) + OUT_OF_MEMORY
    )


def test_a_loss_that_recovered_before_the_exception_is_not_blamed(tmp_path: Path) -> None:
    assert "the loss was" not in answer(tmp_path, steps(("nan", "nan"), ("0.81", "2.1")) + OUT_OF_MEMORY)
