from gonogo.evidence.log.context import outside_training
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.dtype._half_and_float import LITERALS, half_and_float
from gonogo.hazards.rule import Certainty, Findings, Hazard, Text


class DtypeMismatchLoraQuantized(Hazard):
    """LoRA on a quantized linear: the quantized product is fp16, the adapter is fp32, and nothing casts.
    ## What happens
    The first training step of an 8-bit or 4-bit model with LoRA ends with "RuntimeError: expected scalar type Half but
    found Float" (or "float != c10::Half"), in a frame of `bitsandbytes`, `Linear8bitLt`, `Linear4bit`, or
    `peft/tuners/lora` of a quantized layer.
    ## Why
    bitsandbytes computes in fp16 and hands on fp16. Norms, the head and the adapters are in fp32 or were left in the
    checkpoint's dtype. Without autocast, and without `prepare_model_for_kbit_training`, nobody makes them agree.
    ## Example
    ```python
    model = get_peft_model(model_4bit, lora)                                      # wrong: fp16 and fp32 meet
    model = get_peft_model(prepare_model_for_kbit_training(model_4bit), lora)     # right, with bf16=True
    ```
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

    name = "dtype-mismatch-lora-quantized"
    title = Text("A quantized linear and its LoRA adapter differ in dtype", "量化线性层与其 LoRA 适配器的 dtype 不一致")
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
