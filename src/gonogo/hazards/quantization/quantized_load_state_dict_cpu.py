from gonogo.evidence.log.context import is_outside_training
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.training_script import is_trainer, trained_pretrained_calls
from gonogo.hazards.rule import Certainty, Finding, Findings, Hazard, Pattern, Run, Script, translated

_CPU_DEVICE_PATTERN = Pattern(r"Expected a cuda device, but got: cpu")
_LOADING_FRAMES = (
    "_load_best_model", "load_state_dict", "_load_from_checkpoint", "_load_from_state_dict", "load_checkpoint",
    "deepspeed_load_checkpoint", "resume_from_checkpoint", "undo_layout", "maybe_rearrange_weight", "_load_state",
)  # fmt: skip
_TRAINING_FRAMES = (
    "training_step",
    "compute_loss",
    "prediction_step",
    "in forward",
    "generate",
    "dequantize_4bit",
    "matmul_4bit",
)
_UNDO_LAYOUT_FRAMES = (("bitsandbytes/", "undo_layout"), ("bitsandbytes/", "maybe_rearrange_weight"))
_8BIT = r"load_in_8bit|quantization_bit[ =:]*8|8-?bit|int8"
_QUANTIZATION_PATTERN = Pattern(_8BIT)
_RESUME_PATTERN = Pattern(
    r"load_best_model|_load_from_checkpoint|resume_from_checkpoint|Loading best model|Attempting to resume"
    r"|(?i:\bresum(?:e|ing)\b)"
)
_PROGRESS_COMPLETE_PATTERN = Pattern(r"100%\|")


class QuantizedLoadStateDictCpu(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """The best model, or a checkpoint, loaded into an 8-bit model by a Trainer that loads all weights."""
        if b"load_in_8bit" not in script.source.data or run.environment.within("transformers", "<4.31") is not True:
            return
        best, resumed = run.arguments.get("load_best_model_at_end"), run.arguments.get("resume_from_checkpoint")
        requested = best if best.truth else resumed if resumed.string else None
        if requested is None:
            return
        for trainer, load in trained_pretrained_calls(script):
            if load.keyword("load_in_8bit").truth is not True or not is_trainer(trainer):
                continue
            yield self.finding(
                self.texts["cause_in_script"].format(version=run.environment.field("transformers").get("< 4.31")),
                cure=(
                    translated("Set load_best_model_at_end=False, and load the best checkpoint's adapter afterwards"),
                    translated("Or upgrade transformers (4.31 and later load the adapter only)"),
                ),
                spans=(requested.span(), load.place.span(translated("8-bit weights"))),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """The error about a CPU device while a state dict is loaded, or if nothing shows that the model ran."""
        if is_outside_training(log):
            return
        evidence: LoggedError | LineMatch | None = next(log.errors_of(says=_CPU_DEVICE_PATTERN), None) or log.find(
            _CPU_DEVICE_PATTERN
        )
        if evidence is not None:
            certainty = _judge_certainty(evidence, log)
            if certainty is not None:
                yield self._build_finding(evidence, certainty)
        elif not log.errors and (
            cut := find_truncated_error(log, ("trainer.py", "_load_best_model"), *_UNDO_LAYOUT_FRAMES, max_frames=4)
        ):
            quantizes = (
                cut.passes("bitsandbytes") or log.find(_QUANTIZATION_PATTERN) is not None or log.setup.mentions(_8BIT)
            )
            yield self._build_finding(cut, Certainty.LIKELY if quantizes else Certainty.POSSIBLE)

    def _build_finding(self, evidence: LoggedError | LineMatch, certainty: Certainty) -> Finding:
        return self.log_finding(
            evidence,
            certainty=certainty,
            confirm=translated("The traceback goes through _load_best_model or load_state_dict"),
        )


def _judge_certainty(evidence: LoggedError | LineMatch, log: FailureLog) -> Certainty | None:
    if isinstance(evidence, LoggedError) and evidence.frames:
        if evidence.passes(*_LOADING_FRAMES):
            return Certainty.CERTAIN
        if evidence.passes(*_TRAINING_FRAMES) or any(frame.function == "forward" for frame in evidence.frames):
            return None
    resumes = log.find(_RESUME_PATTERN) is not None or log.setup.mentions(
        r"resume_from_checkpoint|load_best_model_at_end"
    )
    if resumes or log.find(_PROGRESS_COMPLETE_PATTERN) is not None:
        return Certainty.LIKELY
    return Certainty.LIKELY if not isinstance(evidence, LoggedError) or not evidence.frames else Certainty.POSSIBLE
