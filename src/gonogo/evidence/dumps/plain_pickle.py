"""Read pickles of plain containers only: a dump is untrusted, and Python's unpickler executes what a pickle names."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

_MARK = object()
_LIST_TYPE = object()
"""torch's marker of a typed list (``torch.jit._pickle.build_intlist``), which precedes its content."""
_MAX_OPERATIONS = 4_000_000

_CONSTANT_OPCODES: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "MARK": lambda: _MARK,
}
_VALUES = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
)
_TUPLE_SIZES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED_OPCODES = frozenset(("PROTO", "FRAME"))


def load_plain_pickle(data: bytes) -> Any:
    """Unpickle dicts, lists, tuples, strings and numbers only. Raises ValueError for anything else."""
    try:
        return _load_pickle(data)
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"no pickle of plain containers: {error}") from None


def _load_pickle(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for count, (code, argument, _) in enumerate(pickletools.genops(data)):
        value: Any = argument
        name = code.name
        if count > _MAX_OPERATIONS:
            raise ValueError("a pickle of more than it should hold")
        if name in _VALUES:
            stack.append(value)
        elif name in _CONSTANT_OPCODES:
            stack.append(_CONSTANT_OPCODES[name]())
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if name == "MEMOIZE" else value] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[value])
        elif name in _TUPLE_SIZES:
            items = stack[-_TUPLE_SIZES[name] :]
            del stack[-_TUPLE_SIZES[name] :]
            stack.append(tuple(items))
        elif name in ("TUPLE", "LIST", "DICT"):
            items = _pop_to_mark(stack)
            stack.append(dict(_to_pairs(items)) if name == "DICT" else tuple(items) if name == "TUPLE" else items)
        elif name in ("APPEND", "APPENDS"):
            items = _pop_to_mark(stack) if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = _pop_to_mark(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(_to_pairs(items))
        elif name == "GLOBAL" and str(value).startswith("torch.jit._pickle build_"):
            stack.append(_LIST_TYPE)
        elif name == "REDUCE" and stack[-2] is _LIST_TYPE:
            items = list(stack.pop()[0])
            stack[-1] = items
        elif name == "STOP":
            return stack[-1]
        elif name not in _IGNORED_OPCODES:
            raise ValueError(f"a pickle with {name}: no plain container")
    raise ValueError("a pickle that ends early")


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    items.reverse()
    return items


def _to_pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items[::2], items[1::2], strict=True))
