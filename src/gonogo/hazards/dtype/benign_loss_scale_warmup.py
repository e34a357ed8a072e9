from gonogo.evidence.log.role import Role
from gonogo.hazards.dtype._loss_scale import OVERFLOW_WORDS, has_broken_loss, loss_scale_history
from gonogo.hazards.rule import FailureLog, Findings, Hazard

MIN_HARMLESS_LOSS_SCALE = 64
"""From this value on, a dynamic loss scale has room left to fall."""


class BenignLossScaleWarmup(Hazard):
    log_words = OVERFLOW_WORDS

    def in_log(self, log: FailureLog) -> Findings:
        """Skipped steps at large loss scales, in a log without any failure."""
        scale = loss_scale_history(log)
        if scale is None or scale.stuck or scale.lowest is None or scale.lowest < MIN_HARMLESS_LOSS_SCALE:
            return
        if (
            any(error.role in (Role.ROOT, Role.CASCADE) for error in log.errors)
            or log.find(self.patterns["abnormal_end"])
            or has_broken_loss(log)
        ):
            return
        yield self.log_finding(
            scale.first,
            self.texts["cause"].format(count=scale.skipped, lowest=f"{scale.lowest:g}"),
            extra_evidence=(scale.last,) if scale.last is not scale.first else (),
        )
