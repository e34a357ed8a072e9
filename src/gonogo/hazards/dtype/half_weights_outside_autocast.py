from gonogo.evidence.log.context import is_outside_training
from gonogo.hazards.dtype._half_and_float import DTYPE_MISMATCH_LITERALS, half_float_mismatches
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Pattern

_LAYER_FILES = ("torch/nn/modules/linear.py", "torch\\nn\\modules\\linear.py", "torch/nn/modules/conv.py")
_LIBRARY_PATHS = ("site-packages/transformers/", "dist-packages/transformers/", "site-packages/diffusers/")
_DEEPSPEED_PATTERN = Pattern(r"deepspeed")
_ADAPTER_PATTERN = Pattern(r"(?i)\blora\b|_lora|lora_|\bpeft\b|bitsandbytes|load_in_[48]bit|quantization_bit")


class HalfWeightsOutsideAutocast(Hazard):
    log_words = DTYPE_MISMATCH_LITERALS

    def in_log(self, log: FailureLog) -> Findings:
        """A mix of half precision and float32, if nothing in the log mentions adapters, quantization or DeepSpeed."""
        if is_outside_training(log):
            return
        for met in half_float_mismatches(log):
            if met.is_in_replica or met.uses_lora or met.is_quantized or log.says(_ADAPTER_PATTERN):
                continue
            layer = log.passes(*_LAYER_FILES)
            if met.has_frames and not layer and not log.passes(*_LIBRARY_PATHS):
                continue  # tensors of the user's own code
            sure = met.has_frames and layer and not met.is_in_evaluation and not log.says(_DEEPSPEED_PATTERN)
            yield self.log_finding(met.evidence, certainty=Certainty.LIKELY if sure else Certainty.POSSIBLE)
