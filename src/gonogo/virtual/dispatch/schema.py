"""What the dispatch mode has to know about an operator before it runs: read once from its schema."""

from __future__ import annotations

from typing import Any

import torch

from gonogo.virtual import private
from gonogo.virtual.memory.blas_workspaces import CUBLAS_OPERATORS

aten = torch.ops.aten

_UNDECLARED_VIEWS = {
    aten._unsafe_view.default, aten.lift_fresh.default, aten._reshape_alias.default,
    aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default, aten.unsafe_chunk.default,
}  # fmt: skip
"""Operators that share their input's storage although their schema doesn't declare it."""
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf", "isfinite"}
_STATIC_UNLESS_MASKED = {aten.index.Tensor, aten._unsafe_index.Tensor}
"""Operators tagged as having a dynamic output shape, which is true only with boolean indices."""
KNOWN_FACTORIES = {
    "zeros", "ones", "full", "arange", "eye", "linspace", "logspace", "scalar_tensor", "tril_indices", "triu_indices",
    "rand", "randn", "randint", "randperm", "hann_window", "hamming_window", "bartlett_window", "blackman_window",
    "kaiser_window", "empty", "empty_strided", "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like",
    "full_like", "rand_like", "randn_like", "randint_like", "empty_like", "new_empty", "new_empty_strided", "normal",
}  # fmt: skip
"""Operators whose results don't depend on tensor values, so that they can be known."""
UNIFORM_FACTORIES = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
}  # fmt: skip
_FULL_FACTORIES = {"full", "full_like", "new_full"}
_EMPTY_FACTORIES = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}


class Operator:
    """The properties of one operator overload."""

    __slots__ = (
        "compares", "composite", "data_dependent", "fills", "foreach", "func", "handler", "inplace_view", "is_empty",
        "known_factory", "multiplies", "name", "of_numbers", "uniform", "view", "view_of_first", "write_names",
        "writes", "writes_lists",
    )  # fmt: skip

    def __init__(self, func: Any, handler: Any) -> None:
        self.func = func
        self.handler = handler
        self.name: str = func._schema.name.split("::")[-1]
        arguments = func._schema.arguments
        written = [(i, a) for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
        self.writes = tuple(i for i, a in written if not a.kwarg_only)
        self.write_names = tuple(a.name for _, a in written)
        aliases = any(a.alias_info is not None and not a.alias_info.is_write for a in arguments)
        self.view = (aliases and not written) or func in _UNDECLARED_VIEWS
        self.inplace_view = torch.Tag.inplace_view in func.tags
        self.data_dependent = (
            torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
        ) and func not in _STATIC_UNLESS_MASKED
        self.composite = private.is_composite(func)
        tensors = [i for i, a in enumerate(arguments) if "Tensor" in str(a.type)]
        self.view_of_first = self.view and tensors == [0] and not self.composite and func is not aten.lift_fresh.default
        """Always shares the storage of its first argument, and takes no other tensor."""
        self.compares = self.name in _COMPARISONS
        self.foreach = self.name.startswith("_foreach_")
        self.writes_lists = self.foreach and self.writes == (0,)
        """Whether its kernel has to say that it changes its operands: of a list, autograd doesn't."""
        builtin = func.namespace == "aten"
        self.multiplies = builtin and self.name in CUBLAS_OPERATORS
        self.known_factory = builtin and self.name in KNOWN_FACTORIES
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        self.of_numbers = torch.Tag.pointwise in func.tags and bool(tensors) and not seeded
        """Where its operands are all numbers, it is as they say: ``torch.div(512, 256, rounding_mode="trunc")``."""
        self.uniform = UNIFORM_FACTORIES.get(self.name) if builtin else None
        self.fills = builtin and self.name in _FULL_FACTORIES
        self.is_empty = builtin and self.name in _EMPTY_FACTORIES
