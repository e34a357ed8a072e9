import ast
import re
from collections import Counter
from collections.abc import Iterator

from gonogo.evidence.log.failure_log import FailureLog, LineMatch
from gonogo.evidence.log.named_model import find_multimodal_mention
from gonogo.evidence.log.stall import STALL_WORDS, find_stall
from gonogo.evidence.rehearsal.rank_divergence import RankDivergence, names_in_call, rank_divergence
from gonogo.hazards.facts.divergence_fixes import fix_divergent_branch, script_at
from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    is_inside_module_class,
    is_under_zero_condition,
    mentions_self,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Script, translated

_RUN_ON_ZEROS = translated("If there is no {name}, run self.{module} on zeros and multiply its output by zero")
_TENSOR_SIZE_PATTERN = re.compile(r"\[(\d+(?:, \d+)*)\]$")


def dummy_input_fixes(divergence: RankDivergence, run: Run) -> Iterator[Fix]:
    """Add an ``else`` that runs the tower on zeros to ``if pixels is not None: x = … self.tower(pixels) …``."""
    for side, _ in divergence.sides_in_calls:
        sizes = {name: match[1] for name, kind in side.batch if (match := _TENSOR_SIZE_PATTERN.search(kind))}
        for guard in divergence.conditions_of_side_alone(side):
            script = script_at(run, guard.path)
            for branch in script.nodes(ast.If) if script is not None else ():
                if script is not None and branch.lineno == guard.line:
                    yield from _add_else_fix(script, branch, sizes)


def _add_else_fix(script: Script, branch: ast.If, sizes: dict[str, str]) -> Iterator[Fix]:
    name = _tested_name(branch.test)
    statement = branch.body[-1]
    if name not in sizes or branch.orelse or not isinstance(statement, ast.Assign) or len(branch.body) != 1:
        return
    target = script.place(statement.targets[0]).text
    call = next(
        (
            each
            for each in ast.walk(statement.value)
            if isinstance(each, ast.Call) and _is_submodule_call_with(each, name)
        ),
        None,
    )
    if call is None or not isinstance(call.func, ast.Attribute):
        return
    zeros = f"torch.zeros({sizes[name]}, dtype={target}.dtype, device={target}.device)"
    place, inner = script.place(branch), script.place(statement)
    data = script.source.data
    outside = data[script.source.line_start(place.line) : place.start].decode()
    inside = data[script.source.line_start(inner.line) : inner.start].decode()
    if outside.strip() or inside.strip() or not script.imports("torch"):
        return
    text = f"\n{outside}else:\n{inside}{target} = {target} + 0.0 * {script.place(call.func).text}({zeros}).sum()"
    edit = script.source.place(place.end, place.end).edit(text)
    yield Hazard.fix(_RUN_ON_ZEROS.format(module=call.func.attr, name=name), edit, safe=False)


def _tested_name(test: ast.expr) -> str:
    """The name in the test ``name is not None`` or ``name``; empty for any other test."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and isinstance(test.left, ast.Name):
        return test.left.id
    return test.id if isinstance(test, ast.Name) else ""


def _is_submodule_call_with(call: ast.Call, name: str) -> bool:
    """Whether a call is ``self.module(name)``."""
    func = call.func
    of_self = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
    return of_self and len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == name


_TOWERS = ("vision", "visual", "image", "audio", "video", "speech", "encode_images")
_SIZE_FUNCTIONS = ("shape", "size", "numel", "any", "sum", "len")


class Zero3MixedModalityHang(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge because one ran a tower for which the other's batch has no input."""
        divergence = rank_divergence(record)
        if divergence is None:
            return
        towers = [side for side in divergence.sides if self.patterns["tower"].search(names_in_call(side))]
        unlike = 0 < len(towers) < len(divergence.sides) or divergence.batches_differ
        if unlike and divergence.gathers_weights and divergence.rank_condition is None:
            yield self.divergence_finding(
                divergence,
                divergence.most_informative_side(*towers),
                cure=self.cures,
                reason=self.texts["divergence_reason"],
            )

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Run the tower on all ranks."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_divergent_branch(divergence, run)
            yield from dummy_input_fixes(divergence, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """A tower that a model in the script calls only if the batch has input for it."""
        if run.zero_stage != 3 or run.world_size == 1 or b"nn.Module" not in script.source.data:
            return
        if b"dummy" in script.source.data or b"zeros" in script.source.data:
            return
        for node in script.nodes(ast.Call):
            tower = node.func
            if (
                not isinstance(tower, ast.Attribute)
                or not isinstance(tower.value, ast.Name)
                or tower.value.id != "self"
            ):
                continue
            function = script.enclosing_function(node)
            if function is None or function.name != "forward" or not is_inside_module_class(script, node):
                continue
            if not any(word in tower.attr.lower() for word in _TOWERS) or is_under_zero_condition(script, node):
                continue
            test = next((one for one in script.guarded_by(node) if _depends_on_batch(one)), None)
            if test is None or script.cached_result(_calls_by_name)[function, dotted_name_or_empty(tower)] > 1:
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(call=source_text(script, node, 50), tower=tower.attr),
                certainty=Certainty.POSSIBLE,
                spans=(
                    script.place(node).span(),
                    script.place(test).span(translated("the batch decides whether this runs")),
                    stage_span(run),
                ),
                confirm=translated("Some batches have no images (audio, video)"),
            )

    log_words = STALL_WORDS

    def in_log(self, log: FailureLog) -> Findings:
        """A stall of a multimodal model under ZeRO-3, most certain after an invalidated trace cache."""
        stall = find_stall(log)
        if stall is None or not stall.gathers_parameters:
            return
        named, cache = find_multimodal_mention(log), stall.trace_cache
        if not named and not stall.disagreed and (cache is None or stall.time_outs):
            return
        shown = named and (cache is not None or stall.has_diverged)
        yield self.log_finding(
            stall.evidence,
            certainty=stall.cap_certainty(Certainty.LIKELY) if shown else Certainty.POSSIBLE,
            extra_evidence=tuple(one for one in (named, cache) if isinstance(one, LineMatch)),
            confirm=translated("With text-only or image-only data the run continues, as it does under ZeRO-2"),
        )


def _depends_on_batch(test: ast.expr) -> bool:
    """Whether a test depends on the batch: ``images is not None``, ``mask.any()``, ``"pixel_values" in batch``."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.IsNot, ast.In)):
        return not mentions_self(test.left)
    called = (dotted_name_or_empty(each.func) for each in ast.walk(test) if isinstance(each, ast.Call))
    return any(name.rpartition(".")[2] in _SIZE_FUNCTIONS for name in called) and not mentions_self(test)


def _calls_by_name(script: Script) -> Counter[tuple[ast.AST | None, str]]:
    """How often each function calls what it calls."""
    return Counter(
        (script.enclosing_function(call), dotted_name_or_empty(call.func)) for call in script.nodes(ast.Call)
    )
