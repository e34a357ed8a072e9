import ast

from gonogo.evidence.rehearsal.failures import failed_ranks, failure_places, shorten_exception_message
from gonogo.hazards.facts.zero_usage import is_behind_option, is_under_zero_condition, stage_span
from gonogo.hazards.rule import Call, Certainty, FailureLog, Findings, Hazard, RehearsalRecord, Run, Script, translated
from gonogo.hazards.zero3._loading import is_zero3_configured_at, model_loads
from gonogo.hazards.zero3._zero3_in_log import find_error_or_line


class Zero3LowCpuMemDeviceMap(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``from_pretrained(device_map=…)``, and ``low_cpu_mem_usage=True`` in older versions of transformers."""
        if run.zero_stage != 3 or not any(word in script.source.data for word in (b"device_map", b"low_cpu_mem")):
            return
        for call in model_loads(script):
            known = is_zero3_configured_at(script, call.node)
            if known is False or is_under_zero_condition(script, call.node):
                continue
            yield from self._call_findings(call, run, known is True and not is_behind_option(script, call.node))

    def _call_findings(self, call: Call, run: Run, zero3_is_known: bool) -> Findings:
        names = []
        place = call.keyword("device_map")
        if call.has("device_map") and not (place.known and place.value is None):
            node = call.keyword_node("device_map")
            if place.unknown and not _is_certainly_mapping(node):
                return
            names.append("device_map")
        refused = run.environment.within("transformers", "<4.51")
        if call.keyword("low_cpu_mem_usage").truth and refused is not False and (names or refused):
            names.append("low_cpu_mem_usage")
        if not names:
            return
        edits = [edit for name in names if (edit := call.script.removing_keyword(call, name)) is not None]
        version = run.environment.field("transformers").span() if names == ["low_cpu_mem_usage"] else None
        where = [call.keyword_place(name) for name in names]
        yield self.finding(
            self.texts["placement_cause"].format(given=", ".join(one.text for one in where if one is not None)),
            certainty=Certainty.CERTAIN if zero3_is_known else Certainty.LIKELY,
            spans=(*(one.span() for one in where if one is not None), stage_span(run), version),
            fixes=self.fix(translated("Drop {names}").format(names=", ".join(names)), *edits, safe=zero3_is_known)
            if len(edits) == len(names)
            else None,
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """transformers' error, in both wordings."""
        for failed in failed_ranks(record):
            message = failed.failure.message
            if "DeepSpeed Zero-3 is not compatible with" not in message:
                continue
            if "device_map" not in message and "low_cpu_mem_usage" not in message:
                continue
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(
                    world=record.world_size, message=shorten_exception_message(message)
                ),
                spans=failure_places(failed.failure),
                ranks=failed.ranks,
            )

    def in_log(self, log: FailureLog) -> Findings:
        """transformers' error, which has no other cause."""
        if evidence := find_error_or_line(log, self.patterns["zero3_incompatible"], "ValueError"):
            yield self.log_finding(evidence)


def _is_certainly_mapping(node: ast.expr | None) -> bool:
    """Whether an expression is certainly a map, even though its value is unknown."""
    return isinstance(node, ast.Dict) or (
        isinstance(node, ast.IfExp)
        and not any(isinstance(one, ast.Constant) and one.value is None for one in (node.body, node.orelse))
    )
