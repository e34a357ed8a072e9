from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.role import Role
from gonogo.hazards.dtype._loss_scale import OVERFLOW_WORDS, loss_is_broken, loss_scale
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Severity, Text

LARGE = 64
"""A dynamic scale from here on has room left to fall."""
_DIED = Pattern(
    r"\bKilled\b|return code = ?-?\d|exitcode *:? *-?\d|Segmentation fault|Bus error|[Ww]atchdog|timed out"
    r"|out of memory|core dumped|(?i:\bhangs?\b|\bstuck\b|\bfreez)|卡住|卡死|不动了"
)


class BenignLossScaleWarmup(Hazard):
    """The fp16 loss scaler is finding its scale: nothing is wrong.
    ## What happens
    The first steps print "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    several times, with ever smaller scales; then the lines become rare. There is no error.
    ## Why
    fp16 holds no number above 65504, so the loss is scaled, and the scaler starts too high on purpose: it halves the
    scale and skips the step until the gradients fit. After some hundred good steps it doubles the scale again, and one
    more skipped step now and then is normal.
    ## Example
    ```json
    "fp16": {"enabled": true}                              // a dozen skipped steps at the start: nothing is wrong
    "fp16": {"enabled": true, "initial_scale_power": 12}   // right, if fewer of them are wanted
    ```
    ## Cure
    None is needed. To see fewer such lines, lower `fp16.initial_scale_power` (16 by default, which is 65536), or train
    in bf16, which needs no scale.
    ## When it is safe
    As long as the scale stays well above 1, the lines become rare, and the loss is a number that falls. A scale that
    falls to 1 is another matter: see `fp16-loss-scale-minimum`.
    ## Sources
    - https://github.com/zai-org/CogVideo/issues/233: it recovers after a few steps
    - https://github.com/deepspeedai/DeepSpeed/issues/931: why overflow is also met later in a run
    """

    name = "benign-loss-scale-warmup"
    title = Text("The loss scaler is finding its scale: nothing is wrong", "损失缩放器正在寻找缩放值：没有问题")
    log_words = OVERFLOW_WORDS

    def in_log(self, log: FailureLog) -> Findings:
        """Skipped steps with large scales, and nothing in the log that failed."""
        scale = loss_scale(log)
        if scale is None or scale.stuck or scale.lowest is None or scale.lowest < LARGE:
            return
        if (
            any(error.role in (Role.ROOT, Role.CASCADE) for error in log.errors)
            or log.find(_DIED)
            or loss_is_broken(log)
        ):
            return
        yield self.log_finding(
            scale.first,
            Text(
                "{count} step(s) were skipped while the fp16 loss scale fell to {lowest}; that is how a dynamic scale "
                "finds its value. The log shows no error: nothing is wrong.",
                "fp16 损失缩放值降到 {lowest} 的过程中跳过了 {count} 步，这正是动态缩放寻找合适值的方式。日志中没有报错"
                "：没有问题。",
            ).format(count=scale.skipped, lowest=f"{scale.lowest:g}"),
            cure=Text(
                "Nothing is to be done. For fewer such lines: lower fp16.initial_scale_power, or train in bf16",
                "无需处理。若想少看到这类行：调低 fp16.initial_scale_power，或用 bf16 训练",
            ),
            certainty=Certainty.CERTAIN,
            severity=Severity.NOTE,
            also=(scale.last,) if scale.last is not scale.first else (),
        )
