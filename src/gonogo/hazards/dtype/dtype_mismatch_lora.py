"""dtype-mismatch-lora."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.dtype._half_and_float import LITERALS, half_and_float
from gonogo.hazards.hazard import Hazard


class DtypeMismatchLora(Hazard):
    """Half-precision weights and fp32 LoRA adapters meet without autocast, as a rule at evaluation.

    ## What happens
    Training runs, and the first evaluation ends with "RuntimeError: expected scalar type Half but found Float" (or
    "mat1 and mat2 must have the same dtype", "float != c10::Half"), in the model's forward, under `evaluation_loop`,
    `generate` or a loop of your own.

    ## Why
    The base model is fp16, the adapters and norms are fp32. In training, autocast makes every operation choose one
    dtype. Evaluation that runs outside autocast (a callback, `model.generate`, a Trainer version that wraps only the
    training step, DeepSpeed's fp16 engine) multiplies the two as they are.

    ## Cure
    Run the evaluation under `torch.autocast("cuda", dtype=torch.float16)`, or cast the adapters too: `model.half()`
    before evaluating (not before training under fp16 AMP), or load everything in bf16 and train with `bf16=True`.

    ## When it is safe
    Where the whole forward runs under autocast, or all weights have one dtype.

    ## Sources
    - https://github.com/hiyouga/ChatGLM-Efficient-Tuning/issues/261: LoRA trains, its evaluation fails
    - https://github.com/LAION-AI/Open-Assistant/issues/3569: the same under DeepSpeed
    """

    page_zh = """半精度权重与 fp32 的 LoRA 适配器在没有 autocast 时相遇，通常发生在评估阶段。

    ## 现象
    训练正常，第一次评估以 “RuntimeError: expected scalar type Half but found Float”（或 “mat1 and mat2 must have the
    same dtype”、“float != c10::Half”）结束，位置在模型的 forward，上层是 `evaluation_loop`、`generate` 或自己写的循环。

    ## 原因
    基座模型是 fp16，适配器和 norm 是 fp32。训练时 autocast 使每个算子选用同一 dtype。在 autocast 之外进行的评估（回
    调、`model.generate`、只包住训练步骤的 Trainer 版本、DeepSpeed 的 fp16 引擎）会直接把两者相乘。

    ## 解决办法
    在 `torch.autocast("cuda", dtype=torch.float16)` 下评估；或同样转换适配器：评估前 `model.half()`（不要在 fp16 AMP
    训练前这样做）；或全部以 bf16 加载并用 `bf16=True` 训练。

    ## 何时安全
    整个 forward 都在 autocast 下，或所有权重为同一 dtype 时。

    ## 来源
    - https://github.com/hiyouga/ChatGLM-Efficient-Tuning/issues/261：LoRA 训练正常，评估失败
    - https://github.com/LAION-AI/Open-Assistant/issues/3569：DeepSpeed 下的同一问题
    """

    name = "dtype-mismatch-lora"
    title = Text(
        en="Half-precision weights meet fp32 LoRA adapters outside autocast",
        zh="半精度权重与 fp32 的 LoRA 适配器在 autocast 之外相遇",
    )
    sources = (
        "https://github.com/hiyouga/ChatGLM-Efficient-Tuning/issues/261",
        "https://github.com/LAION-AI/Open-Assistant/issues/3569",
    )
    log_words = LITERALS

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """The mismatch where LoRA is in play: likely under an evaluation, possible elsewhere."""
        for met in half_and_float(log):
            if met.in_replica or (met.has_frames and not met.with_lora and not met.in_evaluation):
                continue
            # python train.py with several visible GPUs is DataParallel, which fails with the same words.
            plain_lora = met.with_lora and met.has_frames and not met.quantized and log.setup.launcher != "python"
            evaluated = met.in_trainers_evaluation or (met.in_evaluation and met.with_lora)
            likely = not met.in_quantized_linear and (evaluated or plain_lora) and not outside_training(log)
            yield self.log_finding(
                met.evidence,
                Text(
                    en="A layer of the model multiplied half-precision and fp32 tensors{where}: the base model is "
                    "in half precision, the adapters are in fp32, and no autocast was active.",
                    zh="模型的某层{where}把半精度与 fp32 张量相乘：基座模型为半精度，适配器为 fp32，且没有启用 "
                    "autocast。",
                ).format(where=Text(" during evaluation", "在评估时") if met.in_evaluation else ""),
                cure=(
                    Text(
                        en='Evaluate under torch.autocast("cuda", dtype=torch.float16), or cast the adapters to the '
                        "model's dtype",
                        zh='在 torch.autocast("cuda", dtype=torch.float16) 下评估，或把适配器转换为模型的 dtype',
                    ),
                    Text(en="Or load the model in bf16 and set bf16=True", zh="或以 bf16 加载模型并设置 bf16=True"),
                ),
                certainty=Certainty.LIKELY if likely else Certainty.POSSIBLE,
                confirm=(
                    Text(
                        en="Training steps run and only evaluation fails; the adapters' dtype differs from the base "
                        "model's",
                        zh="训练步骤正常、只有评估失败；适配器的 dtype 与基座模型不同",
                    ),
                ),
            )
