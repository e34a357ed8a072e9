from gonogo.evidence.log.context import is_outside_training
from gonogo.hazards.dtype._half_and_float import DTYPE_MISMATCH_LITERALS, half_float_mismatches
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard


class DtypeMismatchLoraQuantized(Hazard):
    log_words = (*DTYPE_MISMATCH_LITERALS, "MatMul8bitLt", "load_in_8bit", "load_in_4bit")

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch of half precision and float32 in a quantized linear layer, or in a quantized model."""
        for met in half_float_mismatches(log):
            if met.is_in_replica or (met.has_frames and not met.is_quantized):
                continue
            certainty = Certainty.POSSIBLE
            if (
                met.is_quantized
                and not is_outside_training(log)
                and (met.is_in_quantized_linear or not met.is_in_evaluation)
            ):
                certainty = Certainty.LIKELY
            yield self.log_finding(met.evidence, certainty=certainty)
