from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from virtual.worlds import virtual_session

from gonogo.evidence.environment.hardware import find_accelerator
from gonogo.virtual.cuda import facade as cuda
from gonogo.virtual.cuda.state import VirtualCuda
from gonogo.virtual.memory.caching_allocator import CachingAllocator

H100 = find_accelerator("H100-80G")
MIB = 1 << 20


class Moved(TorchDispatchMode):
    """Serves operators on the CPU, and notes the device that each was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[torch.device] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            self.devices.append(kwargs["device"])
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


@pytest.fixture
def facade() -> Iterator[VirtualCuda]:
    allocators: dict[int, CachingAllocator] = {}
    installed = cuda.install(
        H100, 8, lambda index: allocators.setdefault(index, CachingAllocator(H100.total_bytes - H100.allowance_bytes))
    )
    yield installed
    installed.undo()


def test_says_what_it_is(facade: VirtualCuda) -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 8
    assert torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3"
    assert torch.cuda.get_device_capability("cuda:3") == (9, 0)
    assert torch.cuda.get_device_capability(torch.cuda.device(3)) == (9, 0)
    properties = torch.cuda.get_device_properties(7)
    assert (properties.total_memory, properties.multi_processor_count) == (H100.total_bytes, 132)
    assert "total_memory=81089MB" in repr(properties)
    assert torch.cuda.is_bf16_supported()
    assert torch.cuda.nccl.version() >= (2, 10)
    assert torch.version.cuda
    assert torch.backends.cuda.is_built()
    assert torch.backends.cudnn.is_available()
    assert torch.cuda._is_compiled()
    torch.cuda.init()
    assert torch.cuda.is_initialized()
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(8)


def test_current_device(facade: VirtualCuda) -> None:
    torch.cuda.set_device("cuda:2")
    assert torch.cuda.current_device() == 2
    with torch.cuda.device(5):
        assert torch.cuda.current_device() == 5
        assert torch.accelerator.current_device_index() == 5
    assert torch.cuda.current_device() == 2
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]  # the current device is a thread's own
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(8)


def test_accelerator(facade: VirtualCuda) -> None:
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 8
    torch.accelerator.set_device_index(3)
    assert torch.cuda.current_device() == 3
    torch.accelerator.synchronize()
    assert isinstance(torch.accelerator.current_stream(), torch.Stream)
    assert torch.get_device_module() is torch.cuda
    if hasattr(torch.accelerator, "memory_allocated"):  # from torch 2.9 on
        assert torch.accelerator.memory_allocated() == 0


def test_streams_and_events(facade: VirtualCuda) -> None:
    stream = torch.cuda.Stream(device=1, priority=-1)
    assert isinstance(stream, torch.cuda.Stream)
    assert isinstance(stream, torch.Stream)
    assert stream.device == torch.device("cuda:1")
    assert stream.priority == -1
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    mine = torch.cuda.Stream()
    with torch.cuda.stream(mine):
        assert torch.cuda.current_stream() == mine
        assert facade.current_stream_id() == mine.stream_id != 0
    assert facade.current_stream_id() == 0
    mine.wait_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record(mine)
    end.synchronize()
    assert start.query()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(end)
    with pytest.raises(ValueError, match="must be recorded"):
        torch.cuda.Event(enable_timing=True).elapsed_time(end)
    assert isinstance(mine.record_event(), torch.Event)
    assert torch.Stream("cuda:2").device.index == 2
    assert len({mine, mine, stream}) == 2


def test_memory(facade: VirtualCuda) -> None:
    allocator = facade.allocator_of(1)
    free, total = torch.cuda.mem_get_info(1)
    assert (total, total - free) == (H100.total_bytes, H100.allowance_bytes)
    address = allocator.malloc(30 * MIB)
    assert torch.cuda.memory_allocated("cuda:1") == 30 * MIB
    assert torch.cuda.memory_reserved(1) == 30 * MIB
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.mem_get_info(1)[0] == free - 30 * MIB
    allocator.free(address)
    assert torch.cuda.max_memory_allocated(1) == 30 * MIB
    torch.cuda.reset_peak_memory_stats(1)
    assert torch.cuda.max_memory_allocated(1) == 0
    torch.cuda.init()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(1) == 0
    assert torch.cuda.memory_stats()["num_ooms"] == 0
    assert torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == 0
    assert "PyTorch CUDA memory summary" in torch.cuda.memory_summary()
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    facade.allocator_of(0).malloc(60 << 30)
    assert facade.allocator_of(0).shortage is not None
    with pytest.raises(ValueError, match="Unrecognized key"):
        torch.cuda.memory._set_allocator_settings("no_such_key:1")


def test_random(facade: VirtualCuda) -> None:
    torch.manual_seed(17)
    assert torch.cuda.initial_seed() == 17
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed_all(3)
    assert torch.cuda.initial_seed() == 3
    torch.cuda.set_rng_state(state)
    assert torch.cuda.initial_seed() == 17
    assert len(torch.cuda.get_rng_state_all()) == 8
    with torch.random.fork_rng(devices=[0]):
        torch.cuda.manual_seed(99)
    assert torch.cuda.default_generators[0].initial_seed() == 17
    generator = torch.Generator(device="cuda:2").manual_seed(5)
    assert generator.device == torch.device("cuda:2")
    assert isinstance(generator, torch.Generator)
    assert pickle.loads(pickle.dumps(generator)).initial_seed() == 5
    assert torch.Generator().device.type == "cpu"
    torch.randn(2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("expression", "index"),
    [
        ("x.to('cuda')", 1),
        ("x.to(device='cuda')", 1),
        ("x.to(3)", 3),
        ("x.to('cuda:2', torch.float16)", 2),
        ("x.cuda()", 1),
        ("x.cuda(4, non_blocking=True)", 4),
        ("x.type('torch.cuda.HalfTensor')", 1),
        ("x.type(torch.cuda.HalfTensor)", 1),
        ("torch.tensor([1.0], device='cuda')", 1),
        ("torch.as_tensor([1.0], device='cuda:0')", 0),
        ("torch.asarray([1.0], device='cuda')", 1),
        ("torch.nn.Linear(2, 2).cuda()", 1),
        ("torch.nn.Linear(2, 2).to('cuda')", 1),
        ("torch.cuda.FloatTensor([1.0, 2.0])", 1),
    ],
)
def test_tensors_go_to_the_device(facade: VirtualCuda, expression: str, index: int) -> None:
    x = torch.ones(2)
    torch.cuda.set_device(1)
    with Moved() as moved:
        eval(expression, {"torch": torch, "x": x})
    assert torch.device("cuda", index) in moved.devices


def test_default_device(facade: VirtualCuda) -> None:
    with Moved() as moved:
        torch.set_default_device("cuda")
        try:
            torch.tensor([1])
            torch.as_tensor([2.0])
        finally:
            torch.set_default_device(None)
        with torch.device("cuda:3"):
            torch.tensor([1])
    assert moved.devices.count(torch.device("cuda:0")) == 2
    assert torch.device("cuda:3") in moved.devices


def test_there_is_no_ninth_device(facade: VirtualCuda) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2).to("cuda:8")


def test_numbers_of_tensors_in_lists(facade: VirtualCuda) -> None:
    made = torch.tensor([torch.tensor(1.0, dtype=torch.float16), torch.tensor(2.0)])
    assert made.tolist() == [1.0, 2.0]
    assert made.dtype == torch.float16
    assert torch.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]


def test_pinning(facade: VirtualCuda) -> None:
    x = torch.arange(4)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned.pin_memory() is pinned
    assert pinned[:2].is_pinned()
    assert torch.equal(pinned, x)
    loader = torch.utils.data.DataLoader([1, 2, 3, 4], batch_size=2, pin_memory=True)
    assert all(batch.is_pinned() for batch in loader)


def test_pinning_by_a_callback() -> None:
    asked = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        asked.append(tensor.numel())
        return tensor

    installed = cuda.install(H100, 1, lambda index: CachingAllocator(1 << 30), pin=pin)
    try:
        torch.ones(3).pin_memory()
    finally:
        installed.undo()
    assert asked == [3]


def test_what_cannot_be_rehearsed_says_so() -> None:
    class Refused(Exception):
        pass

    installed = cuda.install(H100, 1, lambda index: CachingAllocator(1), unsupported=lambda what, why: Refused(what))
    try:
        with pytest.raises(Refused, match=r"torch\.cuda\.CUDAGraph"):
            torch.cuda.CUDAGraph()
        with pytest.raises(Refused, match="MemPool"):
            torch.cuda.MemPool()
        assert not torch.cuda.is_current_stream_capturing()
        torch.cuda.nvtx.range_push("x")
        torch.cuda.nvtx.range_pop()
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    finally:
        installed.undo()


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 8), ("0,1", 2), ("3", 1), ("", 0), ("-1", 0), ("0,1,9,2", 2), ("1,1", 0), ("GPU-a,GPU-b", 2)],
)
def test_visible_devices(visible: str | None, count: int) -> None:
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    installed = cuda.install(H100, 8, lambda index: CachingAllocator(1), visible_devices=visible)
    try:
        assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible
        assert torch.cuda.device_count() == count
        assert torch.cuda.is_available() == (count > 0)
    finally:
        installed.undo()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_visible_devices_may_be_set_by_the_program_until_the_first_use(facade: VirtualCuda) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    assert torch.cuda.device_count() == 2
    torch.cuda.init()
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    assert torch.cuda.device_count() == 2


def test_undo_leaves_torch_as_it_was() -> None:
    code = (
        "import torch, torch.accelerator, torch.cuda.nccl, torch.utils._device as d\n"
        "from gonogo.virtual.cuda import facade\n"
        "from gonogo.virtual.memory.caching_allocator import CachingAllocator\n"
        "from gonogo.evidence.environment.hardware import find_accelerator\n"
        "owners = [torch, torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch._C, torch.Tensor,"
        " torch.version, torch.cuda.graphs, torch.cuda.nvtx, torch.accelerator]\n"
        "before = [dict(vars(o)) for o in owners]\n"
        "f = facade.install(find_accelerator('H100'), 2, lambda i: CachingAllocator(1))\n"
        "f.undo()\n"
        "after = [dict(vars(o)) for o in owners]\n"
        "pairs = zip(owners, before, after)\n"
        "changed = [(o, k) for o, b, a in pairs for k in a.keys() | b.keys() if a.get(k) is not b.get(k)]\n"
        "assert not changed, changed\n"
        "assert not torch.cuda.is_available()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.slow
@pytest.mark.parametrize("where", ["cuda:0", "cpu"])
def test_a_state_is_bytes_on_the_cpu(tmp_path: Path, where: str) -> None:
    """One that ``torch.load(…, map_location=…)`` has put on the GPU is refused, as C++ does."""
    with virtual_session(tmp_path):
        states = [torch.cuda.get_rng_state(), torch.get_rng_state()]
        torch.save(states, tmp_path / "rng.pt")
        of_gpu, of_cpu = torch.load(tmp_path / "rng.pt", map_location=where)
        sets = [
            (torch.cuda.set_rng_state, of_gpu),
            (torch.set_rng_state, of_cpu),
            (torch.random.set_rng_state, of_cpu),
            (torch.Generator().set_state, of_cpu),
        ]
        for set_state, state in sets:
            if where == "cpu":
                set_state(state)
            else:
                with pytest.raises(TypeError, match="ByteTensor"):
                    set_state(state)
