import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.training_script import creating_calls
from gonogo.hazards.facts.zero_usage import (
    is_behind_option,
    is_engine,
    is_in_gathered_parameters,
    is_under_zero_condition,
    source_text,
    stage_span,
)
from gonogo.hazards.rule import Call, Certainty, Finding, Findings, Hazard, Run, Script
from gonogo.hazards.zero3._loading import is_zero3_configured_at
from gonogo.hazards.zero3._shape_mismatches import shape_mismatches
from gonogo.hazards.zero3._zero3_in_log import is_under_zero3


class Zero3LoadIntoPartitionedModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``load_state_dict`` of an engine's module, or of a model that was built under ``zero.Init``."""
        if run.zero_stage != 3 or b".load_state_dict(" not in script.source.data:
            return
        for call in script.calls("*.load_state_dict"):
            receiver = call.receiver
            if (
                receiver is None
                or is_in_gathered_parameters(script, call.node)
                or is_under_zero_condition(script, call.node)
            ):
                continue
            if call.keyword("assign").truth:
                continue
            if not _is_partitioned(script, receiver):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(model=source_text(script, receiver)),
                certainty=Certainty.LIKELY if is_behind_option(script, call.node) else Certainty.CERTAIN,
                spans=(call.place.span(), stage_span(run)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A shape mismatch in which the model's side is empty; [1] counts only if several parameters have it."""
        mismatches = list(shape_mismatches(log))
        ones = [m for m in mismatches if m.current == "1" and m.saved not in ("0", "1")]
        found = [(m, Certainty.CERTAIN) for m in mismatches if m.current == "0" and m.saved != "0"][:1]
        if not found and len(ones) > 1:
            found = [(ones[0], Certainty.CERTAIN if is_under_zero3(log) else Certainty.LIKELY)]
        for mismatch, certainty in found:
            yield self._build_finding(mismatch.evidence, mismatch.saved, mismatch.current, certainty)

    def _build_finding(
        self, evidence: LoggedError | LineMatch, saved_sizes: str, current_sizes: str, certainty: Certainty
    ) -> Finding:
        return self.log_finding(
            evidence, self.texts["cause"].format(saved=saved_sizes, current=current_sizes), certainty=certainty
        )


def _is_partitioned(script: Script, node: ast.expr) -> bool:
    """Whether a model is certainly partitioned: it belongs to an engine or was created under ``zero.Init``."""
    inner = node.value if isinstance(node, ast.Attribute) and node.attr == "module" else node
    made = creating_calls(script, node)
    return is_engine(script, inner) or (bool(made) and all(_is_created_partitioned(script, one) for one in made))


def _is_created_partitioned(script: Script, model_call: Call) -> bool:
    if model_call.method == "from_pretrained" and model_call.name.startswith("transformers."):
        return is_zero3_configured_at(script, model_call.node) is True
    return any(name.endswith("zero.Init") for name in script.with_contexts(model_call.node))
