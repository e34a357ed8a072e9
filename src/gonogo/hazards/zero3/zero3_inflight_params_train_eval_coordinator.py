from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text
from gonogo.hazards.zero3._inflight import Cause, inflight

_CURE = (
    Text(
        'pip install "deepspeed>=0.15.4" (PR #6662 uses one coordinator for both)',
        '执行 pip install "deepspeed>=0.15.4"（PR #6662 改为共用一个协调器）',
    ),
    Text(
        'Until then "stage3_prefetch_bucket_size": 0, or model.eval() before and model.train() after each pass '
        "without gradients",
        '在此之前设 "stage3_prefetch_bucket_size": 0，或在每次不带梯度的前向之前 model.eval()、之后 model.train()',
    ),
)


class Zero3InflightParamsTrainEvalCoordinator(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Evaluation in a ZeRO-3 run with a DeepSpeed that has two coordinators."""
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
            Text(
                "DeepSpeed {version} keeps one parameter coordinator for training and one for evaluation, and this run "
                "evaluates in between ({strategy}): a forward without gradients in training mode loses prefetches, and "
                "“still have inflight params” ends the run.",
                "DeepSpeed {version} 为训练和评估各保留一个参数协调器，而本次运行会穿插评估（{strategy}）：训练模式下不"
                "带梯度的前向会丢失预取，并以 “still have inflight params” 结束。",
            ).format(version=version.get("< 0.15.4"), strategy=strategy.value),
            certainty=Certainty.POSSIBLE,
            cure=_CURE,
            spans=(version.span() or strategy.span(), strategy.span() if version.span() else None, stage_span(run)),
            confirm=Text("Some pass without gradients runs in training mode", "有不带梯度的前向在训练模式下执行"),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """Parameters in flight in the evaluation's coordinator, or after a pass in evaluation mode."""
        found = inflight(log)
        if found is None or Cause.COORDINATORS not in found[1]:
            return
        evidence, causes = found
        yield self.log_finding(
            evidence,
            Text(
                "A pass without gradients (evaluation, generation) and the training share parameters but not "
                "DeepSpeed's coordinator: what one fetched ahead, the other finds in flight.",
                "无梯度的前向（评估、生成）与训练共用参数，却不共用 DeepSpeed 的协调器：一方预取的参数，另一方发现仍在"
                "传输。",
            ),
            cure=_CURE,
            certainty=causes[Cause.COORDINATORS],
            confirm=Text(
                "The frame is get_param_coordinator(training=False).reset_step(), right after an evaluation or a "
                "generation",
                "调用帧是 get_param_coordinator(training=False).reset_step()，且紧接在评估或生成之后",
            ),
        )
