import ast
from collections.abc import Iterator

from gonogo.evidence.rehearsal.rank_divergence import rank_divergence
from gonogo.finding.divergence import CollectiveCall, EnclosingCondition
from gonogo.hazards.facts.divergence_fixes import fix_rank_conditional_call
from gonogo.hazards.facts.rank_tests import find_single_rank_test
from gonogo.hazards.facts.zero_usage import (
    dotted_name_or_empty,
    is_behind_option,
    is_engine,
    is_in_gathered_parameters,
    is_trained,
    is_under_zero_condition,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Certainty, Finding, Findings, Fix, Hazard, RehearsalRecord, Run, Script, translated


class Zero3ModelRunOnOneRank(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Ranks that diverge because only one runs the model."""
        divergence = rank_divergence(record)
        if divergence is None or divergence.rank_condition is None:
            return
        side, guard = divergence.rank_condition
        call = side.call
        runs_model = call is not None and (call.parameters or call.module) and not _in_forward(call, guard)
        if runs_model and divergence.zero_stage == 3:
            yield self.divergence_finding(divergence, side, cure=self.cures, reason=self.texts["divergence_reason"])

    def rehearsed_fixes(self, finding: Finding, record: RehearsalRecord, run: Run) -> Iterator[Fix]:
        """Run on all ranks what only one does."""
        divergence = rank_divergence(record)
        if divergence is not None:
            yield from fix_rank_conditional_call(divergence, run)

    def in_script(self, script: Script, run: Run) -> Findings:
        """Calls of the trained model that only one rank makes."""
        if run.zero_stage != 3 or run.world_size == 1:
            return
        for node in script.nodes(ast.Call):
            if (
                not _runs_the_model(script, node)
                or is_in_gathered_parameters(script, node)
                or is_under_zero_condition(script, node)
            ):
                continue
            test = find_single_rank_test(script, node)
            if test is None:
                continue
            yield self.finding(
                self.texts["cause"].format(code=source_text(script, node.func) + "(…)"),
                certainty=Certainty.LIKELY if is_behind_option(script, node) else Certainty.CERTAIN,
                spans=(
                    script.place(node).span(),
                    script.place(test).span(translated("only one rank gets here")),
                    stage_span(run),
                ),
            )


def _in_forward(call: CollectiveCall, guard: EnclosingCondition) -> bool:
    """Whether the condition is inside a module's forward, so that it skips a layer and not the whole model."""
    return any(
        frame.function == "forward" and frame.path == guard.path and frame.line >= guard.line for frame in call.frames
    )


def _runs_the_model(script: Script, node: ast.Call) -> bool:
    """Whether a call is ``engine(…)``, ``engine.generate(…)``, ``trainer.evaluate()`` or ``trainer.predict(…)``."""
    func = node.func
    if isinstance(func, ast.Name):
        return is_engine(script, func)
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in ("evaluate", "predict"):
        return any(kind.endswith("Trainer") for kind in script.kinds_of(func.value))
    if func.attr not in ("generate", "forward"):
        return False
    inner = func.value.value if isinstance(func.value, ast.Attribute) and func.value.attr == "module" else func.value
    return is_engine(script, inner) or is_trained(script, dotted_name_or_empty(inner))
