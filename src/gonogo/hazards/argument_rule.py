"""Hazards declared in a page alone: arguments that a program rejects in combination, and the text for each.

In the head of a page, if the arguments alone decide::

    program = "megatron"

    [[arguments]]
    when = "num_experts % expert_model_parallel_size"
    cause.en = "{expert_model_parallel_size} expert-parallel ranks do not divide {num_experts} experts: …"
    cause.zh = "…"

``when`` is an expression of the arguments' names (with ``_`` for ``-``), in Python's syntax: ``and``, ``or``,
``not``, comparisons, ``+ - * // %``, strings. A name alone is true if the argument is given and not switched off;
within a sum or a comparison it is the number or the string. An argument that isn't given has the default in its
program's ``defaults`` below; if there is none, or if a value of the command is unknown, the result is unknown and
nothing is found. A remainder is true if it is not 0. Two more names are ``world_size``, and ``data_parallel_size`` as
Megatron computes it. The texts may use all of these names as ``{…}``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from gonogo.hazards.log_rule import LoggedHazard, LogPageDeclarations
from gonogo.hazards.page import HazardPage
from gonogo.hazards.rule import Certainty, Field, Findings, Launch, Run, Text, translated


class CheckedProgram(msgspec.Struct, frozen=True):
    """A program whose arguments are checked: how a launch of it is recognized, and the defaults of its arguments."""

    begins: tuple[str, ...]
    """Prefixes of its file name."""
    any_of: frozenset[str]
    """Arguments of which at least one is given."""
    leaves: frozenset[str]
    """Arguments that load other arguments from elsewhere (checkpoint, file): with one of them, nothing is checked."""
    defaults: Mapping[str, int | str]


PROGRAMS = {
    "megatron": CheckedProgram(
        begins=("pretrain_", "train_rl"),
        any_of=frozenset({
            "num_layers", "hidden_size", "num_attention_heads", "tensor_model_parallel_size", "encoder_num_layers",
            "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
        }),
        leaves=frozenset({
            "use_checkpoint_args", "use_mp_args_from_checkpoint_args", "yaml_cfg", "ckpt_convert_format", "config",
            "hybrid_layer_pattern", "hybrid_override_pattern", "heterogeneous_layers_config_path", "deepspeed",
            "heterogeneous_layers_config_encoded_json", "pipeline_model_parallel_layout", "perform_rl_step",
            "tensor_parallel_num_weight_shards", "config_file",
        }),
        defaults={
            "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "context_parallel_size": 1,
            "expert_model_parallel_size": 1, "lr_warmup_iters": 0, "lr_warmup_samples": 0,
            "moe_token_dispatcher_type": "allgather", "fp8_recipe": "delayed", "optimizer": "adam",
            "transformer_impl": "transformer_engine", "ckpt_format": "torch_dist", "fp4_recipe": "nvfp4",
            "data_parallel_sharding_strategy": "no_shard", "moe_router_load_balancing_type": "aux_loss",
            "min_lr": 0,
        },
    )
}  # fmt: skip
"""By the name used in pages; from ``NVIDIA/Megatron-LM``'s ``megatron/training/arguments.py``."""


class RefusedArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One combination of arguments that is refused."""

    when: str
    cause: Text
    cures: tuple[Text, ...] | UnsetType = UNSET
    """Replace the page's cures for this combination."""


