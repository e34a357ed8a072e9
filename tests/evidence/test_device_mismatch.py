from __future__ import annotations

import time

import pytest

from gonogo.evidence.rehearsal.device_mismatch import device_mismatch, mismatch_in_message, operands_on
from gonogo.evidence.rehearsal.record import Failure, Operand

SAME = "Expected all tensors to be on the same device"


@pytest.mark.parametrize(
    ("message", "devices", "argument"),
    [
        (f"{SAME}, but found at least two devices, cuda:0 and cpu!", ("cuda:0", "cpu"), None),
        (
            f"{SAME}, but found at least two devices, cuda:3 and cuda:0! (when checking argument for argument target "
            "in method wrapper_CUDA_nll_loss_forward)",
            ("cuda:3", "cuda:0"),
            "target",
        ),
        (f"{SAME}, but found at least two devices, npu:0 and cpu!", ("npu:0", "cpu"), None),
        (
            f"{SAME}, but got weight is on cpu, different from other tensors on cuda:0 (when checking argument in "
            "method wrapper_CUDA__native_layer_norm)",
            ("cpu", "cuda:0"),
            "weight",
        ),
        (
            "Unhandled FakeTensor Device Propagation for aten.mul.Tensor, found two different devices cuda:0, cpu",
            ("cuda:0", "cpu"),
            None,
        ),
        (
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
            ("cpu", "cuda:?"),
            "indices",
        ),
        (
            "indices should be either on cpu or on the same device as the indexed tensor (cuda:7)",
            ("cuda:7", "cuda:?"),
            "indices",
        ),
        (
            "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
            ("cuda", "cpu"),
            "weight",
        ),
        (
            f"{SAME}. Expected NPU tensor, please check whether the input tensor device is correct.",
            ("npu", "cpu"),
            None,
        ),
    ],
)
def test_each_wording(message: str, devices: tuple[str, ...], argument: str | None) -> None:
    found = mismatch_in_message(message)
    assert found is not None
    assert found.devices == devices
    assert found.argument == argument


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.cuda.HalfTensor) should be the same",
        "Input type (torch.FloatTensor) and weight type (torch.HalfTensor) should be the same",
        "CUDA error: invalid device ordinal",
        "expected scalar type Half but found Float",
        "mat1 and mat2 shapes cannot be multiplied (1x4096 and 1024x1)",
    ],
)
def test_other_errors_are_none(message: str) -> None:
    assert mismatch_in_message(message) is None


def test_sides() -> None:
    host = mismatch_in_message(f"{SAME}, but found at least two devices, cuda:0 and cpu!")
    across = mismatch_in_message(f"{SAME}, but found at least two devices, cuda:7 and cuda:0!")
    assert host is not None
    assert across is not None
    assert (host.involves_cpu, host.is_between_accelerators) == (True, False)
    assert (across.involves_cpu, across.is_between_accelerators) == (False, True)


def test_operands_tell_the_devices_and_numbers_on_the_cpu_do_not_count() -> None:
    failure = Failure(
        "RuntimeError",
        f"{SAME}, but found at least two devices, cuda:0 and cpu!",
        (),
        "forward",
        0,
        operands=(
            Operand("self", "cuda:1", "float32", (4,)),
            Operand("other", "cpu", "float32", (4,)),
            Operand("scale", "cpu", "float32", ()),
        ),
    )
    found = device_mismatch(failure)
    assert found is not None
    assert found.devices == ("cuda:1", "cpu")
    assert [operand.name for operand in operands_on(failure, "cpu")] == ["other"]


@pytest.mark.parametrize("part", ["found at least two devices, ", "but got a is on ", "Input type (torch.", "a:", "a"])
def test_hostile_messages_take_no_time(part: str) -> None:
    start = time.process_time()
    assert mismatch_in_message(part * 100_000) is None
    assert time.process_time() - start < 5
