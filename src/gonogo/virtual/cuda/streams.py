"""``torch.cuda.Stream`` and ``Event``: they order nothing, since no kernels run; times are wall-clock times."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import torch

from gonogo.finding import translated
from gonogo.virtual import private
from gonogo.virtual.cuda.state import Replacement, VirtualCuda


def replacements(cuda: VirtualCuda) -> Iterator[Replacement]:
    """Yield (module, attribute name, replacement) for streams and events of ``torch.cuda``."""
    stream_class, external_class, event_class = _classes(cuda)
    private.register_stream_classes(stream_class, event_class)
    for module in (torch.cuda, torch.cuda.streams):
        yield module, "Stream", stream_class
        yield module, "ExternalStream", external_class
        yield module, "Event", event_class
    generic_stream, generic_event = _generic_classes(cuda, stream_class, event_class)
    yield torch, "Stream", generic_stream
    yield torch, "Event", generic_event

    def default_stream(device: Any = None) -> Any:
        return stream_class(stream_id=0, device_index=_device_index(cuda, device))

    def current_stream(device: Any = None) -> Any:
        index = _device_index(cuda, device)
        return cuda.current_streams.get(index) or default_stream(index)

    def set_stream(stream: Any) -> None:
        if stream is not None:
            cuda.current_device = stream.device_index
            if stream.stream_id == 0:
                cuda.current_streams.pop(stream.device_index, None)
            else:
                cuda.current_streams[stream.device_index] = stream

    def stream_from_external(data_ptr: int, device: Any = None) -> Any:
        return external_class(data_ptr, device)

    yield torch.cuda, "default_stream", default_stream
    yield torch.cuda, "current_stream", current_stream
    yield torch.cuda, "set_stream", set_stream
    yield (
        torch.cuda,
        "_set_stream_by_id",
        lambda stream_id, device_index, device_type=cuda.c10_type: set_stream(
            stream_class(stream_id=stream_id, device_index=device_index)
        ),
    )
    yield torch.cuda, "get_stream_from_external", stream_from_external
    yield torch.cuda, "is_current_stream_capturing", lambda: False
    yield torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", lambda: False
    graph_class = _graph_class(cuda)
    yield torch.cuda, "CUDAGraph", graph_class
    yield torch.cuda.graphs, "CUDAGraph", graph_class
    yield torch.cuda.graphs, "_graph_pool_handle", lambda: (0, 1)


def _device_index(cuda: VirtualCuda, device: Any) -> int:
    cuda.initialise()
    return cuda.device_index(device)


def _graph_class(cuda: VirtualCuda) -> type:
    class CUDAGraph:
        """Not supported: a captured graph runs kernels without Python, so it can't be rehearsed."""

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            raise cuda.unsupported(
                "torch.cuda.CUDAGraph",
                translated(
                    "a captured CUDA graph replays its kernels without the Python code that a rehearsal follows"
                ),
            )

    return CUDAGraph


def _classes(cuda: VirtualCuda) -> tuple[type, type, type]:
    """The classes ``Stream``, ``ExternalStream`` and ``Event`` of a facade."""
    numbers = itertools.count(1)

    class Stream(torch._C.Stream):
        """Replaces ``torch.cuda.Stream``."""

        _priority: int
        _before: tuple[Any, Any]

        def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
            cuda.initialise()
            index = kwargs.get("device_index")
            index = cuda.device_index(device) if index is None else index
            cuda.check_ordinal(index)
            number = kwargs.get("stream_id", kwargs.get("stream_ptr"))
            number = next(numbers) if number is None else number
            stream = super().__new__(cls, stream_id=number, device_index=index, device_type=cuda.c10_type)
            stream._priority = priority
            return stream

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        @property
        def priority(self) -> int:
            return int(self._priority)

        @property
        def _as_parameter_(self) -> Any:
            import ctypes

            return ctypes.c_void_p(self.stream_id)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return 0, -5

        def is_capturing(self) -> bool:
            """Always False, since CUDA graphs are not rehearsed."""
            return False

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            pass

        def wait_event(self, event: Any) -> None:
            pass

        def wait_stream(self, stream: Any) -> None:
            pass

        def record_event(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def __enter__(self) -> Any:
            self._before = (cuda.api.current_stream(self.device_index), cuda.api.current_stream())
            cuda.api.set_stream(self)
            return self

        def __exit__(self, *error: object) -> None:
            for stream in self._before:
                cuda.api.set_stream(stream)

        def __repr__(self) -> str:
            return f"<torch.{cuda.kind}.Stream device={self.device} {cuda.kind}_stream={self.cuda_stream:#x}>"

    class ExternalStream(Stream):
        """Replaces ``torch.cuda.ExternalStream``."""

        def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
            return super().__new__(cls, device, stream_ptr=stream_ptr)

    class Event:
        """Replaces ``torch.cuda.Event``; the time between two events is the process's wall-clock time."""

        def __init__(
            self,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> None:
            self._timed = enable_timing
            self._recorded: float | None = None
            self.device: torch.device | None = None

        @property
        def cuda_event(self) -> int:
            return id(self)

        event_id = cuda_event

        @classmethod
        def from_ipc_handle(cls, device: Any, handle: Any) -> Any:
            raise cuda.unsupported(
                "torch.cuda.Event.from_ipc_handle",
                translated("a rehearsal has no CUDA event of another process to open"),
            )

        def record(self, stream: Any = None) -> None:
            stream = cuda.api.current_stream() if stream is None else stream
            self.device = stream.device
            self._recorded = time.perf_counter()

        def wait(self, stream: Any = None) -> None:
            pass

        def query(self) -> bool:
            return True

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end_event: Any) -> float:
            if not (self._timed and end_event._timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._recorded is None or end_event._recorded is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            return max(float(end_event._recorded - self._recorded) * 1000.0, 1e-3)

        def ipc_handle(self) -> bytes:
            raise cuda.unsupported(
                "torch.cuda.Event.ipc_handle", translated("another process can't open a CUDA event of a rehearsal")
            )

        def __repr__(self) -> str:
            return f"<torch.{cuda.kind}.Event {'uninitialized' if self._recorded is None else hex(id(self))}>"

    return Stream, ExternalStream, Event


def _generic_classes(cuda: VirtualCuda, stream_class: Any, event_class: Any) -> tuple[type, type]:
    """``torch.Stream`` and ``torch.Event``: CUDA's if requested (or by default), else torch's own."""
    real_stream, real_event = torch._C.Stream, getattr(torch._C, "Event", event_class)  # missing in torch up to 2.3

    class _StreamMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real_stream)

    class _EventMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (real_event, event_class))

    class Stream(metaclass=_StreamMeta):
        """``torch.Stream(device, priority=0)``."""

        def __new__(cls, device: Any = None, *, priority: int = 0, **kwargs: Any) -> Any:
            if kwargs.get("device_type", cuda.c10_type) == cuda.c10_type and (
                device is None or is_virtual_device(device)
            ):
                return stream_class(device, priority, **kwargs)
            return real_stream(device, priority=priority, **kwargs)

    class Event(metaclass=_EventMeta):
        """``torch.Event(device, enable_timing=False, …)``."""

        def __new__(cls, device: Any = None, **kwargs: Any) -> Any:
            if device is None or is_virtual_device(device):
                return event_class(**kwargs)
            return real_event(device, **kwargs)

    def is_virtual_device(device: Any) -> bool:
        return isinstance(device, int) or torch.device(device).type == cuda.kind

    return Stream, Event
