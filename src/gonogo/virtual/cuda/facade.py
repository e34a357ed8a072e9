"""The facade of ``torch.cuda``: a process that has no CUDA device believes it has N of one type.

:func:`install` replaces the functions and classes of ``torch.cuda``, ``torch.accelerator`` and the parts of
``torch._C`` under them. No driver is entered, and on a CUDA build any other ``torch._C._cuda_*`` function raises.
Tried on torch 2.13.0 (CPU build).

The parts, one file each: ``cuda_devices.py`` (which device, and what it is), ``cuda_streams.py``, ``cuda_memory.py``,
``cuda_random.py``, ``cuda_tensors.py`` (tensors that go to the device or are pinned).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from gonogo.evidence.environment.hardware import Accelerator
from gonogo.virtual.hooks.patching import Patches

if TYPE_CHECKING:
    from gonogo.virtual.memory.caching_allocator import CachingAllocator

Unsupported = Callable[[str, str], BaseException]
"""Given what a program asked for and why it can't be rehearsed, the exception to raise."""


def _not_rehearsed(what: str, why: str) -> BaseException:
    return NotImplementedError(f"{what} can't be rehearsed: {why}")


class VirtualCuda:
    """The state behind the facade. ``current_device`` and ``current_stream_id`` are a thread's, as in CUDA.

    Ascend's facade (``npu/``) is a subclass, since ``torch.npu`` is made after ``torch.cuda``.
    """

    kind = "cuda"
    """The devices' type."""
    c10_type = 1
    """c10::DeviceType."""
    visible_variable = "CUDA_VISIBLE_DEVICES"
    """The environment variable that says which devices of the node the process sees."""
    api: Any = torch.cuda
    """The module that the program finds the facade in."""

    def __init__(
        self,
        accelerator: Accelerator,
        count: int,
        allocator_of: Callable[[int], CachingAllocator],
        unsupported: Unsupported = _not_rehearsed,
    ) -> None:
        self.accelerator = accelerator
        self.count = count
        self.allocator_of = allocator_of
        self.unsupported = unsupported
        self.initialized = False
        self.fractions: dict[int, float] = {}
        """Device index → what ``set_per_process_memory_fraction`` set."""
        self.visible: Callable[[], int] = lambda: count
        self.patches = Patches()
        self._of_thread = threading.local()

    @property
    def current_device(self) -> int:
        """Index of this thread's current device; 0 until it is set."""
        return getattr(self._of_thread, "device", 0)

    @current_device.setter
    def current_device(self, index: int) -> None:
        self.check_ordinal(index)
        self._of_thread.device = index

    @property
    def current_streams(self) -> dict[int, Any]:
        """Device index → this thread's current stream, where it is not the default one."""
        streams: dict[int, Any] | None = getattr(self._of_thread, "streams", None)
        if streams is None:
            streams = self._of_thread.streams = {}
        return streams

    def current_stream_id(self, index: int | None = None) -> int:
        """The id of the stream that an allocation on the device belongs to; 0 is the default stream."""
        stream = self.current_streams.get(self.current_device if index is None else index)
        return 0 if stream is None else int(stream.stream_id)

    def device_count(self) -> int:
        """Devices the program sees: ``CUDA_VISIBLE_DEVICES`` counts until CUDA is initialised, as on real machines."""
        if not self.initialized:
            self.count = self.visible()
        return self.count

    def initialise(self) -> None:
        """What ``torch.cuda._lazy_init`` does to the program's eyes. Raises RuntimeError where no device is visible."""
        if not self.initialized:
            if self.device_count() == 0:
                raise RuntimeError(self.none_visible())
            self.initialized = True

    def index_of(self, device: Any = None) -> int:
        """The index that ``device`` (an index, a device, its name, or None for the current one) stands for."""
        if device is None:
            return self.current_device
        if isinstance(device, int):
            return device if device >= 0 else self.current_device
        device = torch.device(device)
        if device.type != self.kind:
            raise ValueError(f"Expected a {self.kind} device, but got: {device}")
        return self.current_device if device.index is None else int(device.index)

    def index_to_set(self, device: Any) -> int:
        """As :meth:`index_of`, for ``set_device``, which wants a device named in full."""
        return int(torch.cuda._utils._get_device_index(device))

    def check_ordinal(self, index: int) -> None:
        """Raise what CUDA raises for a device that is not there."""
        self.initialise()
        if not 0 <= index < self.count:
            raise RuntimeError(self.not_there(index))

    def none_visible(self) -> str:
        """What is said where no device is visible."""
        return "No CUDA GPUs are available"

    def not_there(self, index: int) -> str:
        """What is said of a device that is not there."""
        seen = f"(device {index} was asked for; this process sees {self.count}: 0 to {self.count - 1})"
        return f"CUDA error: invalid device ordinal\n{seen}"

    def with_index(self, device: Any) -> Any:
        """``device`` as ``cuda:N`` where it names a CUDA device (``"cuda"``, ``1``), else as it is. Checks N."""
        if isinstance(device, bool) or not isinstance(device, str | int | torch.device):
            return device
        found = torch.device(self.kind, device) if isinstance(device, int) else torch.device(device)
        if found.type != self.kind:
            return device
        index = self.index_of(found)
        self.check_ordinal(index)
        return torch.device(self.kind, index)

    def undo(self) -> None:
        """Take the facade down: ``torch`` is as it was."""
        self.patches.undo()


