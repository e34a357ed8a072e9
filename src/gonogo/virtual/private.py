"""Private interfaces of torch that virtual tensors and their operators rely on, and their differences between
releases.

Tested with torch 2.1 to 2.6, 2.8, 2.10, 2.12, 2.14, 2.15 (CUDA builds, no GPU) and 2.13 (CPU build).
``tests/virtual/test_private.py`` calls :func:`missing_private_interfaces`, which probes those
that every rehearsal needs and names those that have changed. The list is not complete: modules that replace a part
of torch (``cuda/``, ``npu/``, ``collectives/``, ``operators/``, ``hooks/``, ``kernels/``) use that part's private
names directly, and those of saving and loading are in ``weights/private_serialization.py``.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABCMeta
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map

DisableTorchDispatch = torch._C._DisableTorchDispatch
"""Context in which operators go straight to their kernels, bypassing Python dispatch modes and subclasses."""

COMPILER = "torch._dynamo"
"""The module that implements ``torch.compile``; imported on first use."""

_data: Any = torch.Tensor.data
_storage: Any = torch.Tensor.untyped_storage
_aten_to_copy = torch.ops.aten._to_copy.default

as_strided: Callable[..., torch.Tensor] = torch.Tensor.as_strided
make_alias: Callable[[type, torch.Tensor], Any] = torch.Tensor._make_subclass
"""Creates a tensor of a subclass that shares a tensor's storage."""
get_data: Callable[[torch.Tensor], torch.Tensor] = _data.__get__
set_data: Callable[[torch.Tensor, torch.Tensor], None] = _data.__set__


def make_wrapper_subclass(
    cls: type, shape: Any, strides: Any, dtype: torch.dtype, reported_device: torch.device, requires_grad: bool
) -> Any:
    """A wrapper subclass tensor with its own storage, which C++ sees on ``reported_device``."""
    return torch.Tensor._make_wrapper_subclass(
        cls, shape, strides=strides, storage_offset=0, dtype=dtype, device=reported_device, requires_grad=requires_grad
    )


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) from the arguments of ``Tensor.to``, with the same TypeError."""
    return torch._C._nn._parse_to(*args, **kwargs)


def to_copy(
    tensor: torch.Tensor, device: torch.device, dtype: torch.dtype, non_blocking: bool, memory_format: Any
) -> Any:
    """``aten._to_copy``: always a copy, differentiable."""
    return _aten_to_copy(tensor, dtype=dtype, device=device, non_blocking=non_blocking, memory_format=memory_format)


def lift_only_cpu_tensors() -> Callable[[], None]:
    """Make ``torch.tensor(..., device=X)`` build on the CPU and then move through the dispatcher. Returns the undo.

    C++ still creates a device guard for X; if torch has no CUDA device, a no-op guard is registered. Releases before
    2.4, which lack the setting, rely on the functions that ``cuda/tensors.py`` replaces.
    """
    if not hasattr(torch._C, "_only_lift_cpu_tensors"):
        return lambda: None
    getattr(torch._C, "_ensureCUDADeviceGuardSet", lambda: None)()  # new in torch 2.9
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    return lambda: torch._C._set_only_lift_cpu_tensors(before)


def register_device_type(device_type: str) -> None:
    """Register a device type with torch: types that torch doesn't know become PrivateUse1, which works once per
    process."""
    if device_type not in ("cpu", "cuda"):
        torch.utils.rename_privateuse1_backend(device_type)  # type: ignore[attr-defined]


def raise_unknown_device(device: torch.device) -> None:
    """Raise torch's error for a device without a backend: ``cuda`` on an Ascend machine, ``mps`` …."""
    with without_dispatch_modes():
        torch.empty(0, device=device)


def storage_key(tensor: torch.Tensor) -> int:
    """Identity of the tensor's storage."""
    return int(_storage(tensor)._cdata)


def storage_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's storage."""
    return int(_storage(tensor).nbytes())


