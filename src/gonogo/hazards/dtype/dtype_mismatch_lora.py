from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.dtype._half_and_float import LITERALS, half_and_float
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class DtypeMismatchLora(Hazard):
    log_words = LITERALS

    def in_log(self, log: FailureLog) -> Findings:
        """The mismatch where LoRA is in play: likely under an evaluation, possible elsewhere."""
        for met in half_and_float(log):
            if met.in_replica or met.in_backward or (met.has_frames and not met.with_lora and not met.in_evaluation):
                continue
            # python train.py with several visible GPUs is DataParallel, which fails with the same words.
            plain_lora = met.with_lora and met.has_frames and not met.quantized and log.setup.launcher != "python"
            evaluated = met.in_trainers_evaluation or (met.in_evaluation and met.with_lora)
            likely = not met.in_quantized_linear and (evaluated or plain_lora) and not outside_training(log)
            yield self.log_finding(
                met.evidence,
                Text(
                    "A layer of the model multiplied half-precision and fp32 tensors{where}: the base model is in half "
                    "precision, the adapters are in fp32, and no autocast was active.",
                    "模型的某层{where}把半精度与 fp32 张量相乘：基座模型为半精度，适配器为 fp32，且没有启用 autocast。",
                ).format(where=Text(" during evaluation", "在评估时") if met.in_evaluation else ""),
                cure=(
                    Text(
                        'Evaluate under torch.autocast("cuda", dtype=torch.float16), or cast the adapters to the '
                        "model's dtype",
                        '在 torch.autocast("cuda", dtype=torch.float16) 下评估，或把适配器转换为模型的 dtype',
                    ),
                    Text("Or load the model in bf16 and set bf16=True", "或以 bf16 加载模型并设置 bf16=True"),
                ),
                certainty=Certainty.LIKELY if likely else Certainty.POSSIBLE,
                confirm=Text(
                    "Training steps run and only evaluation fails; the adapters' dtype differs from the base model's",
                    "训练步骤正常、只有评估失败；适配器的 dtype 与基座模型不同",
                ),
            )
