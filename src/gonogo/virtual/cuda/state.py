"""The state of the ``torch.cuda`` facade: the number of devices, and each thread's current one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.finding import Text
from gonogo.virtual.memory.blas_workspaces import BlasWorkspaces
from gonogo.virtual.memory.caching_allocator import CachingAllocator
from gonogo.virtual.patching.patches import Patches

Replacement = tuple[Any, str, Any]
"""(module, name, replacement)."""
Unsupported = Callable[[str, Text], BaseException]
"""Creates the exception, given what a program requested and why it can't be rehearsed."""


def not_rehearsed_error(feature: str, reason: Text) -> BaseException:
    """The default exception for a feature that can't be rehearsed."""
    return NotImplementedError(f"{feature} can't be rehearsed: {reason.en}")


class VirtualCuda:
    """The state behind the facade. ``current_device`` and ``current_stream_id`` are per thread, as in CUDA.

    Ascend's facade (``npu/``) is a subclass, since ``torch.npu`` is modelled on ``torch.cuda``.
    """

    kind = "cuda"
    """The device type."""
    c10_type = 1
    """The value in c10::DeviceType."""
    visible_variable = "CUDA_VISIBLE_DEVICES"
    """The environment variable that restricts which devices of the node the process sees."""
    api: Any = torch.cuda
    """The module through which the program uses the facade."""

    def __init__(
        self,
        accelerator: Accelerator,
        count: int,
        get_allocator: Callable[[int], CachingAllocator],
        unsupported_error: Unsupported = not_rehearsed_error,
    ) -> None:
        self.accelerator = accelerator
        self.count = count
        self.allocator_of = get_allocator
        self.unsupported = unsupported_error
        self.initialized = False
        self.fractions: dict[int, float] = {}
        """Device index → what ``set_per_process_memory_fraction`` set."""
        self.visible: Callable[[], int] = lambda: count
        self.physical: Callable[[int], int] = lambda index: index
        """The number that the machine has for the device of an index: its UUID is by that."""
        self.blas: BlasWorkspaces | None = None
        """Its workspaces, where memory is counted."""
        self.patches = Patches()
        self._of_thread = threading.local()

    @property
    def current_device(self) -> int:
        """The index of this thread's current device; 0 until it is set."""
        return getattr(self._of_thread, "device", 0)

    @current_device.setter
    def current_device(self, index: int) -> None:
        self.check_ordinal(index)
        self._of_thread.device = index

    @property
    def current_streams(self) -> dict[int, Any]:
        """Device index → this thread's current stream, if it is not the default stream."""
        streams: dict[int, Any] | None = getattr(self._of_thread, "streams", None)
        if streams is None:
            streams = self._of_thread.streams = {}
        return streams

    def current_stream_id(self, index: int | None = None) -> int:
        """The id of the stream to which an allocation on the device belongs; 0 is the default stream."""
        stream = self.current_streams.get(self.current_device if index is None else index)
        return 0 if stream is None else int(stream.stream_id)

    def device_count(self) -> int:
        """The number of visible devices; once CUDA is initialised, ``CUDA_VISIBLE_DEVICES`` has no effect."""
        if not self.initialized:
            self.count = self.visible()
        return self.count

    def initialise(self) -> None:
        """The visible effects of ``torch.cuda._lazy_init``. Raises RuntimeError if no device is visible."""
        if not self.initialized:
            if self.device_count() == 0:
                raise RuntimeError(self.no_device_message())
            self.initialized = True

    def device_index(self, device: Any = None) -> int:
        """The index of ``device``, given as an index, a device, its name, or None for the current one."""
        if device is None:
            return self.current_device
        if isinstance(device, int):
            return device if device >= 0 else self.current_device
        if isinstance(device, torch.cuda.device):  # the context manager, which torch accepts too
            return int(device.idx)
        device = torch.device(device)
        if device.type != self.kind:
            raise ValueError(f"Expected a {self.kind} device, but got: {device}")
        return self.current_device if device.index is None else int(device.index)

    def device_index_to_set(self, device: Any) -> int:
        """Like :meth:`device_index`, but for ``set_device``, which requires an explicit index."""
        return int(torch.cuda._utils._get_device_index(device))

    def check_ordinal(self, index: int) -> None:
        """Raise CUDA's error for a device that does not exist."""
        self.initialise()
        if not 0 <= index < self.count:
            raise RuntimeError(self.invalid_ordinal_message(index))

    def no_device_message(self) -> str:
        """The error message if no device is visible."""
        return "No CUDA GPUs are available"

    def invalid_ordinal_message(self, index: int) -> str:
        """The error message for a device that does not exist."""
        seen = f"(device {index} was asked for; this process sees {self.count}: 0 to {self.count - 1})"
        return f"CUDA error: invalid device ordinal\n{seen}"

    def with_device_index(self, device: Any) -> Any:
        """``device`` as ``cuda:N`` if it means a CUDA device (``"cuda"``, ``1``), else unchanged. Checks N."""
        if isinstance(device, bool) or not isinstance(device, str | int | torch.device):
            return device
        found = torch.device(self.kind, device) if isinstance(device, int) else torch.device(device)
        if found.type != self.kind:
            return device
        index = self.device_index(found)
        self.check_ordinal(index)
        return torch.device(self.kind, index)

    def undo(self) -> None:
        """Remove the facade and restore ``torch``."""
        self.patches.undo()
