from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.facts.zero_usage import has_peft, stage_span
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Finding, Findings, Hazard, Pattern, Run, translated
from gonogo.hazards.zero3._checkpointing import active_checkpointing
from gonogo.hazards.zero3._zero3_in_log import find_cut_traceback, is_under_zero3

_TENSOR_COUNT_DIFFERS_PATTERN = Pattern(
    r"A different number of tensors was saved during the original forward and recomputation"
)
_RECOMPUTED_EMPTY_PATTERN = Pattern(r"recomputed(?: metadata:?)?:? ?\{'shape': (?:torch\.Size\()?\[0\]")
_RECOMPUTED_SHAPE_PATTERN = Pattern(r"recomputed(?: metadata:?)?:? ?\{'shape': (?:torch\.Size\()?\[[^\]]*\]")
_LORA_PATTERN = Pattern(r"(?i)\blora\b|\bpeft\b|lora_[AB]|adapter")
_FSDP_FRAMES = ("fully_sharded_data_parallel.py", "torch/distributed/fsdp", "torch/distributed/_composable")
_CONFIRM = (translated("The recomputed metadata in the message shows torch.Size([0])"),)


class Zero3GradientCheckpointRecompute(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Adapters, ZeRO-3 and checkpointing with ``use_reentrant=False``, under an older DeepSpeed."""
        if config.zero_stage != 3 or run.environment.within("deepspeed", "<0.19") is not True or not has_peft(run):
            return
        how = active_checkpointing(run)
        if how is None or how.reentrant is not False or how.set_at is None:
            return
        version = run.environment.field("deepspeed")
        yield self.finding(
            self.texts["cause_in_config"].format(version=version.get("< 0.19")),
            spans=(how.set_at, version.span(), stage_span(run)),
            confirm=_CONFIRM,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """A recomputed shape of [0]; if the message states no shape, ZeRO-3 or LoRA makes it likely."""
        evidence: LoggedError | LineMatch | None = next(
            log.errors_of(says=self.patterns["metadata_differs"]), None
        ) or log.find(self.patterns["metadata_differs"])
        empty = log.find(_RECOMPUTED_EMPTY_PATTERN)
        evidence = evidence or empty
        on = is_under_zero3(log)
        if evidence is None:
            if found := _find_without_shapes(log, on):
                yield self._build_finding(*found)
            return
        if empty:
            certainty = Certainty.LIKELY if on is False else Certainty.CERTAIN
        elif log.find(_RECOMPUTED_SHAPE_PATTERN) or on is False or log.passes(*_FSDP_FRAMES):
            return
        else:
            certainty = Certainty.LIKELY if on or log.find(_LORA_PATTERN) else Certainty.POSSIBLE
        yield self._build_finding(evidence, certainty)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(evidence, certainty=certainty, confirm=_CONFIRM)


def _find_without_shapes(log: FailureLog, zero3_is_on: bool | None) -> tuple[LoggedError, Certainty] | None:
    """An error that states no shapes, or a traceback without its last line."""
    if zero3_is_on and (error := next(log.errors_of("CheckpointError", says=_TENSOR_COUNT_DIFFERS_PATTERN), None)):
        return error, Certainty.POSSIBLE
    if zero3_is_on is False or log.passes(*_FSDP_FRAMES):
        return None
    cut = find_cut_traceback(log, "torch/utils/checkpoint.py", "check_recomputed_tensors_match")
    return (cut, Certainty.LIKELY if zero3_is_on else Certainty.POSSIBLE) if cut else None
