from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class QuantizedWeightUsedPacked(LoggedHazard):
    """A weight that bitsandbytes holds packed in 4 bits is used as though it were a matrix.
    ## What happens
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1024x4096 and 1x8388608)" or "(16x4096 and 8388608x1)",
    "self and mat2 must have the same dtype, but got Half and Byte", "'Parameter' object has no attribute
    'quant_state'" (or "compress_statistics").
    ## Why
    A 4-bit weight is a column of bytes, two values in each; only `Linear4bit` with its quantization state can use it.
    Code that reads `layer.weight` itself (tensor parallelism inside the model as `pretraining_tp > 1`, a method that
    takes weights apart, a merge by hand), a weight whose state was lost (replaced by a plain Parameter, by
    DataParallel's copies, by a wrapper or a load_state_dict), or a model moved or cast after loading gets the bytes.
    ## Example
    ```python
    out = F.linear(x, layer.weight)    # wrong: layer.weight is [8388608, 1] uint8
    out = layer(x)                     # right
    ```
    ## Cure
    Call the layer instead of using its weight (`bitsandbytes.functional.dequantize_4bit(weight.data,
    weight.quant_state)` where it has to be); `config.pretraining_tp = 1`; one process a GPU by torchrun instead of
    DataParallel; no `.to()`, `.half()` or `load_state_dict` on the quantized model.
    ## When it is safe
    Where only `Linear4bit` and peft's layers use the weights.
    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/600: a fine-tune in 4 bits
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/610: Llama 2 with pretraining_tp above 1
    - https://github.com/hiyouga/LlamaFactory/issues/321: remote code that uses the weight itself
    - https://github.com/MNoorFawi/curlora/issues/5: a method that takes weights apart
    """

    name = "quantized-weight-used-packed"
    title = Text("A 4-bit weight is used as it is packed", "4 位权重在打包状态下被直接使用")
    log_words = ("mat1 and mat2", "quant_state", "compress_statistics", "and Byte", "unsigned char")
    signs = (
        Sign(Pattern(r"mat1 and mat2 shapes cannot be multiplied \(\d+x\d+ and (?:1x\d{5,}|\d{5,}x1)\)")),
        Sign(
            Pattern(
                r"must have the same dtype, but got (?:Half|Float|BFloat16|c10::Half|c10::BFloat16|float) "
                r"and (?:Byte|unsigned char)|got: (?:c10::Half|c10::BFloat16|float) != unsigned char"
            )
        ),
        Sign(Pattern(r"'Parameter' object has no attribute '(?:quant_state|compress_statistics)'")),
    )
    cause = Text(
        "A weight that is packed in 4 bits is used without being unpacked: by code that reads the weight itself, or "
        "because its quantization state was lost.",
        "以 4 位打包的权重未经解包就被使用：代码直接读取权重，或其量化状态已丢失。",
    )
    cures = (
        Text(
            "Call the layer instead of using its weight; config.pretraining_tp = 1; newer peft and bitsandbytes where "
            "the innermost frame is theirs",
            "调用该层，而不是使用其权重；config.pretraining_tp = 1；若最内层在 peft 或 bitsandbytes 中，请升级",
        ),
        Text(
            "One process a GPU (torchrun, accelerate launch) instead of DataParallel, and no .to(), .half() or "
            "load_state_dict on the quantized model",
            "每个 GPU 一个进程（torchrun、accelerate launch），不用 DataParallel；不要对量化模型执行 .to()、.half() 或 "
            "load_state_dict",
        ),
    )
    confirm = Text("The model runs with load_in_4bit off", "关闭 load_in_4bit 后可以运行")
