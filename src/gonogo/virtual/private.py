"""Private interfaces of torch that virtual tensors and their operators are built on, and how they differ by release.

Tried on torch 2.1 to 2.6, 2.8, 2.10, 2.12, 2.14, 2.15 (CUDA builds, no GPU) and 2.13 (CPU build);
``tests/virtual/test_private.py`` calls :func:`check`, which probes those that every rehearsal needs, and says by name
which of them moved. These are not all: what replaces a part of torch (``cuda/``, ``npu/``, ``collectives/``,
``operators/``, ``hooks/``, ``kernels/``) uses that part's private names where it does so, and those of saving and
loading are in ``weights/private_serialization.py``.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABCMeta
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map

DisableTorchDispatch = torch._C._DisableTorchDispatch
"""Context: operators go straight to their kernels, past every Python mode and subclass."""

COMPILER = "torch._dynamo"
"""The module that holds ``torch.compile``; imported when it is first needed."""

_data: Any = torch.Tensor.data
_storage: Any = torch.Tensor.untyped_storage
_to = torch.ops.aten._to_copy.default

as_strided: Callable[..., torch.Tensor] = torch.Tensor.as_strided
make_alias: Callable[[type, torch.Tensor], Any] = torch.Tensor._make_subclass
"""A tensor of a subclass that shares a tensor's storage."""
get_data: Callable[[torch.Tensor], torch.Tensor] = _data.__get__
set_data: Callable[[torch.Tensor, torch.Tensor], None] = _data.__set__


def make_wrapper(
    cls: type, shape: Any, strides: Any, dtype: torch.dtype, reported_device: torch.device, requires_grad: bool
) -> Any:
    """A wrapper-subclass tensor with a storage of its own, which C++ takes to be on ``reported_device``."""
    return torch.Tensor._make_wrapper_subclass(
        cls, shape, strides=strides, storage_offset=0, dtype=dtype, device=reported_device, requires_grad=requires_grad
    )


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) from the arguments of ``Tensor.to``; raises TypeError as it does."""
    return torch._C._nn._parse_to(*args, **kwargs)


def to_copy(
    tensor: torch.Tensor, device: torch.device, dtype: torch.dtype, non_blocking: bool, memory_format: Any
) -> Any:
    """``aten._to_copy``: always a copy, differentiable."""
    return _to(tensor, dtype=dtype, device=device, non_blocking=non_blocking, memory_format=memory_format)


def lift_only_cpu_tensors() -> Callable[[], None]:
    """``torch.tensor(..., device=X)`` builds on the CPU, then moves through the dispatcher. Returns the undo.

    C++ enters a device guard for X all the same; where torch has no CUDA device, a guard that does nothing is set.
    A torch that can't be told so, below 2.4, has but the functions that ``cuda/tensors.py`` replaces.
    """
    if not hasattr(torch._C, "_only_lift_cpu_tensors"):
        return lambda: None
    getattr(torch._C, "_ensureCUDADeviceGuardSet", lambda: None)()  # newer than torch 2.8
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    return lambda: torch._C._set_only_lift_cpu_tensors(before)


def register_device_type(device_type: str) -> None:
    """Have torch know devices of that type: one that is not its own is PrivateUse1, once a process."""
    if device_type not in ("cpu", "cuda"):
        torch.utils.rename_privateuse1_backend(device_type)  # type: ignore[attr-defined]


def raise_unknown_device(device: torch.device) -> None:
    """Raise what torch raises for a device that it has nothing for: ``cuda`` on an Ascend machine, ``mps`` …."""
    with modes_off():
        torch.empty(0, device=device)


def storage_key(tensor: torch.Tensor) -> int:
    """Identity of the tensor's storage."""
    return int(_storage(tensor)._cdata)


def storage_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's storage."""
    return int(_storage(tensor).nbytes())


