from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.dtype._half_and_float import DTYPE_MISMATCH_LITERALS, dtype_mismatches
from gonogo.hazards.rule import Certainty, Findings, Hazard, translated


class DtypeMismatchLoraQuantized(Hazard):
    log_words = (*DTYPE_MISMATCH_LITERALS, "MatMul8bitLt", "load_in_8bit", "load_in_4bit")

    def in_log(self, log: FailureLog) -> Findings:
        """The mismatch inside a quantized linear layer, or in a model that the log or the setup says is quantized."""
        for met in dtype_mismatches(log):
            if met.in_replica or (met.has_frames and not met.quantized):
                continue
            certainty = Certainty.POSSIBLE
            if met.quantized and not outside_training(log) and (met.in_quantized_linear or not met.in_evaluation):
                certainty = Certainty.LIKELY
            yield self.log_finding(
                met.evidence,
                translated(
                    "Half-precision and fp32 tensors were combined in a quantized model with LoRA: the quantized "
                    "layer computes in half precision, the adapter or its input is in fp32."
                ),
                cure=(
                    translated(
                        "Call prepare_model_for_kbit_training(model) before get_peft_model, and train with fp16=True "
                        "or bf16=True so that autocast is on"
                    ),
                    translated("Set bnb_4bit_compute_dtype (torch_dtype) to the same dtype; upgrade peft"),
                ),
                certainty=certainty,
                confirm=translated("The model is loaded with load_in_8bit, load_in_4bit or GPTQ"),
            )
