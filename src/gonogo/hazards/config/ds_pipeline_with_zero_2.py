from gonogo.hazards.facts.deepspeed_settings import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Pattern, Refusal, Run, Text


class DsPipelineWithZero2(Hazard):
    """The script builds a PipelineModule, and the config's stage is 2 or 3.
    ## What happens
    "AssertionError: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism", in deepspeed.initialize.
    ## Why
    A pipeline accumulates gradients over many micro-batches before it reduces them; ZeRO-2 partitions each
    micro-batch's at once.
    ## Example
    ```json
    // train.py: PipelineModule(layers=layers, num_stages=2)
    "stage": 2    // wrong
    "stage": 1    // right
    ```
    ## Cure
    Take stage 1 with the pipeline, or ZeRO-3 without it.
    ## When it is safe
    At stage 0 and 1.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/pipe/engine.py: the assertion
    - https://www.deepspeed.ai/tutorials/pipeline/: pipelines with DeepSpeed
    """

    name = "ds-pipeline-with-zero-2"
    raises = True
    title = Text("Pipeline parallelism is refused with ZeRO-2 and ZeRO-3", "流水线并行不能与 ZeRO-2、ZeRO-3 搭配")
    refusal = Refusal(Pattern(r"ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"))

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Stage 2 or 3 beside a PipelineModule in one of the run's scripts."""
        if config.zero_stage not in (2, 3):
            return
        calls = (call for script in run.scripts for call in script.calls("*.PipelineModule", "*.LayerSpec"))
        call = next(calls, None)
        if call is None:
            return
        yield self.finding(
            Text(
                "ZeRO's stage is {stage} and the script builds a pipeline: DeepSpeed takes stage 0 or 1 with it.",
                "ZeRO 的 stage 为 {stage}，而脚本构建了流水线：DeepSpeed 在此只接受 stage 0 或 1。",
            ).format(stage=config.zero_stage),
            certainty=Certainty.CERTAIN if call.name.endswith("PipelineModule") else Certainty.LIKELY,
            cure=Text('Set "stage" to 1', "把 “stage” 设为 1"),
            spans=(span_in(config, ZERO, "stage"), call.place.span()),
            fixes=fix_of(
                Text("take ZeRO-1", "使用 ZeRO-1"), lambda: config.replacing(ZERO, "stage", value=1), safe=False
            ),
        )