def flops(func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> int:
    """Floating-point operations of an operator by torch's formulas; 0 where it has none."""
    flop_counter: Any = importlib.import_module("torch.utils.flop_counter")
    # Products that are given the dtype of what comes out have no formulas of their own; torch's know no such argument.
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
    """What ``isinstance`` asks of classes of parameters; None where torch asks rightly.

    To torch 2.1 and before, whatever is marked as a parameter was of each of them: an ``UninitializedParameter`` too.
    """
    marked: Any = torch.empty(0)
    marked._is_param = True
    if not isinstance(marked, torch.nn.parameter.UninitializedParameter):
        return None
    original: Any = type(torch.nn.Parameter).__instancecheck__

    def is_one(cls: type, instance: Any) -> bool:
        return bool(original(cls, instance) if cls is torch.nn.Parameter else type.__instancecheck__(cls, instance))

    return is_one


def unregister_library(library: Any) -> None:
    """Take away what a ``torch.library.Library`` has registered."""
    if hasattr(library, "_destroy"):
        library._destroy()
        return
    importlib.import_module("torch.library")._impls.difference_update(library._op_impls)  # torch 2.1
    library.m = None


def run_on_meta(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator on plain meta tensors: by its meta kernel, or by FakeTensor's own where torch has it only there.

    So it is of fused attention in torch 2.3 to 2.5 (``torch/_subclasses/fake_impls.py``). Raises NotImplementedError
    where there is neither.
    """
    try:
        return func(*args, **kwargs)
    except NotImplementedError:
        if func._schema.name.startswith("aten::_foreach_"):
            return _each(func._schema.name, args)
        try:
            fake_impls: Any = importlib.import_module("torch._subclasses.fake_impls")
        except ImportError:
            fake_impls = None  # torch 2.1 and 2.2
        if func not in getattr(fake_impls, "op_implementations_dict", ()):
            raise
    fake_tensor: Any = importlib.import_module("torch._subclasses.fake_tensor")
    mode, device = fake_tensor.FakeTensorMode(), torch.device("xpu", 0)  # for cuda it would enter the driver

    def fake(value: Any) -> Any:
        return fake_tensor.FakeTensor(mode, value, device) if isinstance(value, torch.Tensor) else value

    def plain(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    with mode:
        out = func(*tree_map(fake, args), **tree_map(fake, kwargs))
    return tree_map(plain, out)


def _each(name: str, args: Any) -> list[torch.Tensor] | None:
    """What an operator on a list of tensors gives of meta tensors; some have no kernel for them in torch 2.1."""
    if name.endswith("_"):
        return None
    if name == "aten::_foreach_norm":
        return [tensor.new_empty(()) for tensor in args[0]]
    return [torch.empty_like(tensor) for tensor in args[0]]


def register_stream_classes(stream: type, event: type) -> None:
    """Have the compiler of torch 2.2 to 2.4, which asks what streams and events are derived from, take these."""
    for name, cls in (("_StreamBase", stream), ("_EventBase", event)):
        base = getattr(sys.modules.get("torch._streambase"), name, None)
        if isinstance(base, ABCMeta):
            base.register(cls)


def autocast_dtype() -> torch.dtype | None:
    """What autocast on CUDA casts to; None where it is off."""
    if not hasattr(torch, "get_autocast_dtype"):  # newer than torch 2.3
        return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """ATen operator → a Python function in terms of others, for operators without a meta kernel."""
    from torch._decomp import decomposition_table

    return decomposition_table


def has_meta_kernel(func: Any) -> bool:
    """Whether the operator can run on meta tensors."""
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), "Meta"))


def is_composite(func: Any) -> bool:
    """Whether the operator is only a composition of others: its math is there for devices without a kernel for it."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "Meta"))


_LEGACY = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool",
}  # fmt: skip


def legacy_type_name(dtype: torch.dtype) -> str:
    """``torch.FloatTensor`` and the like: what ``Tensor.type()`` says on the CPU."""
    return f"torch.{_LEGACY.get(dtype, str(dtype).removeprefix('torch.').capitalize())}Tensor"


def dtype_of_legacy_type(name: str) -> torch.dtype:
    """The dtype of ``torch.cuda.HalfTensor`` and the like. Raises ValueError for a name that is no such type."""
    word = name.rsplit(".", 1)[-1].removesuffix("Tensor")
    for dtype, legacy in _LEGACY.items():
        if legacy == word:
            return dtype
    raise ValueError(f"invalid type: '{name}'")


def is_small_numeric(tensor: torch.Tensor | None) -> bool:
    """Whether the values are few enough, and of a dtype numpy knows, to be pickled with the tensor."""
    return tensor is not None and tensor.numel() <= 4096 and tensor.dtype in _LEGACY and tensor.dtype != torch.bfloat16


def custom_operator(name: str) -> Callable[..., Any] | None:
    """The Python function that a library registered as an operator (``torch.library.custom_op``), or None."""
    if not hasattr(torch.library, "custom_op"):  # newer than torch 2.3
        return None
    from torch._library.custom_ops import OPDEFS

    definition = OPDEFS.get(name)
    return None if definition is None else definition._init_fn


def resolve_process_group(name: str) -> Any:
    """The process group that a functional collective names."""
    import torch.distributed.distributed_c10d as c10d

    resolve: Any = vars(c10d)["_resolve_process_group"]
    return resolve(name)


@cache
def has_foreign_dispatch(kinds: tuple[type, ...]) -> bool:
    """Whether a class among these has a dispatch of its own (a DTensor), which goes before that of virtual tensors."""
    plain = torch.Tensor.__torch_dispatch__
    return any(getattr(kind, "__torch_dispatch__", plain) is not plain and not _is_virtual(kind) for kind in kinds)


def _is_virtual(kind: type) -> bool:
    return any(base.__qualname__ == "VirtualTensor" for base in kind.__mro__)


def in_autograd() -> bool:
    """Whether autograd is running a backward: on an accelerator, in a thread of its own."""
    return bool(torch._C._current_graph_task_id() != -1)


def modes_off() -> Any:
    """Context: no dispatch mode, virtual or the program's own, is active."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def register_replacements_for_scripting() -> None:
    """Have TorchScript, which knows torch's functions by their identity, know those, too, that stand in torch now."""
    import torch.jit._builtins as builtins

    table: Any = vars(builtins)["_get_builtin_table"]
    known = table()
    builtins._builtin_table = None
    known.update(table())
    builtins._builtin_table = known


def check() -> list[str]:
    """The private interfaces that this torch lacks or that behave otherwise than expected, by name; empty if none."""
    moved = []
    probes: dict[str, Callable[[], object]] = {
        "torch.Tensor._make_wrapper_subclass": lambda: make_wrapper(
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
