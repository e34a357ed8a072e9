"""Finds direct uses of parameters, rather than through the modules that hold them.

Under ZeRO-3 a parameter is only complete while its own module's forward runs, or inside ``GatheredParameters``;
elsewhere it is an empty tensor. Reading its shape, name or ``requires_grad`` needs no values, and isn't a use here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from gonogo.evidence.script.nodes import dotted_name
from gonogo.evidence.script.script import Script
from gonogo.evidence.script.syntax_index import COMPREHENSIONS
from gonogo.evidence.script.zero_terms import ZeroTerm, find_zero_term

_PARAMETER_ITERATORS = frozenset({"parameters", "named_parameters"})
# Attributes of a parameter that don't need its values.
_METADATA_ATTRIBUTES = frozenset(
    {
        *("numel", "nelement", "requires_grad", "requires_grad_", "shape", "size", "dim", "ndim", "dtype", "device"),
        *("grad", "grad_fn", "is_leaf", "element_size", "itemsize", "nbytes", "name", "register_hook", "is_cuda"),
        *("register_post_accumulate_grad_hook", "retain_grad", "is_meta", "untyped_storage", "data_ptr", "layout"),
        *("is_contiguous", "stride", "is_floating_point", "is_sparse", "untyped_storage", "storage"),
        *("tensor_model_parallel", "all_gather", "partition", "main_grad", "decay", "allreduce", "sequence_parallel"),
    }
)
_NO_GRAD_ATTRIBUTES = frozenset({"data", "detach", "detach_", "item", "tolist", "cpu", "numpy"})
# torch functions that use only a tensor's shape, dtype or device, or that handle partitioned parameters.
_METADATA_FUNCTIONS = frozenset(
    {
        *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "numel", "is_tensor", "to"),
        *("is_floating_point", "is_complex", "type_as", "expand_as", "view_as", "new_zeros", "new_ones", "new_empty"),
        *(
            "clip_grad_norm_",
            "clip_grad_value_",
            "get_device",
            "result_type",
            "promote_types",
            "can_cast",
            "reshape_as",
        ),
        *("no_grad", "broadcast", "all_reduce", "all_gather", "size", "from_numpy", "save", "register_parameter"),
    }
)
# These names imply a computation on values, wherever the functions come from.
_COMPUTING_FUNCTIONS = frozenset(
    {
        *("linear", "bilinear", "embedding", "conv1d", "conv2d", "conv3d", "layer_norm", "rms_norm", "matmul", "mm"),
        *("bmm", "addmm", "einsum", "dot", "norm", "sum", "mean", "square", "isnan", "isinf", "isfinite", "mse_loss"),
        *("cross_entropy", "cosine_similarity", "normalize", "softmax", "log_softmax", "allclose", "equal"),
    }
)
_COMPUTING_METHODS = frozenset(
    {
        *("sum", "mean", "norm", "abs", "pow", "square", "max", "min", "prod", "std", "var", "sqrt", "exp", "log"),
        *("mul", "add", "sub", "div", "amax", "amin", "all", "any", "matmul", "mm", "dot", "isnan", "isinf"),
        *("isfinite", "nansum", "nanmean", "count_nonzero"),
    }
)
# The same values in another form: what is done with the result counts.
_FORMS = frozenset(
    {
        *("view", "reshape", "flatten", "ravel", "float", "double", "half", "bfloat16", "to", "type_as", "type"),
        *("t", "T", "mT", "transpose", "permute", "unsqueeze", "squeeze", "expand", "contiguous", "clone", "cuda"),
    }
)
_JOINING_FUNCTIONS = frozenset({"cat", "stack", "concat", "concatenate", "hstack", "vstack", "sum", "norm"})
_GATHERING_CONTEXTS = frozenset({"GatheredParameters", "gather_params_ctx", "unwrap_model_for_generation"})
_WEIGHT_ATTRIBUTES = frozenset({"weight", "bias"})


class ParameterUse(msgspec.Struct, frozen=True, eq=False):
    """One use of parameters' values outside their module.

    ``kind`` is ``"reduced"`` if all of a module's parameters are iterated over and computed with
    (``sum(p.sum() for p in m.parameters())``), ``"weight-reduced"`` if a single one is (``m.weight.norm()``), and
    ``"passed"`` if one is passed to a function or operator (``F.linear(x, m.weight)``).
    """

    kind: str
    node: ast.expr
    """The whole expression: the ``sum(...)``, or the call that the weight is passed to."""
    module: ast.expr
    """The module that holds the parameters: ``m``."""
    statement: ast.stmt
    """The statement that contains it."""
    gathered: bool
    """Whether it is inside ``deepspeed.zero.GatheredParameters``."""
    no_grad: bool
    """Whether no gradient flows through it: under ``torch.no_grad``, or because of ``.data`` or ``.detach()``."""
    registered: bool
    """Whether the script calls ``register_external_parameter`` for it."""
    own: bool
    """Whether it is the class's own parameter, ``self.weight``, which its own forward may use."""
    function: str
    """The name of the enclosing function; empty at module level."""
    zero: ZeroTerm | None
    """How to remove it from a loss to which it adds nothing; None if it isn't multiplied by zero."""


