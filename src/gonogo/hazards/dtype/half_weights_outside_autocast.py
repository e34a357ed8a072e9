from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.dtype._half_and_float import LITERALS, half_and_float
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Text

_IN_LAYER = ("torch/nn/modules/linear.py", "torch\\nn\\modules\\linear.py", "torch/nn/modules/conv.py")
_IN_A_LIBRARY = ("site-packages/transformers/", "dist-packages/transformers/", "site-packages/diffusers/")
_DEEPSPEED = Pattern(r"deepspeed")
_ADAPTED = Pattern(r"(?i)\blora\b|_lora|lora_|\bpeft\b|bitsandbytes|load_in_[48]bit|quantization_bit")


class HalfWeightsOutsideAutocast(Hazard):
    log_words = LITERALS

    def in_log(self, log: FailureLog) -> Findings:
        """Where half precision meets float32, and nothing speaks of adapters, quantization or DeepSpeed."""
        if outside_training(log):
            return
        for met in half_and_float(log):
            if met.in_replica or met.with_lora or met.quantized or log.says(_ADAPTED):
                continue
            layer = log.passes(*_IN_LAYER)
            if met.has_frames and not layer and not log.passes(*_IN_A_LIBRARY):
                continue  # tensors of the program's own
            sure = met.has_frames and layer and not met.in_evaluation and not log.says(_DEEPSPEED)
            yield self.log_finding(
                met.evidence,
                Text(
                    "A layer of the model multiplied 16-bit and float32 tensors: weights and input have different "
                    "dtypes, and no autocast was active.",
                    "模型的某层把 16 位与 float32 张量相乘：权重与输入的 dtype 不同，且没有启用 autocast。",
                ),
                cure=(
                    Text(
                        "Train under autocast: bf16=True, accelerate launch --mixed_precision bf16, or "
                        'torch.autocast("cuda", dtype=torch.bfloat16) around your own forward',
                        "在 autocast 下训练：bf16=True、accelerate launch --mixed_precision bf16，或在自己的前向外包 "
                        'torch.autocast("cuda", dtype=torch.bfloat16)',
                    ),
                    Text(
                        "Or cast the input to the layer's dtype, or load the model in float32",
                        "或把输入转换为该层的 dtype，或以 float32 加载模型",
                    ),
                ),
                certainty=Certainty.LIKELY if sure else Certainty.POSSIBLE,
                confirm=Text(
                    "print(next(model.parameters()).dtype, x.dtype, torch.is_autocast_enabled()) before the layer",
                    "在该层之前 print(next(model.parameters()).dtype, x.dtype, torch.is_autocast_enabled())",
                ),
            )
