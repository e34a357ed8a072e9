from gonogo.evidence.log.match import first_match
from gonogo.evidence.log.role import Role
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.dtype._loss_scale import OVERFLOW_WORDS, has_broken_loss, loss_scale_history
from gonogo.hazards.dtype.benign_loss_scale_warmup import MIN_HARMLESS_LOSS_SCALE
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Hazard, Run, Severity, translated

_MINIMUM_SCALE_MESSAGES = (
    "Current loss scale already at minimum",
    "loss scale already at minimum",
    "cannot decrease scale anymore",
    "Minimum loss scale reached",
)

# Model families whose forward is known to overflow in fp16: see the sources, and transformers' own notes.
_OVERFLOWING_FAMILIES = ("gemma2", "gemma3", "t5", "mt5", "umt5", "longt5")
_BF16_TRAINED_FAMILIES = ("baichuan", "qwen2", "qwen3")


class Fp16LossScaleMinimum(Hazard):
    log_words = (*_MINIMUM_SCALE_MESSAGES, *OVERFLOW_WORDS, "loss_scaler.py", "loss scale")

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A model whose config says bf16, of a family that overflows in fp16, trained in fp16."""
        if run.model is None or run.model.config is None:
            return
        fp16 = run.arguments.get("fp16")
        if fp16.truth is not True and run.config is not None:
            fp16 = run.config.get("fp16", "enabled")
        own = str(run.model.first_value("torch_dtype", "dtype") or "").rpartition(".")[2]
        family = run.model.model_type or ""
        overflows = family.startswith(_OVERFLOWING_FAMILIES)
        if (
            fp16.truth is not True
            or fp16.place is None
            or not (overflows or (own == "bfloat16" and family in _BF16_TRAINED_FAMILIES))
        ):
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(name=run.model.name, family=family),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            spans=fp16.span(),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """The scaler's final error, or a loss scale that has fallen close to its minimum."""
        evidence = first_match(log, *_MINIMUM_SCALE_MESSAGES)
        if evidence is None:
            evidence = find_truncated_error(log, ("fp16/loss_scaler", "raise Exception"))
        if evidence:
            yield self.log_finding(evidence)
            return
        scale = loss_scale_history(log)
        if scale is None or any(error.role is Role.ROOT for error in log.errors):
            return
        low = scale.lowest is not None and scale.lowest < MIN_HARMLESS_LOSS_SCALE
        if scale.stuck or low or has_broken_loss(log):
            yield self.log_finding(
                scale.last,
                certainty=Certainty.LIKELY if scale.stuck or (low and has_broken_loss(log)) else Certainty.POSSIBLE,
                severity=Severity.ERROR if scale.stuck else Severity.WARNING,
                confirm=translated("The scale keeps falling, down to 1, and the loss is nan or 0"),
            )
