"""What compiled code allocates: the plan of Inductor itself, PyTorch's compiler.

The compiler computes chains of elementwise operators and reductions in one kernel each, so that most of their
intermediate results take no memory; it frees a buffer after its last use, and reuses it. All of that is decided before
any code is compiled: a graph of the recorded operators is lowered and scheduled by Inductor's own code, for fake
tensors on the virtual GPU, and the lines of its plan that allocate, reuse and free buffers are read. Neither Triton
nor a GPU is needed: where a kernel's source would be compiled, nothing is done.

Inductor's interfaces are private and change: tried with torch 2.13. Whatever fails, the caller falls back to the
code as written.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from gonogo.virtual import private
from gonogo.virtual.memory.deferred import Event
from gonogo.virtual.patching.patches import Patches

_SETTINGS = {
    "compile_threads": 1,
    "max_autotune": False,  # it measures kernels
    "max_autotune_gemm": False,
    "joint_graph_constant_folding": False,  # it computes on the GPU
    "memory_planning": False,
    "cpp_wrapper": False,
    "triton.multi_kernel": 0,
}


_STAND_IN = "/stand_ins/with_triton/"


class Reference(NamedTuple):
    """A tensor in recorded operators: an input of the code, or what an operator before has returned."""

    number: int


class TensorLayout(NamedTuple):
    """What is known of an input."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class RecordedOperator(NamedTuple):
    """An operator with :class:`Reference` in place of tensors."""

    func: Any
    args: Any
    kwargs: Any
    results: tuple[int | None, ...]


class RecordedCode(NamedTuple):
    """Operators of one call of a compiled function."""

    inputs: tuple[tuple[int, TensorLayout], ...]
    operators: tuple[RecordedOperator, ...]
    results: tuple[int, ...]
    """Tensors that outlive the call."""


def plan(code: RecordedCode, properties: Any) -> list[Event]:
    """The buffers that the compiled code allocates and frees on the GPU with these ``properties``, in order."""
    with private.without_dispatch_modes(), torch.no_grad():
        return _plan(code, properties)


def _plan(code: RecordedCode, properties: Any) -> list[Event]:
    patches = Patches()
    try:
        _hide_stand_in(patches)
        return _plan_without_stand_in(code, properties, patches)
    finally:
        patches.undo()


def _plan_without_stand_in(code: RecordedCode, properties: Any, patches: Patches) -> list[Event]:
    compile_fx: Any = importlib.import_module("torch._inductor.compile_fx")
    graphs: Any = importlib.import_module("torch._inductor.graph")
    debug: Any = importlib.import_module("torch._inductor.debug")
    virtualized: Any = importlib.import_module("torch._inductor.virtualized")
    config: Any = importlib.import_module("torch._inductor.config")
    fake_tensors: Any = importlib.import_module("torch._subclasses")
    mode = fake_tensors.FakeTensorMode()
    handlers = virtualized.V
    _without_gpu(patches, properties)
    with config.patch(_SETTINGS), mode:
        inputs = [_fake(layout) for _, layout in code.inputs]
        module = _traced(code, inputs)
        with handlers.set_fake_mode(mode), debug.DebugContext():
            compile_fx._recursive_joint_graph_passes(module)
            compile_fx._recursive_post_grad_passes(module, is_inference=True)
            graph = graphs.GraphLowering(module, example_inputs=inputs, is_inference=True)
            with handlers.set_graph_handler(graph):
                graph.run(*inputs)
                graph.init_wrapper_code()
                graph._update_scheduler()
                graph.wrapper_code.push_codegened_graph(graph)
                graph.scheduler.codegen()
                graph.wrapper_code.run_wrapper_ir_passes(True)
                return _events(graph.wrapper_code.lines, graph)


def _hide_stand_in(patches: Patches) -> None:
    """Let the compiler find no Triton where gonogo's stand-in has been imported: it would ask for all of it."""
    triton: Any = importlib.import_module("torch.utils._triton")
    for name, module in list(sys.modules.items()):
        if _STAND_IN in (getattr(module, "__file__", None) or ""):
            patches.set_item(sys.modules, name, None)
    triton.has_triton_package.cache_clear()
    patches.on_undo(triton.has_triton_package.cache_clear)


def _fake(layout: TensorLayout) -> torch.Tensor:
    device = layout.device if layout.device.type == "cpu" else torch.device("cuda", layout.device.index or 0)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(layout.shape, layout.strides, strict=True))
    whole = torch.empty(max(extent, 0), dtype=layout.dtype, device=device)
    return torch.as_strided(whole, layout.shape, layout.strides)


