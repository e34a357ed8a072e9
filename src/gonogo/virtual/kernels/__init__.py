"""Stand-ins for DeepSpeed's compiled kernels: nothing is compiled, loaded or computed.

``OpBuilder.load()`` returns an object with the functions of the compiled module. A stand-in checks devices, dtypes
and sizes exactly as the kernel's C++ does (deepspeed/ops/csrc), raises the same errors, allocates what the kernel
allocates, and reports which tensors it would have written. A kernel without a stand-in raises an error that names it
when it is called.

Tested with DeepSpeed 0.14.0 to 0.19.8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.kernels.async_io import AsyncIo, NvmeTraffic
from gonogo.virtual.kernels.cpu_optimizers import CpuAdagrad, CpuAdam, CpuLion
from gonogo.virtual.kernels.fused_optimizers import FusedAdam, FusedLamb, FusedLion
from gonogo.virtual.kernels.host import PinMemory, ShareMemComm, Utils
from gonogo.virtual.kernels.quantizer import FpQuantizer, Quantizer
from gonogo.virtual.kernels.random_ltd import RandomLtd
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

Written = Callable[[torch.Tensor], object]
Unsupported = Callable[[str, Text], BaseException]
_UNSUPPORTED_KERNEL_REASON = translated(
    "gonogo has no stand-in for this compiled DeepSpeed kernel: turn off the feature that uses "
    "it{setting} and rehearse again, which covers all but this kernel"
)
_COMPILES_KERNEL = translated(
    "the program compiles its own kernel, which needs an accelerator to run: rehearse with the "
    "setting that disables the kernel, if there is one"
)
_SETTING_HINTS = {
    "transformer_inference": translated(" (hybrid_engine in the configuration, such as --enable_hybrid_engine)"),
    "sparse_attn": translated(" (sparse_attention in the configuration)"),
}
"""The settings that require a kernel, by its name."""


def _not_rehearsed_error(feature: str, reason: Text) -> BaseException:
    return NotImplementedError(f"{feature} can't be rehearsed: {reason.en}")


@dataclass
class KernelStandIns:
    """The kernels that were loaded, and the traffic to NVMe. :meth:`undo` restores DeepSpeed's own loader."""

    loaded: list[str] = field(default_factory=list)
    nvme: NvmeTraffic = field(default_factory=NvmeTraffic)
    patches: Patches = field(default_factory=Patches)

    def undo(self) -> None:
        """Restore the loader in modules that are imported, now or later."""
        self.patches.undo()


class _MissingKernel:
    """A kernel without a stand-in: it can be loaded, but calling any of its functions raises."""

    def __init__(self, name: str, unsupported: Unsupported) -> None:
        self._name = name
        self._unsupported = unsupported

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)

        def raise_unsupported_kernel(*args: Any, **kwargs: Any) -> Any:
            why = _UNSUPPORTED_KERNEL_REASON.format(setting=_SETTING_HINTS.get(self._name, ""))
            raise self._unsupported(f"deepspeed.{self._name}.{function}", why)

        return raise_unsupported_kernel


def install(
    written: Written,
    unsupported: Unsupported = _not_rehearsed_error,
    assume: Callable[[Text], object] = lambda what: None,
) -> KernelStandIns:
    """Make DeepSpeed load stand-ins, and reject extensions that the program compiles itself.

    ``written`` is called with each tensor that a kernel would have changed; ``unsupported`` creates the exception for
    kernels without a stand-in; ``assume`` is told that a kernel is assumed to build on the machine.
    """
    kernels = KernelStandIns()
    makers: dict[str, Callable[[], Any]] = {
        "cpu_adam": lambda: CpuAdam(written),
        "cpu_adagrad": lambda: CpuAdagrad(written),
        "cpu_lion": lambda: CpuLion(written),
        "fused_adam": lambda: FusedAdam(written),
        "fused_lamb": lambda: FusedLamb(written),
        "fused_lion": lambda: FusedLion(written),
        "quantizer": lambda: Quantizer(written),
        "fp_quantizer": lambda: FpQuantizer(written),
        "random_ltd": lambda: RandomLtd(written),
        "async_io": lambda: AsyncIo(written, kernels.nvme),
        "gds": lambda: AsyncIo(written, kernels.nvme),
        "utils": Utils,
        "pin_memory": PinMemory,
        "deepspeed_shm_comm": lambda: ShareMemComm(written),
        "deepspeed_ccl_comm": lambda: ShareMemComm(written),
    }
    modules: dict[str, Any] = {}

    def load_kernel_module(builder: Any, verbose: bool = False) -> Any:
        name = builder.name
        if name not in modules:
            make = makers.get(name)
            modules[name] = make() if make is not None else _MissingKernel(name, unsupported)
            kernels.loaded.append(name)
            assume(translated("DeepSpeed's kernel {name} compiles on the target machine").format(name=name))
        return modules[name]

    def patch_builders(module: ModuleType) -> None:
        base = module.OpBuilder
        own = {"load": load_kernel_module, "is_compatible": lambda builder, verbose=False: True}

        def init_subclass(cls: type, /, **kwargs: Any) -> None:
            """Replace the loader and compatibility check (libaio, a compiler…) that a builder overrides."""
            for name, function in own.items():
                if name in vars(cls):
                    kernels.patches.set(cls, name, function)

        for cls in _all_subclasses(base):
            init_subclass(cls)
        for name, function in own.items():
            kernels.patches.set(base, name, function)
        kernels.patches.set(base, "__init_subclass__", classmethod(init_subclass))
        kernels.patches.set(module, "installed_cuda_version", lambda name="": _cuda_version())
        kernels.patches.set(module, "assert_no_cuda_mismatch", lambda name="": True)

    for name in ("deepspeed.ops.op_builder.builder", "op_builder.builder"):
        kernels.patches.on_undo(after_import(name, patch_builders))
    kernels.patches.on_undo(
        after_import("torch.utils.cpp_extension", _make_extension_blocker(kernels.patches, unsupported))
    )
    return kernels


def _all_subclasses(cls: type) -> list[type]:
    children: list[type] = cls.__subclasses__()
    return [found for child in children for found in (child, *_all_subclasses(child))]


def _cuda_version() -> tuple[int, int]:
    major, minor = (torch.version.cuda or "12.4").split(".")[:2]
    return int(major), int(minor)


def _make_extension_blocker(patches: Patches, unsupported: Unsupported) -> Callable[[ModuleType], None]:
    def block_compilation(module: ModuleType) -> None:
        for function in ("load", "load_inline"):

            def raise_unsupported_extension(name: str, *args: Any, _function: str = function, **kwargs: Any) -> Any:
                raise unsupported(f"torch.utils.cpp_extension.{_function}({name!r})", _COMPILES_KERNEL)

            patches.set(module, function, raise_unsupported_extension)

    return block_compilation
