"""What chooses a kernel's settings: the fastest of several, or some that its arguments decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from triton import _rest
from triton.runtime.jit import KernelInterface

__getattr__ = _rest.module_getattr(__name__)
_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg")


class Config:
    """One configuration of the autotuner: block sizes, warps and stages."""

    def __init__(
        self,
        kwargs: dict[str, Any],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[..., Any] | None = None,
        ir_override: str | None = None,
        **options: Any,
    ) -> None:
        self.kwargs = kwargs
        self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = num_warps, num_stages, num_ctas, maxnreg
        self.pre_hook, self.ir_override, self.options = pre_hook, ir_override, options

    def all_kwargs(self) -> dict[str, Any]:
        """All settings, as keyword arguments of the kernel."""
        options = {name: value for name in _OPTIONS if (value := getattr(self, name)) is not None}
        return {**self.kwargs, **options}


class _KernelWrapper(KernelInterface[Any]):  # type: ignore[misc]
    """A decorator's result around a kernel."""

    def __init__(self, fn: Any, arg_names: Sequence[str]) -> None:
        self.fn, self.arg_names = fn, list(arg_names)
        base = fn
        while isinstance(base, _KernelWrapper):
            base = base.fn
        self.base_fn = getattr(base, "fn", base)
        self.__name__ = getattr(self.base_fn, "__name__", "kernel")


class Autotuner(_KernelWrapper):
    """A kernel with several settings; gonogo takes the first."""

    def __init__(self, fn: Any, arg_names: Sequence[str], configs: list[Config], **options: Any) -> None:
        super().__init__(fn, arg_names)
        self.configs = configs or [Config({})]
        self.keys = options.get("key", ())
        self.cache: dict[Any, Config] = {}


class Heuristics(_KernelWrapper):
    """A kernel some of whose settings are functions of its arguments."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: dict[str, Callable[..., Any]]) -> None:
        super().__init__(fn, arg_names)
        self.values = values

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the kernel with the computed settings."""
        for name, value in self.values.items():
            kwargs[name] = value({**dict(zip(self.arg_names, args, strict=False)), **kwargs})
        return self.fn.run(*args, **kwargs)


def autotune(configs: list[Config], key: Sequence[str] = (), **options: Any) -> Callable[[Any], Autotuner]:
    """Decorate a kernel to be autotuned over ``configs``."""
    return lambda fn: Autotuner(fn, fn.arg_names, configs, key=key, **options)


def heuristics(values: dict[str, Callable[..., Any]]) -> Callable[[Any], Heuristics]:
    """Decorate a kernel whose settings are computed from its arguments."""
    return lambda fn: Heuristics(fn, fn.arg_names, values)
