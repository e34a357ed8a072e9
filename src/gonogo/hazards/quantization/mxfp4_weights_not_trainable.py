from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Severity, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class Mxfp4WeightsNotTrainable(LoggedHazard):
    """gpt-oss is kept in MXFP4 where the kernels for it are installed.
    ## What happens
    `ValueError: The model you are trying to fine-tune is quantized with QuantizationMethod.MXFP4 but that
    quantization method do not support training`, when the Trainer is made; or an error about `Mxfp4GptOssExperts`
    in peft or in the backward.
    ## Why
    The checkpoint of openai/gpt-oss holds its experts in MXFP4. With triton >= 3.4 and `kernels` transformers
    leaves them so, without them (or on older GPUs) it dequantizes to bf16, which trains: the same script fails
    after an upgrade.
    ## Example
    ```python
    # wrong
    AutoModelForCausalLM.from_pretrained("openai/gpt-oss-20b")
    # right
    config = Mxfp4Config(dequantize=True)
    AutoModelForCausalLM.from_pretrained("openai/gpt-oss-20b", quantization_config=config, dtype=torch.bfloat16)
    ```
    ## Cure
    Load it with quantization_config=Mxfp4Config(dequantize=True) (LLaMA-Factory, ms-swift, axolotl: a bf16 copy of
    the model, such as unsloth/gpt-oss-20b-BF16).
    ## When it is safe
    With dequantize=True, or a bf16 copy of the model.
    ## Sources
    - https://github.com/huggingface/transformers/issues/39969: the refusal, after kernels were installed
    - https://cookbook.openai.com/articles/gpt-oss/fine-tune-transfomers: how it is loaded to be trained
    - https://huggingface.co/docs/transformers/main/en/quantization/mxfp4: MXFP4 in transformers
    """

    name = "mxfp4-weights-not-trainable"
    title = Text("MXFP4 weights are loaded quantized and cannot be trained", "MXFP4 权重以量化形式加载，无法训练")
    log_words = ("MXFP4", "Mxfp4")
    ends_at = (("transformers/trainer.py", "raise ValueError("),)
    signs = (
        Sign(
            says=Pattern(r"(?i)quantized with (?:QuantizationMethod\.)?MXFP4 but that quantization method do"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(
            says=Pattern(r"Mxfp4GptOssExperts"),
            types=("ValueError", "RuntimeError", "NotImplementedError", "AttributeError", "TypeError"),
        ),
        Sign(
            frames=(("integrations/mxfp4.py",),),
            innermost=("integrations/mxfp4.py", "triton_kernels"),
            lines=False,
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "The model's weights were loaded in MXFP4, which transformers runs and does not train.",
        "模型权重以 MXFP4 加载，transformers 可以运行但不能训练。",
    )
    cures = (
        Text(
            "Load it with quantization_config=Mxfp4Config(dequantize=True) (LLaMA-Factory, ms-swift, "
            "axolotl: a bf16 copy of the model, such as unsloth/gpt-oss-20b-BF16)",
            "以 quantization_config=Mxfp4Config(dequantize=True) 加载（LLaMA-Factory、ms-swift、axolotl：使用"
            " bf16 版本，例如 unsloth/gpt-oss-20b-BF16）",
        ),
    )
    confirm = Text(
        "model.hf_quantizer.quantization_config.quant_method is mxfp4",
        "model.hf_quantizer.quantization_config.quant_method 为 mxfp4",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """gpt-oss loaded as it is, in a program that trains."""
        if b"gpt-oss" not in script.source.data or b"train" not in script.source.data.lower():
            return
        for call in script.calls("*.from_pretrained"):
            name = call.argument(0) if call.node.args else call.keyword("pretrained_model_name_or_path")
            model = (name.string or "").lower()
            if not model.startswith("openai/gpt-oss") or not call.keyword("quantization_config").absent:
                continue
            if "Tokenizer" in script.place(call.node.func).text or call.keyword("quantization_config").unknown:
                continue
            yield self.finding(
                Text(
                    "{model} is stored in MXFP4: with triton and kernels installed it is loaded so, and refused for "
                    "training.",
                    "{model} 以 MXFP4 存储：安装了 triton 与 kernels 时会按此加载，训练时会被拒绝。",
                ).format(model=name.value),
                certainty=Certainty.POSSIBLE,
                severity=Severity.WARNING,
                cure=self.cures,
                spans=call.place.span(),
                confirm=Text(
                    "pip show kernels finds it, and triton is 3.4 or newer",
                    "pip show kernels 能找到，且 triton 为 3.4 或更新",
                ),
            )
