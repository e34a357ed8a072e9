"""``torch.compile(fullgraph=True)``: code without graph breaks, which can't branch on a tensor's values.

Compiled code runs here as plain Python, where such a branch works. In a real run the compiler traces the code before
any values exist, and raises an error if a tensor is converted to bool. Only the compiled function's own code is
checked for that, since library code may first test whether it is being compiled.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch import nn

from gonogo.virtual.patching.patches import Patches

_COMPILING_CHECKS = ("is_compiling", "is_dynamo_compiling", "is_torchdynamo_compiling")
"""Code that calls one of these may branch differently when it is compiled."""
_CALL_METHODS = ("_call_impl", "_wrapped_call_impl", "__call__", "forward")
"""Methods of a module that run its forward."""
_COMPILER_FILE = "/torch/_dynamo/eval_frame.py"
_MESSAGE = (
    "Data-dependent branching: under torch.compile(fullgraph=True) the code asks whether a tensor is true "
    "(if my_tensor.sum() > 0), which the compiler can't trace"
)


def install(patches: Patches) -> Callable[[Any, Any], Any]:
    """Patch the conversions to bool; returns a function that wraps ``(model, what torch.compile made of it)``."""
    modules: set[CodeType] = set()
    running: Counter[CodeType] = Counter()
    real = torch.Tensor.__bool__

    def is_true(tensor: Any) -> bool:
        frame = sys._getframe(1)
        is_whole = running[frame.f_code] or (frame.f_code in modules and _is_compiled(frame))
        if is_whole and not _is_at_assert(frame):
            _raise_graph_break()
        return real(tensor)

    def wrap_read(name: str) -> Callable[[Any], Any]:
        """Wrap ``item()``, ``float(…)`` etc.: the compiler traces such numbers as long as no branch depends on
        them."""
        read = getattr(torch.Tensor, name)

        def read_unless_branching(tensor: Any) -> Any:
            frame = sys._getframe(1)
            is_whole = running[frame.f_code] or (frame.f_code in modules and _is_compiled(frame))
            if is_whole and _is_branch_condition(frame):
                _raise_graph_break()
            return read(tensor)

        return read_unless_branching

    def track_whole_graph(model: Any, compiled_function: Any) -> Any:
        owner = getattr(model, "__self__", None)
        if (
            isinstance(owner, nn.Module) and getattr(model, "__name__", "") in _CALL_METHODS
        ):  # block.compile(fullgraph=True)
            function = inspect.unwrap(type(owner).forward)
        else:
            function = inspect.unwrap(type(model).forward if isinstance(model, nn.Module) else model)
        code = getattr(function, "__code__", None)
        if code is None or set(_COMPILING_CHECKS) & set(code.co_names):
            return compiled_function
        if not (modules or running):
            patches.set(torch.Tensor, "__bool__", is_true)
            for name in ("item", "__float__", "__int__"):
                patches.set(torch.Tensor, name, wrap_read(name))
        if isinstance(model, nn.Module):
            modules.add(code)
            return compiled_function
        running[code] += 0

        @functools.wraps(compiled_function)
        def call_as_whole_graph(*args: Any, **kwargs: Any) -> Any:
            running[code] += 1
            try:
                return compiled_function(*args, **kwargs)
            finally:
                running[code] -= 1

        return call_as_whole_graph

    return track_whole_graph


def _is_at_assert(frame: Any) -> bool:
    """True if a frame is at an ``assert``, some of which the compiler converts into runtime checks."""
    following = (one for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti)
    return next((one.opname == "LOAD_ASSERTION_ERROR" for one in following if one.opname != "CACHE"), False)


def _is_branch_condition(frame: Any) -> bool:
    """True if the call's result decides a branch in the same statement: ``if x.norm().item() > 1e6``."""
    following = (one.opname for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti)
    ends = ("POP_JUMP", "JUMP_IF", "STORE_", "POP_TOP", "RETURN_")
    found = next((name for name in following if name.startswith(ends)), "")
    return "JUMP" in found and not _is_assert_branch(frame)


def _is_assert_branch(frame: Any) -> bool:
    """True if the branch belongs to an ``assert``: the code after its jump raises."""
    names = [one.opname for one in dis.get_instructions(frame.f_code) if one.offset > frame.f_lasti]
    jump = next((index for index, name in enumerate(names) if "JUMP" in name), len(names))
    return "LOAD_ASSERTION_ERROR" in names[jump + 1 : jump + 3]


def _is_compiled(frame: Any) -> bool:
    """True if a module's forward was called through its compiled wrapper."""
    while frame is not None and "/torch/" not in frame.f_code.co_filename:
        frame = frame.f_back
    while frame is not None and "/torch/" in frame.f_code.co_filename:
        if frame.f_code.co_filename.endswith(_COMPILER_FILE):
            return True
        frame = frame.f_back
    return False


def _raise_graph_break() -> None:
    """Raise the compiler's error, unless the program suppresses compile errors."""
    import torch._dynamo
    from torch._dynamo import eval_frame
    from torch._dynamo.exc import Unsupported

    stance = getattr(getattr(eval_frame, "_stance", None), "stance", "default")
    if stance == "default" and not torch._dynamo.config.suppress_errors:
        raise Unsupported(_MESSAGE)
