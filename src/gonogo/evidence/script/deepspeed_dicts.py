"""DeepSpeed configs written as a dict in a script, and the calls to which a script passes its config."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gonogo.evidence.document.tree import Member, TreeNode
from gonogo.evidence.field import Field
from gonogo.evidence.script.script import Script
from gonogo.evidence.training_arguments import ARGUMENT_CLASSES

_MAX_DEPTH = 20
# Parameters that take a config: the callee, the keyword, and the position if it has one.
_CONFIG_PARAMETERS = (
    ("deepspeed.initialize", "config", 8),
    ("deepspeed.initialize", "config_params", 9),
    ("*.HfDeepSpeedConfig", "config_file_or_dict", 0),
    ("*.HfTrainerDeepSpeedConfig", "config_file_or_dict", 0),
    *((name, "deepspeed", None) for name in ARGUMENT_CLASSES),
    ("*.DeepSpeedPlugin", "hf_ds_config", 0),
)


def deepspeed_configs_in(script: Script) -> Iterator[tuple[Field, ast.expr | None]]:
    """The configs that a script passes to DeepSpeed, transformers or accelerate: the value, and its expression."""
    for pattern, keyword, position in _CONFIG_PARAMETERS:
        for call in script.calls(pattern):
            node = call.keyword_node(keyword)
            field = call.keyword(keyword)
            if field.absent and position is not None and len(call.node.args) > position:
                node, field = call.node.args[position], call.argument(position)
            if not field.absent and not (field.known and field.value is None):
                yield field, node


def resolve_dict(script: Script, node: ast.expr | None) -> ast.Dict | None:
    """The dict literal that an expression is, or that its name is assigned, once only; None otherwise."""
    if isinstance(node, ast.Dict):
        return node
    if not isinstance(node, ast.Name):
        return None
    assigned = [
        statement.value
        for statement in script.nodes(ast.Assign)
        if len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == node.id
    ]
    changed = any(
        isinstance(each.ctx, ast.Store) and isinstance(each.value, ast.Name) and each.value.id == node.id
        for each in script.nodes(ast.Subscript)
    )
    return assigned[0] if len(assigned) == 1 and isinstance(assigned[0], ast.Dict) and not changed else None


def dict_to_tree(script: Script, node: ast.Dict, depth: int = 0) -> TreeNode:
    """The dict as a tree whose values carry their places in the script."""
    members: dict[str, Member] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        name = script.field(key).string if key is not None else None
        if name is None:
            return TreeNode(Field.not_known(script.place(node)))
        members[name] = Member(script.place(key) if key is not None else None, _to_tree_node(script, value, depth))
    plain = {name: member.node.field.value for name, member in members.items()}
    return TreeNode(Field.of(plain, script.place(node)), members)


def _to_tree_node(script: Script, value: ast.expr, depth: int) -> TreeNode:
    if isinstance(value, ast.Dict) and depth < _MAX_DEPTH:
        return dict_to_tree(script, value, depth + 1)
    field = script.field(value)
    return TreeNode(
        field if field.place is not None else Field(field.value, field.status, script.place(value), field.reason)
    )
