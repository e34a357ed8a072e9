import ast
import re
from collections.abc import Iterator

from gonogo.hazards.facts.training_framework import fix_with_edits
from gonogo.hazards.rule import FailureLog, Field, Findings, Fix, Hazard, Pattern, Run, Script, Severity, translated

_SAVED_SHAPE_PATTERN = Pattern(r"saved metadata: \{'shape': torch\.Size\(\[([\d, ]+)\]\)")
_RECOMPUTED_SHAPE_PATTERN = Pattern(r"recomputed metadata: \{'shape': torch\.Size\(\[([\d, ]+)\]\)")


class CacheWithGradientCheckpointing(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """A tensor recomputed with twice the length it was saved with: the KV cache was appended to again."""
        for saved in log.find_all(_SAVED_SHAPE_PATTERN):
            before = _SAVED_SHAPE_PATTERN.search(saved.text)
            after = log.find(_RECOMPUTED_SHAPE_PATTERN)
            if before is None or after is None or (again := _RECOMPUTED_SHAPE_PATTERN.search(after.text)) is None:
                continue
            if _has_one_doubled_dimension(_parse_sizes(before.group(1)), _parse_sizes(again.group(1))):
                yield self.log_finding(
                    after,
                    self.texts["cause"].format(saved=f"[{before.group(1)}]", again=f"[{again.group(1)}]"),
                    confirm=translated("model.config.use_cache is True"),
                )
                return

    def in_script(self, script: Script, run: Run) -> Findings:
        """``use_cache = True`` before training, given to the model or to its config."""
        if b"use_cache" not in script.source.data:
            return
        on = run.arguments.get("gradient_checkpointing")
        if on.truth is not True:
            return
        trains = min((call.line for call in script.calls("*.train") if call.node.args == []), default=None)
        for field, node in _enabled_places(script):
            if trains is not None and node.lineno > trains:
                continue
            yield self.finding(
                translated("use_cache is set to True for a model that trains with gradient checkpointing."),
                severity=Severity.NOTE,
                cure=translated("Set use_cache to False for training"),
                spans=(field.span(), on.span(translated("gradient checkpointing is turned on"))),
                fixes=_set_false_fixes(script, node),
            )


def _parse_sizes(sizes_text: str) -> list[int]:
    return [int(size) for size in re.findall(r"\d{1,18}", sizes_text)]


def _has_one_doubled_dimension(saved_shape: list[int], recomputed_shape: list[int]) -> bool:
    """Whether the shapes differ in exactly one dimension, which has doubled."""
    pairs = [pair for pair in zip(saved_shape, recomputed_shape, strict=False) if pair[0] != pair[1]]
    return len(saved_shape) == len(recomputed_shape) and len(pairs) == 1 and pairs[0][1] == 2 * pairs[0][0] > 2


def _set_false_fixes(script: Script, node: ast.expr) -> tuple[Fix, ...]:
    return fix_with_edits(translated("Set use_cache to False"), lambda: script.replacing(node, "False"), safe=False)


def _enabled_places(script: Script) -> Iterator[tuple[Field, ast.expr]]:
    """Places that set ``use_cache`` to True: on ``model.config``, or as a keyword of ``from_pretrained``."""
    for statement in script.nodes(ast.Assign):
        target = statement.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "use_cache":
            field = script.field(statement.value)
            if field.truth is True and isinstance(statement.value, ast.Constant):
                yield field, statement.value
    for call in script.calls("*.from_pretrained"):
        node = call.keyword_node("use_cache")
        if isinstance(node, ast.Constant) and node.value is True:
            yield call.keyword("use_cache"), node
