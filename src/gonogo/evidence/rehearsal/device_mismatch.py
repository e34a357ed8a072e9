"""Recognises errors about tensors on different devices, in any wording that PyTorch has used."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from gonogo.evidence.patterns import Pattern
from gonogo.evidence.rehearsal.record import Failure, Operand

_DEVICE = r"(?:[a-z]{2,12}:\d{1,4}|[a-z]{2,12})"
_MISMATCH_PATTERNS = (
    # at::TensorIterator and the device checks generated for most operators
    Pattern(rf"found at least two devices, ({_DEVICE}) and ({_DEVICE})"),
    # torch 2.8 and later name the tensor that differs
    Pattern(rf"but got \w{{1,64}} is on ({_DEVICE}), different from other tensors on ({_DEVICE})"),
    # torch._subclasses.fake_tensor.FakeTensor
    Pattern(rf"found two different devices ({_DEVICE}), ({_DEVICE})"),
    # torch.cat, binary operators and single kernels; each has its own wording in older releases
    Pattern(rf"tensors must be on the same device\. Received ({_DEVICE}) and ({_DEVICE})"),
    Pattern(
        rf"on (?:the )?same device, but input(?: a)? is on ({_DEVICE}) and (?:input b|grid|output) is on ({_DEVICE})"
    ),
    Pattern(rf"expected device ({_DEVICE}) but got device ({_DEVICE})"),
    # masked_fill, masked_scatter, index_fill, scatter
    Pattern(
        rf"expected self and \w{{1,32}} to be on the same device, but got \w{{1,32}} on ({_DEVICE}) and self on"
        rf" ({_DEVICE})"
    ),
    # meta kernels, which also see a tensor left on "meta"
    Pattern(rf"Tensor on device ({_DEVICE}) is not on the expected device ({_DEVICE})"),
    # torch.Tensor's setters of .grad and .data
    Pattern(rf"a gradient with device type '({_DEVICE})' to a tensor with device type '({_DEVICE})'"),
    Pattern(rf'on device "({_DEVICE})" to a storage on different device "({_DEVICE})"'),
)
_LEGACY_ARGUMENT_PATTERNS = (
    # torch 1.5 to 1.8
    Pattern(r"Tensor for (?:argument #\d+ )?'(\w{1,64})' is on (?:(CPU)|\w{1,8}), but expected"),
    Pattern(
        r"Expected object of (?:device type|backend) \w{1,12} but got (?:device type|backend) (?i:(cpu)|\w{1,12})"
        r" for argument #\d+ '(?P<argument>\w{1,64})'"
    ),
)
_INDEXING_PATTERN = Pattern(rf"on the same device as the indexed tensor \(({_DEVICE})\)")
_CONVOLUTION_PATTERN = Pattern(
    r"Input type \(torch\.(cuda\.)?\w{1,32}\) and weight type \(torch\.(cuda\.)?\w{1,32}\) should be the same"
)
_ARGUMENT_NAME_PATTERN = Pattern(
    r"but got (\w{1,64}) (?:is )?on |when checking argument for argument (\w{1,64}) in method"
)
_METHOD_PATTERN = Pattern(
    r"in method (\w{1,120})\)|while checking arguments for (\w{1,120})\)|in call to _?(?:th_)?(\w{1,120})"
)
_WRAPPER_PREFIX_PATTERN = Pattern(r"^wrapper_(?:[A-Z][A-Za-z]*_)?_*")
_NPU_MISMATCH_MESSAGE = "Expected all tensors to be on the same device. Expected NPU tensor"


class MixedDevices(msgspec.Struct, frozen=True):
    """The two devices (``cpu``, ``cuda:0`` …; without the index if the message doesn't state it)."""

    devices: tuple[str, ...]
    argument: str | None = None
    """The operator's argument that is on the other device, if the message names it."""
    argument_device: str | None = None
    """The device of that argument; None if no argument is named."""
    operator: str | None = None
    """The operator, if the message names it: ``index_select``, ``addmm``, ``nll_loss_forward``."""

    @property
    def involves_cpu(self) -> bool:
        """True if one of the devices is the CPU."""
        return "cpu" in self.devices

    @property
    def is_between_accelerators(self) -> bool:
        """True if both devices are accelerators."""
        return len({device for device in self.devices if device != "cpu"}) > 1


def mismatch_in_message(message: str) -> MixedDevices | None:
    """The device mismatch that an exception's message describes, or None. Linear in the message's length."""
    argument = _ARGUMENT_NAME_PATTERN.search(message)
    named = (argument.group(1) or argument.group(2)) if argument else None
    operator = _operator_in(message)
    for wording in _MISMATCH_PATTERNS:
        if found := wording.search(message):
            devices = (found.group(1), found.group(2))
            # Arguments are checked in order, so the last of the two devices is that of the argument named last;
            # newer messages put the mismatching device first.
            odd = devices[0] if argument and argument.group(1) else devices[1]
            return MixedDevices(devices, named, odd if named else None, operator)
    if found := _INDEXING_PATTERN.search(message):
        # Indices on the CPU are always accepted, so the rejected ones are on an accelerator, which isn't named.
        indexed = found.group(1)
        other = "cuda:?" if indexed == "cpu" else f"{indexed.partition(':')[0]}:?"
        return MixedDevices((indexed, other), "indices", other, "index")
    for older in _LEGACY_ARGUMENT_PATTERNS:
        if found := older.search(message):
            groups = found.groupdict()
            here = "cpu" if "cpu" in {str(group).lower() for group in found.groups()} else "cuda"
            name = groups.get("argument") or found.group(1)
            return MixedDevices((here, "cuda" if here == "cpu" else "cpu"), name, here, operator)
    if (found := _CONVOLUTION_PATTERN.search(message)) and (found.group(1) is None) != (found.group(2) is None):
        name = "weight" if found.group(1) else "input"
        return MixedDevices(("cuda", "cpu"), name, "cpu", operator or "convolution")
    if _NPU_MISMATCH_MESSAGE in message:
        return MixedDevices(("npu", "cpu"))
    return None


def _operator_in(message: str) -> str | None:
    if "assign a gradient with device type" in message:
        return "grad"
    found = _METHOD_PATTERN.search(message)
    name = next((group for group in found.groups() if group), "") if found else ""
    return _WRAPPER_PREFIX_PATTERN.sub("", name) or None


def device_mismatch(failure: Failure) -> MixedDevices | None:
    """The device mismatch that ended a rank, or None. Recorded operands' devices take precedence over the message."""
    mismatch = mismatch_in_message(failure.message)
    if mismatch is None:
        return None
    devices = _distinct_devices(operand.device for operand in failure.operands if not _is_exempt(operand))
    return replace(mismatch, devices=devices) if len(devices) > 1 else mismatch


def operands_on(failure: Failure, device: str) -> tuple[Operand, ...]:
    """The operands of the failing operator on a device, except those that PyTorch exempts."""
    return tuple(o for o in failure.operands if o.device == device and not _is_exempt(o))


def _is_exempt(operand: Operand) -> bool:
    """PyTorch treats a 0-dim CPU tensor as a Python number, which never causes a mismatch."""
    return operand.device == "cpu" and operand.shape == ()


def _distinct_devices(devices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(devices))