def operator_flops(func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> int:
    """FLOPs of an operator by torch's formulas, or 0 if it has none."""
    flop_counter: Any = importlib.import_module("torch.utils.flop_counter")
    # Overloads with out_dtype have no formulas of their own; torch's formulas don't accept that argument.
    args = tuple(value for value in args if not isinstance(value, torch.dtype))
    kwargs = {name: value for name, value in kwargs.items() if name != "out_dtype"}
    registry = getattr(flop_counter, "flop_registry", None)
    if registry is not None:
        counted = registry.get(func._overloadpacket)
        return int(counted(*args, **kwargs, out_val=out)) if counted is not None else 0
    counted = flop_counter.flop_mapping.get(func._overloadpacket)  # torch 2.1, whose formulas take shapes
    if counted is None:
        return 0
    args, kwargs, out = tree_map(flop_counter.get_shape, (args, kwargs, out))
    return int(counted(*args, **kwargs, out_shape=out))


def parameter_instance_check() -> Callable[[type, Any], bool] | None:
    """The correct ``isinstance`` check for parameter classes, or None if torch's own is correct.

    Up to torch 2.1, anything marked as a parameter is an instance of every parameter class, even
    ``UninitializedParameter``.
    """
    marked: Any = torch.empty(0)
    marked._is_param = True
    if not isinstance(marked, torch.nn.parameter.UninitializedParameter):
        return None
    original: Any = type(torch.nn.Parameter).__instancecheck__

    def is_parameter(cls: type, instance: Any) -> bool:
        return bool(original(cls, instance) if cls is torch.nn.Parameter else type.__instancecheck__(cls, instance))

    return is_parameter


def register_meta(library: Any, name: str, function: Any) -> None:
    """Register a meta kernel, also for an operator that torch would compose of others on a device without a kernel."""
    library.m.impl(name, "Meta", function, False)


def unregister_library(library: Any) -> None:
    """Unregister the operators and kernels of a ``torch.library.Library``."""
    if hasattr(library, "_destroy"):
        library._destroy()
        return
    importlib.import_module("torch.library")._impls.difference_update(library._op_impls)  # torch 2.1
    library.m = None


def run_on_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on plain meta tensors, with its meta kernel or, if there is none, FakeTensor's implementation.

    The latter is needed for fused attention in torch 2.3 to 2.5 (``torch/_subclasses/fake_impls.py``). Raises
    NotImplementedError if neither exists.
    """
    try:
        return func(*args, **kwargs)
    except NotImplementedError:
        if func._schema.name.startswith("aten::_foreach_"):
            return _foreach_on_meta(func._schema.name, args)
        try:
            fake_impls: Any = importlib.import_module("torch._subclasses.fake_impls")
        except ImportError:
            fake_impls = None  # torch 2.1 and 2.2
        if func not in getattr(fake_impls, "op_implementations_dict", ()):
            raise
    fake_tensor: Any = importlib.import_module("torch._subclasses.fake_tensor")
    mode, device = fake_tensor.FakeTensorMode(), torch.device("xpu", 0)  # with cuda it would call the driver

    def to_fake(value: Any) -> Any:
        return fake_tensor.FakeTensor(mode, value, device) if isinstance(value, torch.Tensor) else value

    def to_plain_meta(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    with mode:
        out = func(*tree_map(to_fake, args), **tree_map(to_fake, kwargs))
    return tree_map(to_plain_meta, out)


def _foreach_on_meta(name: str, args: Any) -> list[torch.Tensor] | None:
    """The result of a ``_foreach_`` operator on meta tensors; some have no meta kernel in torch 2.1."""
    if name.endswith("_"):
        return None
    if name == "aten::_foreach_norm":
        return [tensor.new_empty(()) for tensor in args[0]]
    return [torch.empty_like(tensor) for tensor in args[0]]


def increment_versions(tensors: Sequence[torch.Tensor]) -> None:
    """Tell autograd that tensors were changed in place, as CUDA's ``_foreach_`` kernels do."""
    for tensor in tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def register_stream_classes(stream: type, event: type) -> None:
    """Register these with the compiler of torch 2.2 to 2.4, which checks the base classes of streams and events."""
    for name, cls in (("_StreamBase", stream), ("_EventBase", event)):
        base = getattr(sys.modules.get("torch._streambase"), name, None)
        if isinstance(base, ABCMeta):
            base.register(cls)


def autocast_dtype() -> torch.dtype | None:
    """The dtype of CUDA autocast, or None if it is off."""
    if not hasattr(torch, "get_autocast_dtype"):  # new in torch 2.4
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Maps ATen operators to Python decompositions, for operators without a meta kernel."""
    from torch._decomp import decomposition_table

    return decomposition_table


def has_meta_kernel(func: Any) -> bool:
    """True if the operator can run on meta tensors."""
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), "Meta"))


def is_composite(func: Any) -> bool:
    """True if the operator is composite: a decomposition for devices that have no kernel for it."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "Meta"))


_LEGACY_TYPE_NAMES = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool",
}  # fmt: skip


