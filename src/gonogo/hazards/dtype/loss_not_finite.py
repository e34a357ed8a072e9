from gonogo.evidence.guarded.ends import deepspeed_config, rank_file_span
from gonogo.evidence.guarded.guarded_run import GuardedRank
from gonogo.evidence.guarded.records import NonFiniteRecord
from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.rehearsal.failures import nested_value
from gonogo.hazards.rule import Certainty, Finding, Findings, GuardedRun, Hazard, Pattern, Severity, Text, translated

_NONFINITE_TENSOR_LABELS = {
    "loss": translated("the loss"),
    "gradient": translated("a gradient", "any"),
    "activation": translated("the output of a module"),
    "parameter": translated("a parameter", "any"),
}
_ANOMALY_PATTERN = Pattern(r"Function '(?P<function>\w+)' returned nan values in its \d+th output")
_SAMPLING_ERROR_PATTERN = Pattern(r"probability tensor contains either `?inf`?, `?nan`? or element < 0")
_NAN_LOSS_PATTERN = Pattern(r"(?i)\b(?:loss|grad_?norm)['\"]?\s*[:=]\s*['\"]?(?:tensor\()?nan\b")
_HALF_PRECISION_PATTERN = Pattern(r"\bfp16['\"]?\s*[:=]\s*['\"]?[Tt]rue|float16|--fp16\b|\bHalf\b")


class LossNotFinite(Hazard):
    def in_log(self, log: FailureLog) -> Findings:
        """Errors that NaNs cause: sampling, anomaly detection; less certain: a loss that is printed as nan."""
        if is_outside_training(log):
            return
        evidence = next(log.errors_of(says=_ANOMALY_PATTERN), None) or log.find(_ANOMALY_PATTERN)
        evidence = (
            evidence or next(log.errors_of(says=_SAMPLING_ERROR_PATTERN), None) or log.find(_SAMPLING_ERROR_PATTERN)
        )
        certainty = Certainty.LIKELY if evidence is not None else Certainty.POSSIBLE
        evidence = evidence or log.find(_NAN_LOSS_PATTERN)
        if evidence is not None:
            yield self.log_finding(
                evidence,
                cure=self._general_cures(is_half_precision=log.says(_HALF_PRECISION_PATTERN)),
                certainty=certainty,
            )

    def in_guarded_run(self, run: GuardedRun) -> Findings:
        """The first NaN or Inf, with the module that produced it if the search was on."""
        first = min(
            ((rank, one) for rank in run.ranks for one in rank.nonfinite),
            key=lambda pair: (pair[1].step, pair[1].time),
            default=None,
        )
        if first is not None:
            yield self._build_finding(run, *first)
            return
        warned = [(rank, one) for rank in run.ranks for one in rank.warnings if one.what == "nonfinite-loss"]
        if not warned:
            return
        rank, worst = min(warned, key=lambda pair: (pair[1].step, pair[1].time))
        yield self.finding(
            self.texts["cause_in_guarded_run"].format(value=worst.value or "nan", step=worst.step, rank=rank.rank),
            severity=Severity.WARNING,
            cure=(self.texts["cure"], *self._general_cures(is_half_precision=_uses_fp16(run))),
            spans=rank_file_span(rank),
            ranks=tuple(sorted({one.rank for one, _ in warned})),
        )

    def _build_finding(self, run: GuardedRun, rank: GuardedRank, first_nonfinite: NonFiniteRecord) -> Finding:
        where = first_nonfinite.module or first_nonfinite.parameter
        count = first_nonfinite.nan + first_nonfinite.infinite
        return self.finding(
            translated("At step {step} on rank {rank}, {what} is not finite{where}{count}.{inputs}").format(
                step=first_nonfinite.step,
                rank=rank.rank,
                what=_NONFINITE_TENSOR_LABELS[first_nonfinite.what],
                where=Text(
                    f": {where}{f' ({first_nonfinite.module_class})' if first_nonfinite.module_class else ''}",
                    f"：{where}{f'（{first_nonfinite.module_class}）' if first_nonfinite.module_class else ''}",
                )
                if where
                else "",
                count=Text(
                    f", {count} of {first_nonfinite.elements} elements ({first_nonfinite.dtype})",
                    f"，{first_nonfinite.elements} 个元素中的 {count} 个（{first_nonfinite.dtype}）",
                )
                if first_nonfinite.elements
                else "",
                inputs=translated(" Its input was finite, so the problem arose in that module.")
                if first_nonfinite.inputs_finite
                else translated(
                    " Its input was not finite either: look at the batch, or at the weights before that module."
                )
                if first_nonfinite.inputs_finite is False
                else "",
            ),
            severity=Severity.WARNING,
            cure=self._general_cures(is_half_precision=_uses_fp16(run)),
            spans=rank_file_span(rank),
            ranks=(rank.rank,),
            module=first_nonfinite.module,
            parameter=first_nonfinite.parameter,
        )

    def _general_cures(self, *, is_half_precision: bool) -> tuple[Text, ...]:
        cures = [self.texts["invalid_labels_cure"], self.texts["learning_rate_cure"]]
        if is_half_precision:
            cures.insert(0, translated("Use bf16 instead of fp16, whose limit is 65504"))
        return tuple(cures)


def _uses_fp16(run: GuardedRun) -> bool:
    return bool(nested_value(deepspeed_config(run), "fp16", "enabled"))