def parameter_uses(script: Script) -> tuple[ParameterUse, ...]:
    """All uses, in source order."""
    registered = {
        dotted_name(call.node.args[-1]) for call in script.calls("*.register_external_parameter") if call.node.args
    }
    found: dict[int, ParameterUse] = {}
    for kind, node, module, no_grad in (*_uses_in_iterations(script), *_uses_of_attributes(script)):
        statement = script.statement(node)
        if statement is None or id(node) in found:
            continue
        contexts = script.with_contexts(node)
        function = script.enclosing_function(node)
        found[id(node)] = ParameterUse(
            kind,
            node,
            module,
            statement,
            any(name.rpartition(".")[2] in _GATHERING_CONTEXTS for name in contexts),
            no_grad or any(name.endswith(("torch.no_grad", "torch.inference_mode")) for name in contexts),
            any(dotted_name(each) in registered for each in ast.walk(node) if isinstance(each, ast.Attribute)),
            isinstance(module, ast.Name) and module.id == "self" and kind != "reduced",
            function.name if function is not None else "",
            find_zero_term(script, node, statement),
        )
    return tuple(sorted(found.values(), key=lambda use: (use.node.lineno, use.node.col_offset)))


_ParameterUse = tuple[str, ast.expr, ast.expr, bool]


def _uses_in_iterations(script: Script) -> Iterator[_ParameterUse]:
    """Uses of the loop variable over ``m.parameters()``, in comprehensions and ``for`` statements."""
    for method in _PARAMETER_ITERATORS:
        for call in script.calls(f"*.{method}"):
            module = call.receiver
            if module is None:
                continue
            loop = _loop_over(script, call.node)
            if loop is None:
                yield from _uses_as_vector(script, call.node, module)
                continue
            name = _loop_variable(loop, method)
            if name is None:
                continue
            holder = script.parent(loop) if isinstance(loop, ast.comprehension) else loop
            if isinstance(holder, COMPREHENSIONS):
                yield from _uses_in_comprehension(script, holder, name, module)
            elif isinstance(holder, ast.For):
                yield from _uses_in_loop(script, holder, name, module)


def _loop_over(script: Script, node: ast.expr) -> ast.comprehension | ast.For | None:
    """The loop that iterates over an expression, also through ``list``, ``filter``, ``tqdm`` and the like."""
    current: ast.AST = node
    parent = script.parent(current)
    for _ in range(4):
        if isinstance(parent, (ast.comprehension, ast.For)):
            return parent if parent.iter is current else None
        wraps = isinstance(parent, ast.Call) and current is not parent.func
        name = _last_part(parent.func) if isinstance(parent, ast.Call) else ""
        if not wraps or name not in ("list", "tuple", "filter", "tqdm", "sorted", "reversed", "chain"):
            return None
        assert parent is not None
        current, parent = parent, script.parent(parent)
    return None


def _loop_variable(loop: ast.comprehension | ast.For, method: str) -> str | None:
    target = loop.target
    if method == "named_parameters":
        target = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else target
    return target.id if isinstance(target, ast.Name) else None


def _uses_as_vector(script: Script, node: ast.Call, module: ast.expr) -> Iterator[_ParameterUse]:
    """The use of all parameters as one vector, as by ``parameters_to_vector``."""
    parent = script.parent(node)
    if isinstance(parent, ast.Call) and dotted_name(parent.func).endswith("parameters_to_vector"):
        yield "reduced", parent, module, False