def _traced(code: RecordedCode, inputs: Sequence[torch.Tensor]) -> Any:
    """The graph that the compiler's frontend would have made: without writes but those to inputs, decomposed."""
    tracing: Any = importlib.import_module("torch.fx.experimental.proxy_tensor")
    decompositions: Any = importlib.import_module("torch._inductor.decomposition")

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        tensors: dict[int, Any] = {number: value for (number, _), value in zip(code.inputs, given, strict=True)}

        def resolve(value: Any) -> Any:
            if isinstance(value, Reference):
                return tensors[value.number]
            if isinstance(value, torch.device) and value.type != "cpu":
                return torch.device("cuda", value.index or 0)
            return value

        for operator in code.operators:
            args, kwargs = tree_map(resolve, (operator.args, operator.kwargs), is_leaf=_is_reference)
            out = operator.func(*args, **kwargs)
            several = out if isinstance(out, list | tuple) else [out]
            tensors |= {number: value for number, value in zip(operator.results, several, strict=True) if number}
        return [tensors[number] for number in code.results]

    functional = torch.func.functionalize(run, remove="mutations")
    module = tracing.make_fx(functional, decomposition_table=decompositions.select_decomp_table())(*inputs)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _is_reference(value: Any) -> bool:
    return isinstance(value, Reference)


def _without_gpu(patches: Patches, properties: Any) -> None:
    """Replace what asks the GPU's driver, or compiles kernels."""
    interfaces: Any = importlib.import_module("torch._dynamo.device_interface")
    common: Any = importlib.import_module("torch._inductor.codegen.common")
    triton: Any = importlib.import_module("torch._inductor.codegen.triton")
    wrapper: Any = importlib.import_module("torch._inductor.codegen.wrapper")
    schedulers: Any = importlib.import_module("torch._inductor.scheduler")
    passes: Any = importlib.import_module("torch._inductor.fx_passes.joint_graph")
    later_passes: Any = importlib.import_module("torch._inductor.fx_passes.post_grad")
    caches: Any = importlib.import_module("torch._inductor.codecache")
    hints: Any = importlib.import_module("torch._inductor.runtime.hints")

    class Kernel(triton.TritonKernel):  # type: ignore[misc]
        def codegen_kernel(self, name: Any = None) -> str:
            return ""

        def call_kernel(self, *args: Any, **kwargs: Any) -> None:
            pass

    class Scheduling(triton.TritonScheduling):  # type: ignore[misc]
        kernel_type = Kernel

        def define_kernel(self, *args: Any, **kwargs: Any) -> str:
            return "kernel"

        def create_kernel_choices(self, features: Any, args: Any, kwargs: Any) -> list[Any]:
            return [Kernel(*args, **kwargs)]

    class Interface(interfaces.CudaInterface):  # type: ignore[misc]
        get_device_properties = staticmethod(lambda device=None: properties)
        current_device = staticmethod(lambda: 0)
        get_compute_capability = staticmethod(lambda device=None: 10 * properties.major + properties.minor)
        is_available = staticmethod(lambda: True)
        is_bf16_supported = staticmethod(lambda including_emulation=False: True)
        Worker = SimpleNamespace(get_device_properties=lambda device=None: properties, current_device=lambda: 0)

    interfaces.get_interface_for_device("cuda")
    for name in ("cuda", "cuda:0"):
        patches.set_item(interfaces.device_interfaces, name, Interface)
    common.init_backend_registration()
    patches.on_undo(_restorer(common.device_codegens))
    common.register_backend_for_device("cuda", Scheduling, wrapper.PythonWrapperCodegen)
    patches.set(schedulers, "has_triton", lambda *args: True)
    patches.set(torch.Tensor, "copy_", _copy)
    patches.set(caches, "triton_key", lambda: None)  # the compiler's own modules may have met the stand-in before
    for module in (passes, later_passes):  # patterns whose examples are made on the GPU
        patches.set(module, "lazy_init", lambda *args: None)
    hints.DeviceProperties.create.cache_clear()
    patches.on_undo(hints.DeviceProperties.create.cache_clear)


def _copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
    """``Tensor.copy_``, without the device's part of torch, which a build for the CPU lacks."""
    return torch.ops.aten.copy_.default(target, source, non_blocking)


def _restorer(mapping: dict[Any, Any]) -> Callable[[], None]:
    before = dict(mapping)

    def restore() -> None:
        mapping.clear()
        mapping.update(before)

    return restore


def _events(lines: Sequence[Any], graph: Any) -> list[Event]:
    """Of the plan's lines, those that allocate or free."""
    wrapper: Any = importlib.import_module("torch._inductor.codegen.wrapper")
    storages: dict[str, int] = {}
    """Buffers by name, and the storage that each has."""
    sizes: dict[int, int] = {}
    events: list[Event] = []

    def allocate(node: Any) -> None:
        if node.get_name() in storages or not node.has_tensor_output():
            return
        nbytes = int(graph.get_allocation_storage_size(node)) * node.get_dtype().itemsize
        storages[node.get_name()] = len(sizes)
        events.append((len(sizes), nbytes))
        sizes[len(sizes)] = nbytes

    for line in lines:
        if isinstance(line, wrapper.ReuseLine):
            if (storage := storages.get(line.node.get_name())) is not None:
                storages[line.reused_as.get_name()] = storage
        elif isinstance(line, wrapper.FreeIfNotReusedLine | wrapper.FreeLine):
            if not getattr(line, "is_reused", False) and (storage := storages.get(line.node.get_name())) is not None:
                events.append((storage, -1))
        elif isinstance(line, wrapper.AllocateLine | wrapper.ExternKernelAllocLine):
            allocate(line.node)
        elif isinstance(line, wrapper.MultiOutputLine):  # one of an operator's several results
            allocate(graph.get_buffer(line.result_name))
    return events
