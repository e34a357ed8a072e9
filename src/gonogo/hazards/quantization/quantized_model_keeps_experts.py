from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text

_LARGE = 0.2
"""Of all parameters: less than that stays whole in every quantized model (heads, projectors, routers)."""


class QuantizedModelKeepsExperts(Hazard):
    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """Weights that are neither quantized, nor trained, nor embeddings, where they are a large part."""
        for rank, run in stepped_runs(record):
            left = sum(each.parameters for each in run.unquantized)
            if not run.asked.quantization or left < _LARGE * run.parameters:
                continue
            largest = ", ".join(f"{each.module} ({each.parameters:,}, {each.dtype})" for each in run.unquantized[:3])
            yield self.finding(
                Text(
                    "{asked} was requested; of {all:,} parameters {quantized:,} are quantized, and {left:,} "
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
                        "Use a release of transformers in which each expert is a Linear (4.x), or a checkpoint whose "
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
