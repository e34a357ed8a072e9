"""Triton kernels of any origin (Liger, Unsloth, a user): on virtual tensors, launches do nothing.

A kernel works on the tensors that it is given and allocates none, so skipping it changes no shape and no memory.
What it writes is derived from its source: whatever is passed to ``tl.store`` or an atomic operation. Real CPU tensors
raise the same error as Triton. Tested with Triton 2.1 to 3.9.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels import triton_stand_in
from gonogo.virtual.kernels.checks import on_accelerator
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

_BENCHMARK_BYTES = 256 << 20
"""The buffer that Triton's autotuner clears between two runs, to flush the device's cache."""
_NON_WRITING_FUNCTIONS = (
    "load",
    "make_block_ptr",
    "make_tensor_descriptor",
    "advance",
    "arange",
    "program_id",
    "max_contiguous",
    "multiple_of",
    "where",
    "cast",
    "to",
    "broadcast_to",
    "minimum",
    "maximum",
    "cdiv",
)
"""Functions of ``triton.language`` that accept pointers and write nothing."""


def install(
    patches: Patches,
    written: Callable[[torch.Tensor], object],
    assume: Callable[[Text], object],
    compute_capability: tuple[int, int],
) -> None:
    """Replace Triton's kernel launches once the program imports it."""
    known: dict[Any, frozenset[str]] = {}

    def replace_launch(module: ModuleType) -> None:
        def launch_kernel(kernel: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
            function = kernel.fn
            assume(translated("Triton kernel {name} compiles and runs on the machine").format(name=function.__name__))
            names = list(inspect.signature(function).parameters)
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            if function not in known:
                known[function] = written_parameters(function)
            for position, (name, value) in enumerate(given.items()):
                if not isinstance(value, torch.Tensor):
                    continue
                if not on_accelerator(value):
                    raise ValueError(f"Pointer argument (at {position}) cannot be accessed from Triton (cpu tensor?)")
                if name in known[function]:
                    written(value)

        patches.set(module.JITFunction, "run", launch_kernel)

    def replace_autotuner(module: ModuleType) -> None:
        tuned: set[int] = set()

        def run(autotuner: Any, *args: Any, **kwargs: Any) -> Any:
            """Use the first config; the benchmark of several configs only shows in memory."""
            config = autotuner.configs[0]
            if len(autotuner.configs) > 1 and id(autotuner) not in tuned:
                tuned.add(id(autotuner))
                torch.empty(_BENCHMARK_BYTES, dtype=torch.int8, device="cuda")
            return autotuner.fn.run(*args, **kwargs, **config.all_kwargs())

        patches.set(module.Autotuner, "run", run)

    def replace_driver(module: ModuleType) -> None:
        target = SimpleNamespace(backend="cuda", arch=compute_capability[0] * 10 + compute_capability[1], warp_size=32)
        # Its name since Triton 3.5; in 2.1 (torch 2.1), accessing any other name initializes CUDA's driver.
        name = next((name for name in ("_active", "_obj") if name in vars(module.driver)), "active")
        patches.set(module.driver, name, _Driver(target))

    triton_stand_in.install(patches, assume)
    patches.on_undo(after_import("triton.runtime.jit", replace_launch))
    patches.on_undo(after_import("triton.runtime.autotuner", replace_autotuner))
    patches.on_undo(after_import("triton.runtime.driver", replace_driver))


class _Driver:
    """The part of Triton's active driver that libraries query."""

    def __init__(self, target: SimpleNamespace) -> None:
        self._target = target
        self.utils = SimpleNamespace(get_device_properties=_device_properties)

    def get_current_target(self) -> SimpleNamespace:
        """The GPU's backend and architecture."""
        return self._target

    def get_current_device(self) -> int:
        """The current device's index."""
        return torch.cuda.current_device()

    def get_active_torch_device(self) -> torch.device:
        """The current device."""
        return torch.device("cuda", torch.cuda.current_device())

    def get_device_interface(self) -> ModuleType:
        """``torch.cuda``."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """The benchmark function; Triton 3.2 asks for it when a kernel is defined, and nothing here calls it."""

        def refuse_to_benchmark(*args: Any, **kwargs: Any) -> list[float]:
            raise NotImplementedError("a launch on a virtual accelerator takes no time that could be measured")

        return refuse_to_benchmark


def _device_properties(device: int) -> dict[str, int]:
    found: Any = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", 227 << 10)
    return {"multiprocessor_count": found.multi_processor_count, "max_shared_mem": shared, "warpSize": 32,
            "max_num_regs": 65536}  # fmt: skip


def written_parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The parameters of a kernel through which it may write, or all of them if its source can't be read."""
    parameters = frozenset(inspect.signature(function).parameters)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return parameters
    flows = _PointerFlowVisitor(parameters)
    for _ in range(2):  # twice, since a pointer may be advanced at the end of a loop's body
        flows.visit(tree)
    return frozenset(flows.written)


class _PointerFlowVisitor(ast.NodeVisitor):
    """Tracks which parameters each name may point into, and which of them are written."""

    def __init__(self, parameter_names: frozenset[str]) -> None:
        self.into: dict[str, set[str]] = {name: {name} for name in parameter_names}
        self.written: set[str] = set()

    def _source_parameters(self, node: ast.AST | None) -> set[str]:
        if node is None or (isinstance(node, ast.Call) and _called_name(node) == "load"):
            return set()  # a load returns a value, not a pointer
        if isinstance(node, ast.Name):
            return self.into.get(node.id, set())
        return {name for child in ast.iter_child_nodes(node) for name in self._source_parameters(child)}

    def _assign_sources(self, target: ast.AST, sources: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.into.setdefault(node.id, set()).update(sources)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign_sources(target, self._source_parameters(node.value))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign_sources(node.target, self._source_parameters(node.value))
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._assign_sources(node.target, self._source_parameters(node.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _called_name(node)
        if name == "store" or name.startswith("atomic_"):
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "pointer"), None)
            self.written |= self._source_parameters(first) | self._source_parameters(owner)
        elif (
            isinstance(node.func, ast.Name) and name not in _NON_WRITING_FUNCTIONS
        ):  # a helper function of the kernel's author
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                self.written |= self._source_parameters(argument)
        self.generic_visit(node)


def _called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
