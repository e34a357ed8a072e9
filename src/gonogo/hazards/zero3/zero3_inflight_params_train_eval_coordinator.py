from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import DeepSpeedConfig, FailureLog, Findings, Hazard, Run, translated
from gonogo.hazards.zero3._inflight import InflightCause, find_inflight_error


class Zero3InflightParamsTrainEvalCoordinator(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Evaluation during ZeRO-3 training, with a DeepSpeed that has a coordinator for each mode."""
        if config.zero_stage != 3 or run.environment.within("deepspeed", "<0.15.4") is not True:
            return
        strategy = next(
            (field for name in ("eval_strategy", "evaluation_strategy") if (field := run.arguments.get(name)).string),
            None,
        )
        if strategy is None or strategy.value in ("no", "none"):
            return
        version = run.environment.field("deepspeed")
        yield self.finding(
            self.texts["cause_in_config"].format(version=version.get("< 0.15.4"), strategy=strategy.value),
            spans=(version.span() or strategy.span(), strategy.span() if version.span() else None, stage_span(run)),
            confirm=translated("Some pass without gradients runs in training mode"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """Parameters in flight in the evaluation's coordinator, or after a pass in evaluation mode."""
        found = find_inflight_error(log)
        if found is None or InflightCause.COORDINATORS not in found[1]:
            return
        evidence, causes = found
        yield self.log_finding(evidence, certainty=causes[InflightCause.COORDINATORS], confirm=self.texts["confirm"])
