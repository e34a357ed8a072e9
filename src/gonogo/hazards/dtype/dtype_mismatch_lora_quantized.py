"""dtype-mismatch-lora-quantized."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.dtype._half_and_float import LITERALS, half_and_float
from gonogo.hazards.hazard import Hazard


class DtypeMismatchLoraQuantized(Hazard):
    """LoRA on a quantized linear: the quantized product is fp16, the adapter is fp32, and nothing casts.

    ## What happens
    The first training step of an 8-bit or 4-bit model with LoRA ends with "RuntimeError: expected scalar type Half but
    found Float" (or "float != c10::Half"), in a frame of `bitsandbytes`, `Linear8bitLt`, `Linear4bit`, or
    `peft/tuners/lora` of a quantized layer.

    ## Why
    bitsandbytes computes in fp16 and hands on fp16. Norms, the head and the adapters are in fp32 or were left in the
    checkpoint's dtype. Without autocast, and without `prepare_model_for_kbit_training`, nobody makes them agree.

    ## Cure
    `model = prepare_model_for_kbit_training(model)` before `get_peft_model`, train with `fp16=True` or `bf16=True` (so
    that autocast is on), and give `bnb_4bit_compute_dtype` the same dtype. In a loop of your own: `torch.autocast`.

    ## When it is safe
    Under autocast, or where inputs, adapters and the compute dtype agree.

    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/415: OPT in 8 bits with LoRA
    - https://github.com/oobabooga/textgen/issues/2119: LLaMA in 8 bits
    - https://github.com/hiyouga/LlamaFactory/issues/515: QLoRA of a 70B model in 8 bits
    """

    page_zh = """在量化线性层上使用 LoRA：量化乘法输出 fp16，适配器是 fp32，没有任何转换。

    ## 现象
    8-bit 或 4-bit 模型加 LoRA 的第一个训练步骤以 “RuntimeError: expected scalar type Half but found Float”（或
    “float != c10::Half”）结束，栈帧位于 `bitsandbytes`、`Linear8bitLt`、`Linear4bit`，或量化层的 `peft/tuners/lora`。

    ## 原因
    bitsandbytes 以 fp16 计算并输出 fp16。norm、输出头与适配器是 fp32，或保持检查点的 dtype。没有 autocast，也没有
    `prepare_model_for_kbit_training` 时，两者不会自动一致。

    ## 解决办法
    在 `get_peft_model` 之前调用 `model = prepare_model_for_kbit_training(model)`，用 `fp16=True` 或 `bf16=True` 训练
    （启用 autocast），`bnb_4bit_compute_dtype` 设为同一 dtype。自己写的循环：`torch.autocast`。

    ## 何时安全
    在 autocast 下，或输入、适配器与计算 dtype 一致时。

    ## 来源
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/415：8-bit 的 OPT 加 LoRA
    - https://github.com/oobabooga/textgen/issues/2119：8-bit 的 LLaMA
    - https://github.com/hiyouga/LlamaFactory/issues/515：70B 模型的 8-bit QLoRA
    """

    name = "dtype-mismatch-lora-quantized"
    title = Text(
        en="A quantized linear and its LoRA adapter differ in dtype",
        zh="量化线性层与其 LoRA 适配器的 dtype 不一致",
    )
    sources = (
        "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/415",
        "https://github.com/oobabooga/textgen/issues/2119",
        "https://github.com/hiyouga/LlamaFactory/issues/515",
    )
    log_words = (*LITERALS, "MatMul8bitLt", "load_in_8bit", "load_in_4bit")

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
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
                    en="Half-precision and fp32 tensors met in a quantized model with LoRA: the quantized layer "
                    "computes in half precision, the adapter or what goes into it is fp32.",
                    zh="量化模型加 LoRA 中半精度与 fp32 张量相遇：量化层以半精度计算，而适配器或其输入是 fp32。",
                ),
                cure=(
                    Text(
                        en="Call prepare_model_for_kbit_training(model) before get_peft_model, and train with "
                        "fp16=True or bf16=True so that autocast is on",
                        zh="在 get_peft_model 之前调用 prepare_model_for_kbit_training(model)，并用 fp16=True 或 "
                        "bf16=True 训练以启用 autocast",
                    ),
                    Text(
                        en="Give bnb_4bit_compute_dtype (torch_dtype) the same dtype; upgrade peft",
                        zh="把 bnb_4bit_compute_dtype（torch_dtype）设为同一 dtype；升级 peft",
                    ),
                ),
                certainty=certainty,
                confirm=(
                    Text(
                        en="The model is loaded with load_in_8bit, load_in_4bit or GPTQ",
                        zh="模型以 load_in_8bit、load_in_4bit 或 GPTQ 加载",
                    ),
                ),
            )