def install(
    accelerator: Accelerator,
    count: int,
    allocator_of: Callable[[int], CachingAllocator],
    *,
    visible_devices: str | None = None,
    unsupported: Unsupported = _not_rehearsed,
    pin: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> VirtualCuda:
    """Put the facade up. Call it right after torch is imported, with ``CUDA_VISIBLE_DEVICES`` empty until then.

    ``count``: devices of the node; ``allocator_of``: index → that device's allocator, which answers the questions
    about memory; ``visible_devices``: the value of ``CUDA_VISIBLE_DEVICES`` that the program is to find (None: unset),
    which this sets; ``unsupported``: makes the exception for what can't be rehearsed (CUDA graphs, IPC);
    ``pin``: makes the pinned copy of a real CPU tensor (default: a copy that says it is pinned).

    Returns the state; its ``undo()`` takes the facade down.
    """
    from gonogo.virtual.cuda import devices as cuda_devices
    from gonogo.virtual.cuda import memory as cuda_memory
    from gonogo.virtual.cuda import random as cuda_random
    from gonogo.virtual.cuda import streams as cuda_streams
    from gonogo.virtual.cuda import tensors as cuda_tensors

    cuda = VirtualCuda(accelerator, count, allocator_of, unsupported)
    keep_off_real_devices(cuda.patches)
    set_visible_devices(cuda, visible_devices)
    replaced: list[tuple[Any, Any]] = []
    for part in (cuda_devices, cuda_streams, cuda_memory, cuda_random):
        for module, name, value in part.replacements(cuda):
            original = getattr(module, name, None)
            if callable(original) and original is not value:
                replaced.append((original, value))
            cuda.patches.set(module, name, value)
    cuda.patches.everywhere(replaced)
    cuda_tensors.install(cuda, pin)
    cuda.patches.item(os.environ, "DS_ACCELERATOR", "cuda")
    return cuda


def visible_count(count: int, visible_devices: str | None) -> int:
    """How many of ``count`` devices ``CUDA_VISIBLE_DEVICES`` leaves: the list ends at its first invalid entry."""
    if visible_devices is None:
        return count
    seen: list[str] = []
    for entry in visible_devices.split(","):
        name = entry.strip()
        if name.startswith(("GPU-", "MIG-")):
            seen.append(name)
            continue
        if not name.isdigit() or int(name) >= count:
            break
        if name in seen:
            return 0
        seen.append(name)
    return min(len(seen), count)


def keep_off_real_devices(patches: Patches) -> None:
    """Have a CUDA build start its driver without devices, now; and let no other entry into it be called."""
    count_devices = getattr(torch._C, "_cuda_getDeviceCount", None)
    if count_devices is None:
        return
    patches.item(os.environ, "CUDA_VISIBLE_DEVICES", "")
    found = count_devices()  # the driver reads the variable once, at its first call in a process
    if found:
        raise RuntimeError(f"{found} real CUDA devices are in use by this process: a rehearsal must not touch them")
    harmless = {"_cuda_getCompiledVersion", "_cuda_getArchFlags", "_cuda_isInBadFork", "_cuda_CUDAAllocator"}
    for name in dir(torch._C):
        value = getattr(torch._C, name)
        if name.startswith("_cuda_") and name not in harmless and callable(value) and not isinstance(value, type):
            patches.set(torch._C, name, _forbidden(name))


def _forbidden(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch._C.{name} would enter the CUDA driver: it can't be rehearsed")

    return refuse


def set_visible_devices(cuda: VirtualCuda, visible_devices: str | None) -> None:
    """Have the program find this value of the variable (None: unset), and the facade count by it."""
    variable = cuda.visible_variable
    cuda.patches.item(os.environ, variable, visible_devices or "")
    if visible_devices is None:
        del os.environ[variable]
    total = cuda.count
    cuda.visible = lambda: visible_count(total, os.environ.get(variable))