def _uses_in_comprehension(
    script: Script, comprehension: ast.expr, name: str, module: ast.expr
) -> Iterator[_ParameterUse]:
    outer = script.parent(comprehension)
    whole: ast.expr = outer if isinstance(outer, ast.Call) and comprehension in outer.args else comprehension
    joins = isinstance(whole, ast.Call) and _last_part(whole.func) in _JOINING_FUNCTIONS
    for use in _loads_of_name(comprehension, name):
        found = _computation_of(script, use)
        element = getattr(comprehension, "elt", None)
        if found is None or not (found.computed is not None or (joins and found.form is element)):
            continue
        if isinstance(whole, ast.Call) and _last_part(whole.func) in ("stack", "cat"):
            above = script.parent(whole)
            if isinstance(above, ast.Attribute):
                above = script.parent(above)
            whole = above if isinstance(above, ast.Call) else whole
        yield "reduced", whole, module, found.no_grad
        return


def _uses_in_loop(script: Script, loop: ast.For, name: str, module: ast.expr) -> Iterator[_ParameterUse]:
    for statement in loop.body:
        for use in _loads_of_name(statement, name):
            found = _computation_of(script, use)
            if found is not None and found.computed is not None:
                yield "reduced", found.computed, module, found.no_grad


def _loads_of_name(node: ast.AST, name: str) -> Iterator[ast.Name]:
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load):
            yield each


def _uses_of_attributes(script: Script) -> Iterator[_ParameterUse]:
    """``m.weight`` and ``m.bias`` where their values are used in a computation."""
    for node in script.nodes(ast.Attribute):
        if node.attr not in _WEIGHT_ATTRIBUTES or not isinstance(node.ctx, ast.Load):
            continue
        function = script.enclosing_function(node)
        if function is not None and function.name in ("__init__", "_init_weights", "init_weights", "reset_parameters"):
            continue
        found = _computation_of(script, node)
        if found is not None and found.computed is not None:
            computed = found.computed
            reduced = isinstance(computed, ast.Call) and _is_receiver_within(computed, node)
            yield "weight-reduced" if reduced else "passed", computed, node.value, found.no_grad


def _is_receiver_within(call: ast.Call, node: ast.expr) -> bool:
    """Whether a node is part of the object whose method is called."""
    return isinstance(call.func, ast.Attribute) and any(each is node for each in ast.walk(call.func.value))


class _Computation(msgspec.Struct, frozen=True, eq=False):
    """What is done with a parameter: the expression that computes with its values, if any, and the operand's form."""

    computed: ast.expr | None
    form: ast.expr
    no_grad: bool


def _computation_of(script: Script, node: ast.expr) -> _Computation | None:
    """What is done with a parameter; None if that needs no values, or DeepSpeed takes care of it."""
    current: ast.expr = node
    no_grad = False
    while True:
        parent = script.parent(current)
        if isinstance(parent, ast.Attribute):
            call = script.parent(parent)
            called = call if isinstance(call, ast.Call) and call.func is parent else None
            if parent.attr in _COMPUTING_METHODS and called is not None:
                return _Computation(called, called, no_grad)
            if parent.attr in _METADATA_ATTRIBUTES or parent.attr not in (_FORMS | _NO_GRAD_ATTRIBUTES):
                return None
            no_grad = no_grad or parent.attr in _NO_GRAD_ATTRIBUTES
            current = called if called is not None else parent
        elif isinstance(parent, ast.Subscript) and parent.value is current and isinstance(parent.ctx, ast.Load):
            current = parent
        elif isinstance(parent, ast.BinOp):
            return _Computation(parent, current, no_grad)
        else:
            call = script.parent(parent) if isinstance(parent, ast.keyword) else parent
            if not isinstance(call, ast.Call) or current is call.func:
                return _Computation(None, current, no_grad)
            return (
                _Computation(call, current, no_grad)
                if _reads_tensor_values(script, call)
                else _Computation(None, current, no_grad)
            )


def _reads_tensor_values(script: Script, call: ast.Call) -> bool:
    """Whether a function computes with the values of its tensor arguments; False for the user's own, as unknown."""
    last = _last_part(call.func)
    if last in _COMPUTING_FUNCTIONS:
        return True
    name = script.qualified(call.func) or ""
    of_torch = name.startswith("torch.") and not name.startswith(
        ("torch.nn.init.", "torch.distributed.", "torch.optim.")
    )
    return of_torch and last not in _METADATA_FUNCTIONS and not last.endswith("_") and not last[:1].isupper()


def _last_part(func: ast.expr) -> str:
    return dotted_name(func).rpartition(".")[2]
