from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.dtype._half_and_float import LITERALS, half_and_float
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class DtypeMismatchLoraQuantized(Hazard):
    log_words = (*LITERALS, "MatMul8bitLt", "load_in_8bit", "load_in_4bit")

    def in_log(self, log: FailureLog) -> Findings:
        """The mismatch inside a quantized linear, or of a model that the log or the setup says is quantized."""
        for met in half_and_float(log):
            if met.in_replica or (met.has_frames and not met.quantized):
                continue
            certainty = Certainty.POSSIBLE
            if met.quantized and not outside_training(log) and (met.in_quantized_linear or not met.in_evaluation):
                certainty = Certainty.LIKELY
            yield self.log_finding(
                met.evidence,
                Text(
                    "Half-precision and fp32 tensors met in a quantized model with LoRA: the quantized layer computes "
                    "in half precision, the adapter or what goes into it is fp32.",
                    "量化模型加 LoRA 中半精度与 fp32 张量相遇：量化层以半精度计算，而适配器或其输入是 fp32。",
                ),
                cure=(
                    Text(
                        "Call prepare_model_for_kbit_training(model) before get_peft_model, and train with fp16=True "
                        "or bf16=True so that autocast is on",
                        "在 get_peft_model 之前调用 prepare_model_for_kbit_training(model)，并用 fp16=True 或 "
                        "bf16=True 训练以启用 autocast",
                    ),
                    Text(
                        "Give bnb_4bit_compute_dtype (torch_dtype) the same dtype; upgrade peft",
                        "把 bnb_4bit_compute_dtype（torch_dtype）设为同一 dtype；升级 peft",
                    ),
                ),
                certainty=certainty,
                confirm=Text(
                    "The model is loaded with load_in_8bit, load_in_4bit or GPTQ",
                    "模型以 load_in_8bit、load_in_4bit 或 GPTQ 加载",
                ),
            )
