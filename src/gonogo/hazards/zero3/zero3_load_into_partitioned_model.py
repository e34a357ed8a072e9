import ast

from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.training_script import makers
from gonogo.hazards.facts.zero_files import gathered, is_engine, is_optional, stage_span, tests_the_stage, text_of
from gonogo.hazards.rule import Call, Certainty, Finding, Findings, Hazard, Run, Script, translated
from gonogo.hazards.zero3._loading import knows_zero3
from gonogo.hazards.zero3._partitioned import zero3
from gonogo.hazards.zero3._shape_mismatches import shape_mismatches

_CURE = (
    translated("Load with from_pretrained while ZeRO-3 is on, or engine.load_checkpoint to resume"),
    translated(
        "Or load before ZeRO-3 partitions the model, or module by module inside "
        "deepspeed.zero.GatheredParameters(list(module.parameters(recurse=False)), modifier_rank=0)"
    ),
)


class Zero3LoadIntoPartitionedModel(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``load_state_dict`` of an engine's module, or of a model that was built under ``zero.Init``."""
        if run.zero_stage != 3 or b".load_state_dict(" not in script.source.data:
            return
        for call in script.calls("*.load_state_dict"):
            receiver = call.receiver
            if receiver is None or gathered(script, call.node) or tests_the_stage(script, call.node):
                continue
            if call.keyword("assign").truth:
                continue
            if not _is_partitioned(script, receiver):
                continue
            yield self.finding(
                translated(
                    "`{model}` is partitioned by ZeRO-3 here: each of its parameters has shape [0], and "
                    "load_state_dict raises a size mismatch for every full tensor it is given."
                ).format(model=text_of(script, receiver)),
                certainty=Certainty.LIKELY if is_optional(script, call.node) else Certainty.CERTAIN,
                cure=_CURE,
                spans=(call.place.span(), stage_span(run)),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch whose empty side is the model; a shape of [1] only where several parameters have it."""
        mismatches = list(shape_mismatches(log))
        ones = [m for m in mismatches if m.current == "1" and m.saved not in ("0", "1")]
        found = [(m, Certainty.CERTAIN) for m in mismatches if m.current == "0" and m.saved != "0"][:1]
        if not found and len(ones) > 1:
            found = [(ones[0], Certainty.CERTAIN if zero3(log) else Certainty.LIKELY)]
        for mismatch, certainty in found:
            yield self._found(mismatch.evidence, mismatch.saved, mismatch.current, certainty)

    def _found(self, evidence: LoggedError | LineMatch, saved: str, current: str, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            translated(
                "The checkpoint's weights are full ([{saved}]), but the model they are loaded into is "
                "partitioned by ZeRO-3 and its parameters are empty ([{current}])."
            ).format(saved=saved, current=current),
            cure=_CURE,
            certainty=certainty,
        )


def _is_partitioned(script: Script, node: ast.expr) -> bool:
    """Whether a model's parameters are surely partitioned: an engine's, or what was made under ``zero.Init``."""
    inner = node.value if isinstance(node, ast.Attribute) and node.attr == "module" else node
    made = makers(script, node)
    return is_engine(script, inner) or (bool(made) and all(_made_partitioned(script, one) for one in made))


def _made_partitioned(script: Script, made: Call) -> bool:
    if made.method == "from_pretrained" and made.name.startswith("transformers."):
        return knows_zero3(script, made.node) is True
    return any(name.endswith("zero.Init") for name in script.with_contexts(made.node))
