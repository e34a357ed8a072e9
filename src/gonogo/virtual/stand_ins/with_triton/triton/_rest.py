"""All names of Triton that its stand-in does not implement: kernels never run, so most are only mentioned in them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gonogo.finding import translated
from gonogo.virtual.kernels.names_only import NamesOnlyFinder, UnimplementedClass

_ERROR_MODULES = ("triton.errors", "triton.compiler.errors", "triton.runtime.errors")


class _Value:
    """A dtype or setting of ``triton.language``: kernels name it, and pass it to launches."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


class _Constant:
    """``triton.language.constexpr``: kernels' signatures construct it (``tl.constexpr(2)``), and code that launches
    them compares and computes with it."""

    def __init__(self, value: Any = None) -> None:
        self.value = _value_of(value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        index: int = self.value
        return index

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]


def _value_of(one: Any) -> Any:
    return one.value if isinstance(one, _Constant) else one


def _add_operators() -> None:
    """Give constants Python's operators, whose results are constants too."""

    def add(name: str, operate: Callable[..., Any]) -> None:
        def computed(*operands: Any) -> Any:
            return type(operands[0])(operate(*map(_value_of, operands)))

        setattr(_Constant, f"__{name}__", computed)

    for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert"):
        add(name, getattr(operator, name))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
        operate = getattr(operator, f"__{name}__")
        add(name, operate)
        add(f"r{name}", lambda one, other, operate=operate: operate(other, one))


_add_operators()


class _LanguageClass(UnimplementedClass):
    """A class of ``triton.language`` that kernels' signatures may construct, such as ``tl.pointer_type``."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _Value(f"{cls.__module__}.{cls.__name__}")


class _TritonNames(NamesOnlyFinder):
    """Finds Triton's modules and names that the stand-in does not implement."""

    def make_class(self, module: str, name: str, metaclass: type[UnimplementedClass] = UnimplementedClass) -> Any:
        if module in _ERROR_MODULES or name == "constexpr":
            base = _Constant if name == "constexpr" else Exception
            return type(name, (base,), {"__module__": module})
        return super().make_class(module, name, _LanguageClass if module.startswith("triton.language") else metaclass)

    def make_value(self, module: str, name: str) -> Any:
        return _Value(f"{module}.{name}")


_REST = _TritonNames(
    Path(__file__).with_name("names.json"),
    translated(
        "Triton is not installed here, and gonogo's stand-in for it has only this name, without an implementation"
    ),
)
VERSION = _REST.version
module_getattr = _REST.module_getattr
install = _REST.install