def legacy_type_name(dtype: torch.dtype) -> str:
    """``torch.FloatTensor`` and the like, as returned by ``Tensor.type()`` on the CPU."""
    return f"torch.{_LEGACY_TYPE_NAMES.get(dtype, str(dtype).removeprefix('torch.').capitalize())}Tensor"


def dtype_of_legacy_type(name: str) -> torch.dtype:
    """The dtype of a name like ``torch.cuda.HalfTensor``. Raises ValueError for a name that is no such type."""
    word = name.rsplit(".", 1)[-1].removesuffix("Tensor")
    for dtype, legacy in _LEGACY_TYPE_NAMES.items():
        if legacy == word:
            return dtype
    raise ValueError(f"invalid type: '{name}'")


def is_small_numeric(tensor: torch.Tensor | None) -> bool:
    """True if the tensor is small, and of a dtype that NumPy has, so that its values can be pickled with it."""
    return (
        tensor is not None
        and tensor.numel() <= 4096
        and tensor.dtype in _LEGACY_TYPE_NAMES
        and tensor.dtype != torch.bfloat16
    )


def custom_operator(name: str) -> Callable[..., Any] | None:
    """The Python function of a custom operator (``torch.library.custom_op``), or None."""
    if not hasattr(torch.library, "custom_op"):  # new in torch 2.4
        return None
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(name)
    return None if definition is None else definition._init_fn


def resolve_process_group(name: str) -> Any:
    """The process group of a functional collective, by name."""
    import torch.distributed.distributed_c10d as c10d

    resolve: Any = vars(c10d)["_resolve_process_group"]
    return resolve(name)


@cache
def has_foreign_dispatch(kinds: tuple[type, ...]) -> bool:
    """True if one of the classes has a ``__torch_dispatch__`` of its own (DTensor), which precedes virtual
    tensors'."""
    plain = torch.Tensor.__torch_dispatch__
    return any(getattr(kind, "__torch_dispatch__", plain) is not plain and not _is_virtual(kind) for kind in kinds)


def _is_virtual(kind: type) -> bool:
    return any(base.__qualname__ == "VirtualTensor" for base in kind.__mro__)


def in_autograd() -> bool:
    """True during a backward pass, which on an accelerator runs in a separate thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def dispatch_modes() -> list[Any]:
    """The active dispatch modes, the innermost last."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    return list(_get_current_dispatch_mode_stack())


def without_dispatch_modes() -> Any:
    """Context in which no dispatch mode is active, neither gonogo's nor the program's own."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def register_replacements_for_scripting() -> None:
    """Register gonogo's replacements with TorchScript, which recognizes torch's functions by identity."""
    import torch.jit._builtins as builtins

    table: Any = vars(builtins)["_get_builtin_table"]
    known = table()
    builtins._builtin_table = None
    known.update(table())
    builtins._builtin_table = known


def missing_private_interfaces() -> list[str]:
    """Names of the private interfaces that this torch lacks or that behave unexpectedly; empty if all are fine."""
    moved = []
    probes: dict[str, Callable[[], object]] = {
        "torch.Tensor._make_wrapper_subclass": lambda: make_wrapper_subclass(
            _Probe, (2,), (1,), torch.float32, torch.device("meta", 1), False
        ),
        "torch.Tensor._make_subclass": lambda: make_alias(_Probe, torch.empty(1, device="meta")),
        "torch._C._nn._parse_to": lambda: parse_to("cpu", torch.float16),
        "torch._C._only_lift_cpu_tensors": lambda: lift_only_cpu_tensors()(),
        "torch._C._DisableTorchDispatch": DisableTorchDispatch,
        "torch._decomp.decomposition_table": decompositions,
        "torch._C._dispatch_has_computed_kernel_for_dispatch_key": lambda: has_meta_kernel(torch.ops.aten.mm.default),
        "torch._C._dispatch_has_kernel_for_dispatch_key": lambda: is_composite(torch.ops.aten.matmul.default),
        "torch.jit._builtins._builtin_table": register_replacements_for_scripting,
        "torch.UntypedStorage._cdata": lambda: storage_key(torch.empty(1)),
        "torch._C._current_graph_task_id": in_autograd,
        "torch.Tensor.data (getset descriptor)": lambda: get_data(torch.empty(1)),
    }
    for name, probe in probes.items():
        try:
            probe()
        except Exception as error:  # noqa: PERF203  every probe gets its say
            moved.append(f"{name}: {type(error).__name__}: {error}")
    return moved


class _Probe(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(str(func))
