from gonogo.hazards.config._written import ZERO, newer_than, span_in
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text


class DsTensorParallelWithZero3(Hazard):
    """autotp_size above 1 stands beside stage 3.

    ## What happens
    "AssertionError: Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not been validated".

    ## Why
    Until 0.19.3 AutoTP divides whole weights, and ZeRO-3 has left none whole.

    ## Cure
    Take stage 1 or 2, or remove tensor_parallel; from 0.19.4 on both work together.

    ## When it is safe
    At stage 0, 1, 2.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: the check of older releases
      stood here
    - https://www.deepspeed.ai/tutorials/automatic-tensor-parallelism/: tensor parallelism in training
    """

    name = "ds-tensor-parallel-with-zero-3"
    title = Text(
        en="DeepSpeed's tensor parallelism is refused with ZeRO-3", zh="DeepSpeed 的张量并行不能与 ZeRO-3 搭配"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The size at stage 3, unless the release is one that can do it."""
        size = config.raw("tensor_parallel", "autotp_size").number
        if config.zero_stage != 3 or size is None or size <= 1 or newer_than(run, ">=0.19.4"):
            return
        refused = newer_than(run, "<=0.19.3")
        yield self.finding(
            Text(
                en="tensor_parallel.autotp_size is {size} at ZeRO-3: DeepSpeed before 0.19.4 refuses the two together.",
                zh="tensor_parallel.autotp_size 为 {size}，同时使用 ZeRO-3：0.19.4 之前的 DeepSpeed 会拒绝。",
            ).format(size=size),
            certainty=Certainty.CERTAIN if refused else Certainty.POSSIBLE,
            cure=(
                Text('Set "stage" to 1 or 2', "把 “stage” 设为 1 或 2"),
                Text('Or install "deepspeed>=0.19.4"', "或安装 “deepspeed>=0.19.4”"),
            ),
            spans=(span_in(config, "tensor_parallel", "autotp_size"), span_in(config, ZERO, "stage")),
            confirm=() if refused else (Text("Which DeepSpeed the run has", "运行所用的 DeepSpeed 版本"),),
        )
