from gonogo.evidence.guarded.ends import deepspeed_config, span_of_rank
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.guarded.records import NonFinite
from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.failures import setting
from gonogo.hazards.rule import Certainty, Finding, Findings, GuardedRun, Hazard, Pattern, Severity, Text

_WHAT = {
    "loss": Text("the loss", "loss"),
    "gradient": Text("a gradient", "某个梯度"),
    "activation": Text("the output of a module", "某个模块的输出"),
    "parameter": Text("a parameter", "某个参数"),
}
_ANOMALY = Pattern(r"Function '(?P<function>\w+)' returned nan values in its \d+th output")
_SAMPLING = Pattern(r"probability tensor contains either `?inf`?, `?nan`? or element < 0")
_NAN_LOGGED = Pattern(r"(?i)\b(?:loss|grad_?norm)['\"]?\s*[:=]\s*['\"]?(?:tensor\()?nan\b")
_OF_HALF = Pattern(r"\bfp16['\"]?\s*[:=]\s*['\"]?[Tt]rue|float16|--fp16\b|\bHalf\b")


class LossNotFinite(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """What fails for it: sampling from NaN, anomaly detection; less surely a loss that is printed as nan."""
        if outside_training(log):
            return
        evidence = next(log.errors_of(says=_ANOMALY), None) or log.find(_ANOMALY)
        evidence = evidence or next(log.errors_of(says=_SAMPLING), None) or log.find(_SAMPLING)
        certainty = Certainty.LIKELY if evidence is not None else Certainty.POSSIBLE
        evidence = evidence or log.find(_NAN_LOGGED)
        if evidence is not None:
            yield self.log_finding(
                evidence,
                Text(
                    "Numbers that are not finite come out of the model: the weights or the logits are NaN or infinite, "
                    "from this step or one before it.",
                    "模型输出了非有限值：权重或 logits 为 NaN 或无穷大，产生于这一步或更早。",
                ),
                cure=_general(half=log.says(_OF_HALF)),
                certainty=certainty,
                confirm=Text(
                    "gonogo run --nonfinite -- … names the first module whose output is not finite, and its input",
                    "gonogo run --nonfinite -- … 会指出最先输出非有限值的模块及其输入",
                ),
            )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """The first value that is not finite, with the module that made it where that was looked for."""
        first = min(
            ((rank, one) for rank in run.ranks for one in rank.nonfinite),
            key=lambda pair: (pair[1].step, pair[1].time),
            default=None,
        )
        if first is not None:
            yield self._found(run, *first)
            return
        warned = [(rank, one) for rank in run.ranks for one in rank.warnings if one.what == "nonfinite-loss"]
        if not warned:
            return
        rank, worst = min(warned, key=lambda pair: (pair[1].step, pair[1].time))
        yield self.finding(
            Text(
                "The loss is {value} at step {step} on rank {rank}. Which module it arose in was not tracked.",
                "rank {rank} 在第 {step} 步的 loss 为 {value}。没有追查它产生于何处。",
            ).format(value=worst.value or "nan", step=worst.step, rank=rank.rank),
            certainty=Certainty.CERTAIN,
            severity=Severity.WARNING,
            cure=(
                Text(
                    "gonogo run --nonfinite -- … names the first module whose output is not finite, and its input "
                    "(each step is then slower)",
                    "gonogo run --nonfinite -- … 会指出最先输出非有限值的模块及其输入（每步会变慢）",
                ),
                *_general(half=_in_half(run)),
            ),
            spans=span_of_rank(rank),
            ranks=tuple(sorted({one.rank for one, _ in warned})),
        )

    def _found(self, run: GuardedRun, rank: GuardedRank, first: NonFinite) -> Finding:
        where = first.module or first.parameter
        count = first.nan + first.infinite
        return self.finding(
            Text(
                "At step {step} on rank {rank}, {what} is not finite{where}{count}.{inputs}",
                "rank {rank} 在第 {step} 步，{what}不是有限值{where}{count}。{inputs}",
            ).format(
                step=first.step,
                rank=rank.rank,
                what=_WHAT[first.what],
                where=Text(
                    f": {where}{f' ({first.module_class})' if first.module_class else ''}",
                    f"：{where}{f'（{first.module_class}）' if first.module_class else ''}",
                )
                if where
                else "",
                count=Text(
                    f", {count} of {first.elements} elements ({first.dtype})",
                    f"，{first.elements} 个元素中的 {count} 个（{first.dtype}）",
                )
                if first.elements
                else "",
                inputs=Text(" What went into it was finite: it arose there.", "输入是有限的：它就产生于此。")
                if first.inputs_finite
                else Text(
                    " What went into it was not finite either: look at the batch, or at the weights before it.",
                    "其输入已经不是有限值：请检查 batch，或其之前的权重。",
                )
                if first.inputs_finite is False
                else "",
            ),
            certainty=Certainty.CERTAIN,
            severity=Severity.WARNING,
            cure=_general(half=_in_half(run)),
            spans=span_of_rank(rank),
            ranks=(rank.rank,),
            module=first.module,
            parameter=first.parameter,
        )


def _in_half(run: GuardedRun) -> bool:
    return bool(setting(deepspeed_config(run), "fp16", "enabled"))


def _general(*, half: bool) -> tuple[Text, ...]:
    cures = [
        Text(
            "Leave out samples without a label that counts (all -100) and rows that a mask hides whole; look at a "
            "custom loss for log(0) and x/0",
            "去掉没有有效标签（全为 -100）的样本与被 mask 整行遮住的行；检查自定义 loss 中的 log(0) 与除零",
        ),
        Text(
            "A lower learning rate, warm-up, max_grad_norm 1.0; continue from a checkpoint from before that step",
            "降低学习率、加 warmup、max_grad_norm 1.0；从这一步之前的 checkpoint 继续",
        ),
    ]
    if half:
        cures.insert(0, Text("bf16 instead of fp16, whose limit is 65504", "用 bf16 代替 fp16（上限 65504）"))
    return tuple(cures)
