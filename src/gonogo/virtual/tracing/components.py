"""The components of a session that report events to the recorder, and their plain counterparts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any, NamedTuple

from torch import nn

from gonogo.evidence.rehearsal.record import Phase
from gonogo.evidence.rehearsal.trace import NONE
from gonogo.virtual.collectives.exchange import C10dCall
from gonogo.virtual.hooks.lifecycle import Lifecycle
from gonogo.virtual.hooks.modules import ModuleTracker
from gonogo.virtual.memory.allocator_settings import AllocatorSettings
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.mode import VirtualMode
from gonogo.virtual.tracing.recorder import COLLECTIVES, OPERATORS, Recorder

_virtual_dispatch = VirtualMode.__torch_dispatch__


class ComponentFactories(NamedTuple):
    """The classes of a session's components. ``allocator`` takes the device's name, its capacity and the settings."""

    mode: Callable[..., VirtualMode]
    modules: Callable[..., ModuleTracker]
    life: Callable[..., Lifecycle]
    allocator: Callable[[str, int, AllocatorSettings], CachingAllocator]


def traced_components(recorder: Recorder) -> ComponentFactories:
    """Components that report what they do to the recorder."""
    return ComponentFactories(
        functools.partial(_TracedMode, recorder),
        functools.partial(_TracedModules, recorder),
        functools.partial(_TracedLifecycle, recorder),
        functools.partial(_TracedAllocator, recorder),
    )


class _TracedMode(VirtualMode):  # type: ignore[no-untyped-call]
    """Records each operator as a span, collectives with bytes and ranks."""

    def __init__(self, recorder: Recorder, *args: Any) -> None:
        super().__init__(*args)
        self._recorder = recorder
        self._numbers: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator as ``VirtualMode`` does, and record it."""
        recorder = self._recorder
        if get_ident() != recorder.thread:
            return _virtual_dispatch(self, func, types, args, kwargs)
        began = recorder.clock
        recorder.clock = began + 1
        number = self._numbers.get(id(func))
        if number is None:  # operators live as long as the process, so their ids are stable
            number = self._numbers[id(func)] = recorder.intern_name(str(func))
        track, detail = OPERATORS, NONE
        if func.namespace == "c10d":
            track, detail = COLLECTIVES, _collective_detail(recorder, func, args)
        try:
            return _virtual_dispatch(self, func, types, args, kwargs)
        finally:
            recorder.spans.extend((track, began, recorder.clock, number, detail))


def _collective_detail(recorder: Recorder, func: Any, args: Any) -> int:
    try:
        operation = C10dCall(func, args, None)
    except KeyError:  # an operator without a group
        return NONE
    tensors = operation.inputs or operation.outputs
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return recorder.intern_detail(bytes=nbytes, ranks=", ".join(map(str, operation.members)))


class _TracedModules(ModuleTracker):
    def __init__(self, recorder: Recorder, *args: Any) -> None:
        super().__init__(*args)
        self._recorder = recorder

    def _enter_module(self, module: nn.Module, inputs: Any) -> None:
        super()._enter_module(module, inputs)
        if not self._recorder.is_other_thread:
            self._recorder.enter_module(self.current_path or "")

    def _leave_module(self, module: nn.Module, inputs: Any, output: Any) -> None:
        super()._leave_module(module, inputs, output)
        if not self._recorder.is_other_thread:
            self._recorder.leave_modules(len(self.stack))

    def _enter_backward(self, path: str) -> None:
        super()._enter_backward(path)
        if not self.stack and not self._recorder.is_other_thread:
            self._recorder.enter_backward(path)


class _TracedLifecycle(Lifecycle):
    def __init__(self, recorder: Recorder, *args: Any) -> None:
        super().__init__(*args)
        self._recorder = recorder

    def _switch_phase(self, phase: Phase) -> None:
        super()._switch_phase(phase)
        if not self._recorder.is_other_thread:
            self._recorder.enter_phase(phase, self.step)


class _TracedAllocator(CachingAllocator):
    """Records each block and segment, with the stack that requested a block."""

    def __init__(self, recorder: Recorder, device: str, capacity_bytes: int, settings: AllocatorSettings) -> None:
        super().__init__(capacity_bytes, settings)
        self._recorder = recorder
        self._rows = recorder.register_device(device, self)
        self._driver.on_segment = self._record_segment_event

    def _record_segment_event(self, action: str, address: int, nbytes: int) -> None:
        self._rows.extend(self._recorder.allocator_event(action, address, nbytes))

    def _malloc(self, nbytes: int, stream: int) -> int:
        address = super()._malloc(nbytes, stream)
        self._rows.extend(
            self._recorder.allocator_event("alloc", address, nbytes, self._recorder.current_stack(), stream)
        )
        return address

    def _malloc_separately(self, nbytes: int, stream: int) -> int:
        address = super()._malloc_separately(nbytes, stream)
        self._rows.extend(
            self._recorder.allocator_event("alloc", address, nbytes, self._recorder.current_stack(), stream)
        )
        return address

    def _free(self, address: int) -> None:
        block = self._live.get(address)
        super()._free(address)
        assert block is not None
        self._rows.extend(self._recorder.allocator_event("free", address, block.requested))


def plain_allocator(_device: str, capacity_bytes: int, settings: AllocatorSettings) -> CachingAllocator:
    """The allocator of a rank without a trace."""
    return CachingAllocator(capacity_bytes, settings)


PLAIN = ComponentFactories(VirtualMode, ModuleTracker, Lifecycle, plain_allocator)
"""The components of a rank without a trace."""
