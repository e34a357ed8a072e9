from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Run, Script, Text
from gonogo.hazards.zero3._checkpointing import recomputed_twice
from gonogo.hazards.zero3._partitioned import cut_at, first_match

_TWICE = Pattern(
    r"[Tt]he parameter \S{0,200} ?has already been reduced|Gradient computed twice for this partition"
    r"|Multiple gradient reduction is currently not supported|assert self\.params_already_reduced\["
)

_CURE = (
    Text(
        'gradient_checkpointing_kwargs={"use_reentrant": False}, or no gradient checkpointing for what is called twice',
        '设 gradient_checkpointing_kwargs={"use_reentrant": False}，或对被调用两次的部分关闭梯度检查点',
    ),
    Text("Or call it once, on the concatenated inputs", "或把输入拼接后只调用一次"),
)


class ZeroParamAlreadyReduced(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """The model run twice for one loss, under reentrant checkpointing and ZeRO-2."""
        if run.zero_stage == 2:
            yield from recomputed_twice(self, script, run, "The parameter … has already been reduced", _CURE)

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's assertion in stage_1_and_2.py."""
        evidence: LoggedError | LineMatch | None = first_match(log, _TWICE, "AssertionError")
        certainty = Certainty.CERTAIN
        if evidence is None:
            evidence = cut_at(log, "zero/stage_1_and_2.py", "reduce_independent_p_g_buckets_and_remove_grads")
            certainty = Certainty.LIKELY
        if evidence is not None:
            yield self.log_finding(
                evidence,
                Text(
                    "A gradient's hook fired twice in one backward: reentrant gradient checkpointing around a module "
                    "that is called twice in the step, or that shares its weights.",
                    "一次反向中同一梯度的钩子触发了两次：可重入的梯度检查点包住了一步中被调用两次或共享权重的模块。",
                ),
                cure=_CURE,
                certainty=certainty,
            )
