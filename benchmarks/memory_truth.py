"""What a training really takes: one rank of a program, run for real, its memory counted.

    python memory_truth.py [--life] ANSWER.json PROGRAM-MODULE ARGUMENTS...

On a machine with a CUDA GPU the program runs on it, and the answer holds ``torch.cuda.max_memory_allocated``,
``max_memory_reserved`` and what NVML says the process holds. Elsewhere it runs on the CPU, with real tensors and real
DeepSpeed over gloo, and the CPU's memory stands for two: what the program asks for as its accelerator's
(``get_accelerator().current_device_name()``) counts as the accelerator's, all else as the host's. Nothing of gonogo's
virtual accelerators takes part; each storage is counted from its first tensor to its last.

``--life``: the program saves, or is resumed, and calls ``truth.step_begins`` as each step begins (``tests/life``). On
the CPU alone, it ends as the first step after the save, or of the resumed run, begins; the peaks are those since the
last step of an optimizer.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import types
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ACCELERATOR = torch.device("cpu", 0)
"""Stands for the accelerator: PyTorch makes plain CPU tensors for it, and hands its index on to the operators."""
HOST = torch.device("cpu")


class Memories(TorchDispatchMode):
    """The bytes of live storages in both memories, and their peaks."""

    def __init__(self) -> None:
        super().__init__()
        self.live = {"accelerator": 0, "host": 0}
        self.peak = {"accelerator": 0, "host": 0}
        self._place: dict[int, str] = {}

    def place(self, tensor: torch.Tensor) -> str:
        """Where a tensor lies. One that no operator made came from outside: from the host."""
        return self._place.get(tensor.untyped_storage()._cdata, "host")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = _COMPUTED.get(func, func)(*args, **(kwargs or {}))
        if func.is_view:
            return out  # gloo divides workspaces of its own so, which NCCL does not have
        made = [tensor for tensor in tree_leaves(out) if _is_real(tensor)]
        if any(tensor.untyped_storage()._cdata not in self._place for tensor in made):
            place = self._asked_for(args, kwargs or {})
            for tensor in made:
                self._count(tensor.untyped_storage(), place)
        return out

    def moved(self, tensor: torch.Tensor, place: str) -> None:
        """A tensor made by other means than an operator lies there."""
        key = tensor.untyped_storage()._cdata
        if key not in self._place:
            self._count(tensor.untyped_storage(), place)
        elif self._place[key] != place:
            nbytes = tensor.untyped_storage().nbytes()
            self.live[self._place[key]] -= nbytes
            self.live[place] += nbytes
            self.peak[place] = max(self.peak[place], self.live[place])
            self._place[key] = place

    def _asked_for(self, args: Any, kwargs: dict[str, Any]) -> str:
        device = kwargs.get("device")
        if device is not None and device.index is not None:
            return "accelerator"
        if device is not None:
            return "accelerator" if _in_backward_of_operator() else "host"
        operands = [tensor for tensor in tree_leaves((args, kwargs)) if _is_real(tensor)]
        return "accelerator" if any(self.place(tensor) == "accelerator" for tensor in operands) else "host"

    def _count(self, storage: Any, place: str) -> None:
        key = storage._cdata
        if key in self._place:
            return
        self._place[key] = place
        self.live[place] += storage.nbytes()
        self.peak[place] = max(self.peak[place], self.live[place])
        weakref.finalize(storage, self._gone, key, storage.nbytes())

    def _gone(self, key: int, nbytes: int) -> None:
        self.live[self._place.pop(key)] -= nbytes


def _in_backward_of_operator() -> bool:
    """Whether an operator's own backward runs: it names its tensors' device without the index that tells them apart."""
    node = torch._C._current_autograd_node()
    return node is not None and type(node).__module__ == "builtins" and "AccumulateGrad" not in node.name()


def _in_float32(func: Any) -> Any:
    """The same, computed in float32 and rounded: many processors have no fast 16-bit products."""

    def computed(*args: Any, **kwargs: Any) -> Any:
        dtype = next(value for value in args if isinstance(value, torch.Tensor)).dtype
        if dtype not in (torch.bfloat16, torch.float16):
            return func(*args, **kwargs)
        out = func(*(_as(torch.float32, value, dtype) for value in args), **kwargs)
        if isinstance(out, torch.Tensor):
            return out.to(dtype)
        kept = 1 if func is _ATTENTION else len(out)  # attention's second result is float32 in any case
        return tuple(value.to(dtype) if index < kept else value for index, value in enumerate(out))

    return computed


def _as(dtype: torch.dtype, value: Any, of: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype == of else value


_aten = torch.ops.aten
_ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu.default
_COMPUTED = {
    func: _in_float32(func)
    for func in (_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _ATTENTION,
                 _aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
}  # fmt: skip
"""How operators are computed that would take too long as they are; what they return is the same."""


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "meta"


def two_places(memories: Memories) -> None:
    """Let tensors tell the accelerator from the host, and be copied between them, as on a machine with both."""
    plain_to, plain_device = torch.Tensor.to, torch.Tensor.device
    parse = torch._C._nn._parse_to

    def device(self: torch.Tensor) -> torch.device:
        found = plain_device.__get__(self)
        return ACCELERATOR if found.type == "cpu" and memories.place(self) == "accelerator" else found

    def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            args = (args[0].device, args[0].dtype, *args[1:])
        wanted, dtype, _, layout = parse(*args, **{name: value for name, value in kwargs.items() if name != "copy"})
        if wanted is None or wanted.type != "cpu" or device(self).type != "cpu":
            return plain_to(self, *args, **kwargs)
        there = "host" if wanted.index is None else "accelerator"
        dtype = dtype or self.dtype
        if there == memories.place(self):
            return plain_to(self, dtype=dtype, copy=kwargs.get("copy", False))
        return torch.ops.aten._to_copy(self, dtype=dtype, device=wanted, memory_format=layout)

    def cpu(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return to(self, HOST)

    def pin_memory(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Page-locked memory is other memory: the original is copied."""
        return torch.ops.aten._to_copy(self, device=HOST)

    plain_tensor = torch.tensor

    def tensor(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = plain_tensor(*args, **kwargs)
        wanted = kwargs.get("device")
        memories.moved(made, "host" if wanted is None or torch.device(wanted).index is None else "accelerator")
        return made

    torch.tensor = tensor
    torch.Tensor.device = property(device)  # type: ignore[assignment,method-assign]
    torch.Tensor.to, torch.Tensor.cpu = to, cpu  # type: ignore[method-assign]
    torch.Tensor.pin_memory = pin_memory  # type: ignore[method-assign]
    _name_accelerator(memories)


def _name_accelerator(memories: Memories) -> None:
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
    from transformers import TrainingArguments

    plain = TrainingArguments.device

    def device(self: Any) -> torch.device:
        """The accelerator, once the plain way has set up the process group."""
        plain.__get__(self)
        return ACCELERATOR

    CPU_Accelerator.device_name = lambda self, index=None: str(ACCELERATOR)  # type: ignore[method-assign]
    CPU_Accelerator.current_device_name = lambda self: str(ACCELERATOR)  # type: ignore[method-assign]
    CPU_Accelerator.on_accelerator = lambda self, tensor: memories.place(tensor) == "accelerator"  # type: ignore
    CPU_Accelerator.pin_memory = lambda self, tensor, align_bytes=1: tensor.pin_memory()  # type: ignore
    TrainingArguments.device = property(device)


def on_cpu(module: str, *, life: str = "") -> dict[str, Any]:
    """Run the program on the CPU; the peaks of both memories. ``life``: where the answer goes, if it is one."""
    memories = Memories()
    two_places(memories)  # before DeepSpeed is imported, which keeps some of torch's functions to put them back later
    import deepspeed
    from deepspeed import ops

    ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo alone: nothing is compiled
    deepspeed.init_distributed()  # as transformers does it itself where there is a GPU
    if life:
        _end_with_life(memories, life)
    with memories:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    return {"kind": "cpu", "device": _processor(), "accelerator": memories.peak["accelerator"],
            "host": memories.peak["host"]}  # fmt: skip


def _end_with_life(memories: Memories, answer: str) -> None:
    """Give the peaks since the last step, and end the process, as the step after the save or the resume begins."""
    is_second = os.environ["TRUTH_LIFE"] == "second"

    def step_begins(*_: Any, saved: bool) -> None:
        if saved or is_second:
            with open(answer, "w", encoding="utf-8") as file:
                json.dump(memories.peak, file)
            torch.distributed.barrier()
            os._exit(0)

    def step_done(*_: Any) -> None:
        memories.peak = dict(memories.live)

    importlib.import_module("sitecustomize_of_truth")  # whose Trainer calls it
    truth = types.ModuleType("truth")
    truth.step_begins = step_begins  # type: ignore[attr-defined]
    sys.modules["truth"] = truth
    if is_second:
        return
    from deepspeed import DeepSpeedEngine

    step = DeepSpeedEngine.step

    def step_of_engine(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, *args, **kwargs)
        step_done()
        return result

    DeepSpeedEngine.step = step_of_engine  # type: ignore[method-assign]
    register_optimizer_step_post_hook(step_done)


def on_cuda(module: str) -> dict[str, Any]:
    """Run the program on its GPU; what PyTorch and the driver say that it took."""
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    device = torch.cuda.current_device()
    stats = torch.cuda.memory_stats(device)
    return {
        "kind": "cuda",
        "device": torch.cuda.get_device_name(device),
        "accelerator": stats["requested_bytes.all.peak"],
        "allocated": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.max_memory_reserved(device),
        "process": _process_bytes(device),
        "host": None,
    }


def _process_bytes(device: int) -> int | None:
    """What NVML says that this process holds on the GPU; None where it does not say."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(device)
    held = [process.usedGpuMemory for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if process.pid == os.getpid()]  # fmt: skip
    return held[0] if held else None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return "CPU"


def main() -> None:
    is_life = sys.argv[1] == "--life"
    answer, module, *arguments = sys.argv[2 if is_life else 1 :]
    sys.argv = [module, *arguments]
    if is_life:
        on_cpu(module, life=answer)
        sys.exit("the program ended before its life")
    found = on_cuda(module) if torch.cuda.is_available() else on_cpu(module)
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(found, file)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the process group's and DeepSpeed's goodbyes: nothing is measured any more


if __name__ == "__main__":
    main()
