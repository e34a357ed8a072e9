from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, LoggedError, Pattern, Run, Script, translated
from gonogo.hazards.zero3._online_trainers import gathering_trainers
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, find_error_or_line, is_under_zero3

_EMPTY_DEQUE_PATTERN = Pattern(r"pop from an empty deque")
_POPS_PATTERN = Pattern(r"\.popleft\(\)")
_TRACE_RECORDING_FUNCTIONS = (
    "record_parameters",
    "partitioned_param_coordinator",
    "__step_id_module_fetched_for",
    "reset_step",
)
_RECORDING_NAMED_PATTERN = Pattern(r"record_parameters|__step_id_module_fetched_for|partitioned_param_coordinator")
_GENERATING_TRAINER_PATTERN = Pattern(r"(?i)\btrl\b|\bGRPO|\bPPO|\bRLOO|\bGKD|deepspeed")


class Zero3ParamTraceEmptyDeque(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A trainer that generates, with a TRL and a DeepSpeed that leave the record of modules inconsistent."""
        environment = run.environment
        if environment.within("trl", ">=0.16,<0.29") is not True or environment.within("deepspeed", ">=0.19"):
            return
        if run.arguments.get("use_vllm").truth:
            return
        for call in gathering_trainers(script, run):
            trl = environment.field("trl")
            yield self.finding(
                self.texts["cause_in_script"].format(trl=trl.get("< 0.29")),
                spans=(trl.span(), call.script.first_line_place(call.node).span(), stage_span(run)),
                confirm=translated("record_parameters in partitioned_param_coordinator.py fails"),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """An empty deque; certain if the frames are those of the coordinator."""
        evidence = find_error_or_line(log, _EMPTY_DEQUE_PATTERN, "IndexError") or find_cut_traceback(
            log, "partitioned_param_coordinator.py", code=_POPS_PATTERN
        )
        if evidence is None:
            return
        framed = isinstance(evidence, LoggedError) and evidence.passes(*_TRACE_RECORDING_FUNCTIONS)
        if framed or log.find(_RECORDING_NAMED_PATTERN):
            certainty = Certainty.CERTAIN
        elif isinstance(evidence, LoggedError) and evidence.frames and not evidence.passes("deepspeed/"):
            return
        elif (
            is_under_zero3(log)
            or log.find(_GENERATING_TRAINER_PATTERN)
            or any(line.rank is not None for line in log.lines)
        ):
            certainty = Certainty.LIKELY
        else:
            certainty = Certainty.POSSIBLE
        yield self.log_finding(
            evidence,
            certainty=certainty,
            confirm=translated("The last frame is record_parameters in partitioned_param_coordinator.py"),
        )
