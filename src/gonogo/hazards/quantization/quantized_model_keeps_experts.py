from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text

_LARGE = 0.2
"""Of all parameters: less than that stays whole in every quantized model (heads, projectors, routers)."""


class QuantizedModelKeepsExperts(Hazard):
    """A model is loaded in 4 or 8 bits, and most of its weights stay in 16.
    ## What happens
    A mixture of experts takes three to four times the memory that was planned for it, and loading or the first step
    runs out of memory. Nothing says that anything was left out.
    ## Why
    bitsandbytes replaces `nn.Linear` modules. Since transformers 5 the experts of a layer are one three-dimensional
    `nn.Parameter` (`experts.gate_up_proj`, `experts.down_proj`), which no rule of it finds; so are the fused weights of
    other models' own code.
    ## Example
    ```python
    bnb = BitsAndBytesConfig(load_in_4bit=True)
    # wrong with fused experts: they stay in bfloat16
    model = AutoModelForCausalLM.from_pretrained("Qwen3-30B-A3B", quantization_config=bnb)
    # right: a release in which each expert is a Linear, or a checkpoint whose experts are quantized
    ```
    ## Cure
    Take transformers 4, in which experts are modules, or a checkpoint that is quantized itself (GPTQ, AWQ, FP8); or
    plan memory for experts in 16 bits: ZeRO-3 with offload, more GPUs.
    ## When it is safe
    Where memory suffices: training is right, only larger.
    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1849: fused experts are not quantized
    - https://github.com/unslothai/unsloth/issues/5344: 36 GB of experts in bf16 with load_in_4bit=True
    """

    name = "quantized-model-keeps-experts"
    explains_failure = False
    title = Text("Most of a quantized model stays in 16 bits", "量化模型的大部分权重仍是 16 位")

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Weights that are neither quantized, nor trained, nor embeddings, where they are a large part."""
        for rank, run in stepped_runs(record):
            left = sum(each.parameters for each in run.unquantized)
            if not run.asked.quantization or left < _LARGE * run.parameters:
                continue
            largest = ", ".join(f"{each.module} ({each.parameters:,}, {each.dtype})" for each in run.unquantized[:3])
            yield self.finding(
                Text(
                    "{asked} was asked for; of {all:,} parameters {quantized:,} are quantized, and {left:,} "
                    "({share:.0%}) are held as they were: {largest}.",
                    "设置了 {asked}；{all:,} 个参数中 {quantized:,} 个被量化，而 {left:,} 个（{share:.0%}）保持原样："
                    "{largest}。",
                ).format(
                    asked=run.asked.quantization,
                    all=run.parameters,
                    quantized=run.quantized,
                    left=left,
                    share=left / run.parameters,
                    largest=largest,
                ),
                certainty=Certainty.CERTAIN,
                severity=Severity.WARNING,
                cure=(
                    Text(
                        "Take a release of transformers in which each expert is a Linear (4.x), or a checkpoint whose "
                        "experts are quantized (GPTQ, AWQ, FP8)",
                        "改用每个专家都是 Linear 的 transformers 版本（4.x），或专家已量化的 checkpoint"
                        "（GPTQ、AWQ、FP8）",
                    ),
                    Text(
                        "Or plan memory for these weights as they are: ZeRO-3 with offload, or more GPUs",
                        "或按这些权重的实际大小规划显存：带卸载的 ZeRO-3，或更多 GPU",
                    ),
                ),
                ranks=(rank.rank,),
                module=run.unquantized[0].module,
            )
            return
