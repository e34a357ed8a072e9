from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Findings, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, told

_MISMATCH = Pattern(
    r"(?s)Shape mismatch for megatron param (?P<bridged>\S+?):.*?Expected shape: torch\.Size\(\[(?P<e"
    r"xpected>[\d, ]+)\]\)"
    r".*?Got shape: torch\.Size\(\[(?P<got>[\d, ]+)\]\)"
)
_SIZES = Pattern(
    r"(?s)size mismatch for (?P<bridged>\S+?): copying a param with shape torch\.Size\(\[(?P<got>[\d, ]+)\]\) from "
    r"checkpoint, the shape in current model is torch\.Size\(\[(?P<expected>[\d, ]+)\]\)"
)
_QUANTIZED = Pattern(r"(?i)nvfp4|mxfp4|\bawq\b|gptq|[-_]int[48]\b|bnb-4bit|[-_]4bit|w4a16|quantized")


class QuantizedWeightsGivenToConverter(LoggedHazard):
    """A converter, or a loader, reads NVFP4, MXFP4, AWQ or GPTQ weights by the shapes of the 16-bit model.
    ## What happens
    `ValueError: Shape mismatch for megatron param ...: Expected shape: torch.Size([4096, 5376]) Got shape:
    torch.Size([4096, 2688])`, or a size mismatch in which one dimension is a half, a quarter or an eighth, from a
    checkpoint whose name says NVFP4, MXFP4, AWQ, GPTQ, int4 or bnb-4bit.
    ## Why
    Two 4-bit values stand in a byte (eight in an int32). The converter knows names and shapes of the original model
    and takes the packed tensor for it.
    ## Example
    ```sh
    convert_checkpoints.py import --hf-model nvidia/Model-NVFP4 --megatron-path out    # wrong
    convert_checkpoints.py import --hf-model nvidia/Model-BF16 --megatron-path out     # right
    ```
    ## Cure
    Convert the model's 16-bit release (BF16), or dequantize it first: model.dequantize(), and save. For QLoRA load
    it with transformers and its quantization_config, not through a converter.
    ## When it is safe
    For converters that say that they dequantize (DeepSeek's fp8 in Bridge).
    ## Sources
    - https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/3605: NVFP4: 2688 is a half of 5376
    - https://github.com/huggingface/transformers/issues/39969: another quantized checkpoint that is to be trained
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1709: quantized weights where others are
      expected
    """

    name = "quantized-weights-given-to-converter"
    title = Text(
        "A checkpoint of packed low-bit weights is converted as if it were in 16 bits",
        "打包的低位宽权重被当作 16 位权重转换",
    )
    log_words = ("Shape mismatch for megatron param", "size mismatch for", "Got shape")
    traces = ("Bridge type: AutoMapping",)
    signs = ()
    anywhere = True
    cause = Text(
        "A weight has a half, a quarter or an eighth of the size that is expected{told}: the checkpoint's "
        "weights are packed in a few bits.",
        "权重大小是预期的二分之一、四分之一或八分之一{told}：该 checkpoint 的权重以低位宽打包。",
    )
    cures = (
        Text(
            "Convert the model's 16-bit release (BF16), or dequantize it first: model.dequantize(), and save",
            "转换该模型的 16 位版本（BF16），或先反量化：model.dequantize() 后保存",
        ),
        Text(
            "For QLoRA load it with transformers and its quantization_config, not through a converter",
            "QLoRA 请用 transformers 及其 quantization_config 加载，而不是经由转换工具",
        ),
    )
    confirm = Text(
        "config.json of the checkpoint has a quantization_config", "checkpoint 的 config.json 含 quantization_config"
    )

    def in_log(self, log: FailureLog) -> Findings:
        """A shape of which one dimension is a part, and something that says that the checkpoint is quantized."""
        quantized = told(log, _QUANTIZED)
        for error in log.errors:
            # Only its first line may carry a rank's prefix, or lack it.
            text = "\n".join([error.message, *(line.text for line in log.lines_after(error.raised.at, 4))])
            match = _MISMATCH.search(text) or (_SIZES.search(error.message) if quantized else None)
            if match is None or not _packed(str(match.group("expected")), str(match.group("got"))):
                continue
            yield self.log_finding(
                error,
                self.cause.format(
                    told=Text(
                        f" ([{match.group('got')}] for [{match.group('expected')}])",
                        f"（[{match.group('got')}] 对 [{match.group('expected')}]）",
                    )
                ),
                cure=self.cures,
                certainty=Certainty.LIKELY if quantized or "megatron param" in text else Certainty.POSSIBLE,
                confirm=self.confirm,
            )
            return


def _packed(expected: str, got: str) -> bool:
    """Whether all dimensions are the same but one, which is a half, a quarter or an eighth."""
    wanted, found = ([int(part) for part in sizes.split(",") if part.strip()] for sizes in (expected, got))
    if len(wanted) != len(found):
        return False
    shares = [one / other for one, other in zip(wanted, found, strict=True) if one != other and other]
    return len(shares) == 1 and shares[0] in (2, 4, 8)