class DeclaredArguments(LogPageDeclarations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page of an :class:`ArgumentHazard` may declare: signs of a log as well."""

    program: Literal["megatron"] | UnsetType = UNSET
    arguments: tuple[RefusedArguments, ...] | UnsetType = UNSET


class ArgumentHazard(LoggedHazard):
    """Arguments that a program rejects in combination."""

    declares = DeclaredArguments

    program: str
    arguments: tuple[RefusedArguments, ...]

    def __init__(self, page: HazardPage) -> None:
        """Raises UserError if the page doesn't declare any combination, or if an expression is invalid."""
        super().__init__(page)
        for key in ("program", "arguments"):
            if not hasattr(self, key):
                page.refuse(key, translated("this key is missing: add it to the page's head"))
        try:
            self._rules = [(rule, *read_expression(rule.when)) for rule in self.arguments]
        except ValueError as error:
            page.refuse("arguments.when", Text(str(error), str(error)))

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A finding for the first refused combination of arguments in the launch command."""
        program = PROGRAMS[self.program]
        if not _is_launched(program, launch, run):
            return
        values = _ExpressionValues(program, launch, run)
        for rule, expression, names in self._rules:
            if not _evaluate_condition(values, expression):
                continue
            yield self.finding(
                rule.cause.format(**{name: values.display_value(name) for name in names}),
                certainty=Certainty.CERTAIN,
                cure=self.cures if rule.cures is UNSET else rule.cures,
                spans=tuple(values.field(name).span() for name in names if values.field(name).known)
                or (launch.place.span(),),
            )
            return


def read_expression(text: str) -> tuple[ast.expr, tuple[str, ...]]:
    """The parsed expression, and the names in it in order. Raises ValueError if its syntax is not supported."""
    try:
        found = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text}: {error.msg}") from None
    for node in ast.walk(found):
        if not isinstance(node, _SUPPORTED_NODES):
            raise ValueError(f"{text}: {type(node).__name__} can't be decided")
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            raise ValueError(f"{text}: one comparison at a time: a < b and b < c")
    named = sorted((node for node in ast.walk(found) if isinstance(node, ast.Name)), key=lambda node: node.col_offset)
    return found, tuple(dict.fromkeys(node.id for node in named))


_SUPPORTED_NODES = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Compare, ast.BinOp, ast.Name, ast.Load, ast.Constant,
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def _is_launched(program: CheckedProgram, launch: Launch, run: Run) -> bool:
    """Whether the launch starts this program directly, with all relevant arguments on its command line."""
    name = str(launch.program.get("")).rpartition("/")[2]
    if launch.framework is not None or run.uses_deepspeed or not name.startswith(program.begins):
        return False
    options = launch.options
    given = set(options.names())
    return options.complete and bool(given & program.any_of) and not given & program.leaves


class _ExpressionValues:
    """The values of the names in an expression."""

    def __init__(self, program: CheckedProgram, launch: Launch, run: Run) -> None:
        self._program = program
        self._launch = launch
        self._run = run

    def field(self, name: str) -> Field:
        """An argument as given on the command line."""
        return self._launch.world_size if name == "world_size" else self._launch.options.get(name)

    def value(self, name: str) -> int | float | str | None:
        """A number or a string; None if unknown."""
        if name == "world_size":
            return self._run.world_size
        if name == "data_parallel_size":
            return self._infer_data_parallel_size()
        field = self.field(name)
        if field.absent:
            return self._program.defaults.get(name)
        return field.number if field.number is not None else field.string

    def is_on(self, name: str) -> bool | None:
        """Whether an argument is given and not switched off."""
        field = self.field(name)
        if field.absent:
            return False
        if not field.known:
            return True  # it is given, even if its value is unknown
        return field.truth is not False or field.number is not None

    def display_value(self, name: str) -> object:
        """The value for use in texts, with ``?`` if unknown."""
        value = self.value(name)
        return "?" if value is None else value

    def _infer_data_parallel_size(self) -> int | None:
        world = self._run.world_size
        if world is None:
            return None
        for name in ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"):
            size = self.value(name)
            if not isinstance(size, int) or size < 1 or world % size:
                return None
            world //= size
        return world


def _evaluate_condition(values: _ExpressionValues, node: ast.expr) -> bool | None:
    """Whether an expression holds; None if unknown."""
    if isinstance(node, ast.Name):
        return values.is_on(node.id)
    if isinstance(node, ast.UnaryOp):
        inner = _evaluate_condition(values, node.operand)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        deciding = isinstance(node.op, ast.Or)
        parts = list(_evaluate_operands(values, node))
        if deciding in parts:
            return deciding
        return None if None in parts else not deciding
    found = _evaluate_expression(values, node)
    return None if found is None else bool(found)


def _evaluate_operands(values: _ExpressionValues, node: ast.BoolOp) -> Iterator[bool | None]:
    return (_evaluate_condition(values, part) for part in node.values)


def _evaluate_expression(values: _ExpressionValues, node: ast.expr) -> Any:
    """The value of a part of an expression; None if unknown."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values.value(node.id)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate_expression(values, node.left), _evaluate_expression(values, node.right)
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            return None
        if isinstance(node.op, ast.Mod | ast.FloorDiv) and not right:
            return None
        return _ARITHMETIC[type(node.op)](left, right)
    if isinstance(node, ast.Compare):
        left, right = _evaluate_expression(values, node.left), _evaluate_expression(values, node.comparators[0])
        if left is None or right is None or isinstance(left, str) is not isinstance(right, str):
            return None
        return _COMPARISONS[type(node.ops[0])](left, right)
    return _evaluate_condition(values, node)
