from gonogo.evidence.rehearsal.failures import failed_ranks, frame_spans, nested_value
from gonogo.hazards.facts.zero_usage import is_under_zero_condition, stage_span
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, RehearsalRecord, Run, Script, translated

_GRADIENT_PARTITIONING_FUNCTION = "initialize_gradient_partitioning_data_structures"


class ZeroInitBelowStage3(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """``zero.Init`` that no argument or test disables, together with a config of a lower stage."""
        if run.zero_stage not in (0, 1, 2) or next(script.calls("deepspeed.initialize"), None) is None:
            return
        for call in script.calls("deepspeed.zero.Init", "deepspeed.runtime.zero.partition_parameters.Init"):
            if not call.keyword("enabled").absent or is_under_zero_condition(script, call.node):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(stage=run.zero_stage),
                certainty=Certainty.LIKELY,
                spans=(call.place.span(), stage_span(run)),
                confirm=translated("This is the model that is trained"),
            )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """An empty parameter of the trained model, in an engine of a lower stage."""
        for failed in failed_ranks(record):
            failure = failed.failure
            stage = nested_value(failed.first.deepspeed_config, "zero_optimization", "stage")
            empty = next((one for one in failure.operands if one.kind == "parameter" and one.shape == (0,)), None)
            if stage not in (0, 1, 2) or empty is None:
                continue
            yield self.finding(
                self.texts["cause_in_rehearsal"].format(parameter=empty.parameter, stage=stage),
                spans=frame_spans((failure.innermost("user"), translated("the failing code is reached from here"))),
                ranks=failed.ranks,
            )

    log_words = (_GRADIENT_PARTITIONING_FUNCTION,)

    def in_log(self, log: FailureLog) -> Findings:
        """The optimizer of stages 1 and 2 that finds no parameters to partition."""
        for error in log.errors_of("KeyError"):
            if not any(_GRADIENT_PARTITIONING_FUNCTION in frame.function for frame in error.all_frames):
                continue
            yield self.log_finding(
                error, certainty=Certainty.LIKELY, confirm=translated("The model is built inside zero.Init")
            )
