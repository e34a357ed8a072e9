from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.dtype._half_and_float import DTYPE_MISMATCH_LITERALS, dtype_mismatches
from gonogo.hazards.rule import Certainty, Findings, Hazard, translated


class DtypeMismatchLora(Hazard):
    log_words = DTYPE_MISMATCH_LITERALS

    def in_log(self, log: FailureLog) -> Findings:
        """The mismatch if LoRA is used: likely during evaluation, else possible."""
        for met in dtype_mismatches(log):
            if met.in_replica or met.in_backward or (met.has_frames and not met.with_lora and not met.in_evaluation):
                continue
            # python train.py with several visible GPUs uses DataParallel, which fails with the same message.
            plain_lora = met.with_lora and met.has_frames and not met.quantized and log.setup.launcher != "python"
            evaluated = met.in_trainers_evaluation or (met.in_evaluation and met.with_lora)
            likely = not met.in_quantized_linear and (evaluated or plain_lora) and not outside_training(log)
            yield self.log_finding(
                met.evidence,
                translated(
                    "A layer of the model multiplied half-precision and fp32 tensors{where}: the base model is in half "
                    "precision, the adapters are in fp32, and no autocast was active."
                ).format(where=translated(" during evaluation") if met.in_evaluation else ""),
                cure=(
                    translated(
                        'Evaluate under torch.autocast("cuda", dtype=torch.float16), or cast the adapters to the '
                        "model's dtype"
                    ),
                    translated("Or load the model in bf16 and set bf16=True"),
                ),
                certainty=Certainty.LIKELY if likely else Certainty.POSSIBLE,
                confirm=translated(
                    "Training steps run and only evaluation fails; the adapters' dtype differs from the base model's"
                ),
            )
