from gonogo.evidence.log.context import is_outside_training
from gonogo.hazards.dtype._half_and_float import DTYPE_MISMATCH_LITERALS, half_float_mismatches
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, translated


class DtypeMismatchLora(Hazard):
    log_words = DTYPE_MISMATCH_LITERALS

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch of half precision and float32 if LoRA is used: likely during evaluation, else possible."""
        for met in half_float_mismatches(log):
            if (
                met.is_in_replica
                or met.is_in_backward
                or (met.has_frames and not met.uses_lora and not met.is_in_evaluation)
            ):
                continue
            # python train.py with several visible GPUs uses DataParallel, which fails with the same message.
            plain_lora = met.uses_lora and met.has_frames and not met.is_quantized and log.setup.launcher != "python"
            evaluated = met.is_in_trainer_evaluation or (met.is_in_evaluation and met.uses_lora)
            likely = not met.is_in_quantized_linear and (evaluated or plain_lora) and not is_outside_training(log)
            yield self.log_finding(
                met.evidence,
                self.texts["cause"].format(where=translated(" during evaluation") if met.is_in_evaluation else ""),
                certainty=Certainty.LIKELY if likely else Certainty.POSSIBLE,
            )
