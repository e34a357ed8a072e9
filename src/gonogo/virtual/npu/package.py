"""``import torch_npu``: makes the package and its submodules importable without an installation.

It shadows a real torch_npu in the user's environment, whose libraries would initialize CANN.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from gonogo.finding import Text, translated
from gonogo.virtual.cuda.state import Unsupported
from gonogo.virtual.npu import operators
from gonogo.virtual.npu.api import unsupported_function
from gonogo.virtual.npu.names import OPTIMIZERS, OTHER_OPTIMIZERS

Maker = Callable[[ModuleType], object]
_PACKAGE_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_npu")


def install(npu: ModuleType, unsupported: Unsupported, assume: Callable[[Text], object]) -> Callable[[], None]:
    """Make the package importable. ``npu`` is the module ``torch_npu.npu``. Returns the undo."""
    finder = _TorchNpuFinder(_module_fillers(npu, unsupported, assume), unsupported)
    sys.modules["torch_npu.npu"] = npu
    npu.__spec__ = ModuleSpec("torch_npu.npu", None, origin=npu.__file__, is_package=True)
    sys.meta_path.insert(0, finder)
    importlib.import_module("torch_npu")  # as torch itself does, which autoloads installed backends

    def remove_package() -> None:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch_npu"]:
            del sys.modules[name]

    return remove_package


def version() -> str:
    """The version of torch_npu: the installed one, or else the one that matches this torch."""
    finders = [finder for finder in sys.meta_path if not isinstance(finder, _TorchNpuFinder)]
    for finder in finders:
        find = getattr(finder, "find_distributions", None)
        for found in find(importlib.metadata.DistributionFinder.Context(name="torch-npu")) if find else ():
            return str(found.version)
    return torch.__version__.partition("+")[0]


class _TorchNpuFinder(importlib.metadata.DistributionFinder, MetaPathFinder):
    """Finds ``torch_npu``, its submodules, and its metadata."""

    def __init__(self, makers: dict[str, Maker], unsupported_error: Unsupported) -> None:
        self.makers = makers
        self.unsupported = unsupported_error

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "torch_npu":
            return None
        make = self.makers.get(name) or self._refuse_module
        spec = ModuleSpec(name, _ModuleLoader(make), origin=os.path.join(_PACKAGE_PATH, "__init__.py"), is_package=True)
        spec.has_location = True
        spec.submodule_search_locations = [_PACKAGE_PATH]
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        if name is None or name.lower().replace("_", "-") == "torch-npu":
            yield _Distribution()

    def _refuse_module(self, module: ModuleType) -> None:
        raise self.unsupported(
            f"import {module.__name__}", translated("gonogo's stand-in for torch_npu does not have this module")
        )


class _ModuleLoader(Loader):
    """Creates one of torch_npu's modules and fills it with stand-ins."""

    def __init__(self, make_module: Maker) -> None:
        self._make = make_module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._make(module)


class _Distribution(importlib.metadata.Distribution):
    """The metadata of torch_npu for ``importlib.metadata``."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return f"Metadata-Version: 2.1\nName: torch-npu\nVersion: {version()}\n"
        return "torch_npu\n" if filename == "top_level.txt" else None

    def locate_file(self, path: Any) -> Any:
        return os.path.join(os.path.dirname(_PACKAGE_PATH), path)


def _module_fillers(
    npu: ModuleType, unsupported_error: Unsupported, assume: Callable[[Text], object]
) -> dict[str, Maker]:
    """Map each module's name to the function that fills it on import."""
    hccl = SimpleNamespace(ProcessGroupHCCL=_process_group_hccl_class())

    def fill_torch_npu(module: ModuleType) -> None:
        def resolve_missing_name(name: str) -> Any:
            """``__getattr__`` of the module: an operator, one that raises because it has no stand-in, or a
            submodule."""
            if operators.is_defined(name):
                return getattr(torch.ops.npu, name)
            if name.startswith(("npu_", "_npu_")):
                return unsupported_function(f"torch_npu.{name}", unsupported_error)
            if f"torch_npu.{name}" in finder_names:
                return importlib.import_module(f"torch_npu.{name}")
            raise AttributeError(f"module 'torch_npu' has no attribute '{name}'")

        module.__version__ = version()  # type: ignore[attr-defined]
        module.npu = npu  # type: ignore[attr-defined]
        module._C = SimpleNamespace(_distributed_c10d=hccl)  # type: ignore[attr-defined]
        module.get_npu_format = lambda tensor: 2  # type: ignore[attr-defined]
        module.__getattr__ = resolve_missing_name  # type: ignore[method-assign]

    def fill_contrib(module: ModuleType) -> None:
        pass

    def fill_transfer_to_npu(module: ModuleType) -> None:
        from gonogo.virtual.npu import transfer

        transfer.transfer(npu)

    def fill_optim(module: ModuleType) -> None:
        for name in OPTIMIZERS:
            setattr(module, f"NpuFused{name}", _make_fused_optimizer(name, assume))
        for name in OTHER_OPTIMIZERS:
            setattr(module, name, unsupported_function(f"torch_npu.optim.{name}", unsupported_error))

    def fill_profiler(module: ModuleType) -> None:
        vars(module).update(_profiler())

    def fill_distributed(module: ModuleType) -> None:
        module.is_hccl_available = lambda: True  # type: ignore[attr-defined]

    makers: dict[str, Maker] = {
        "torch_npu": fill_torch_npu,
        "torch_npu.contrib": fill_contrib,
        "torch_npu.contrib.transfer_to_npu": fill_transfer_to_npu,
        "torch_npu.optim": fill_optim,
        "torch_npu.profiler": fill_profiler,
        "torch_npu.distributed": fill_distributed,
    }
    finder_names = frozenset(makers)
    return makers


def _process_group_hccl_class() -> type:
    class ProcessGroupHCCL:
        """Stand-in for ``ProcessGroupHCCL``, whose options are accepted and ignored."""

        class Options(SimpleNamespace):
            """``ProcessGroupHCCL.Options``."""

            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(is_high_priority_stream=False, hccl_config={})

    return ProcessGroupHCCL


def _make_fused_optimizer(name: str, assume: Callable[[Text], object]) -> type:
    base: Any = getattr(torch.optim, name)

    def init_and_assume(self: Any, *args: Any, **kwargs: Any) -> None:
        assume(translated("NpuFused{name} keeps the states that torch.optim.{name} keeps").format(name=name))
        base.__init__(self, *args, **kwargs)

    return type(f"NpuFused{name}", (base,), {"__init__": init_and_assume})


def _profiler() -> dict[str, Any]:
    """A profiler that records nothing, since no kernels run."""

    class profile:
        """Stand-in for ``torch_npu.profiler.profile``."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return lambda *args, **kwargs: None

    class PermissiveNamespace(SimpleNamespace):
        """An enumeration or configuration that accepts any attribute."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(**kwargs)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return name

    return {
        "profile": profile,
        "_KinetoProfile": profile,
        "schedule": torch.profiler.schedule,
        "tensorboard_trace_handler": lambda *args, **kwargs: lambda *more: None,
        "supported_activities": lambda: {"CPU", "NPU"},
        "ProfilerAction": torch.profiler.ProfilerAction,
        "ProfilerActivity": SimpleNamespace(CPU="CPU", NPU="NPU"),
        "_ExperimentalConfig": PermissiveNamespace,
        **{name: PermissiveNamespace() for name in ("ProfilerLevel", "AiCMetrics", "ExportType", "HostSystem")},
    }
