from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number
from gonogo.hazards.facts.deepspeed_settings import newer_than
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Text


class DsTensorParallelWithZero3(ConfigHazard):
    """autotp_size above 1 stands beside stage 3.
    ## What happens
    "AssertionError: Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not been validated".
    ## Why
    Until 0.19.3 AutoTP slices whole weights, and ZeRO-3 has left none whole.
    ## Example
    ```json
    // "tensor_parallel": {"autotp_size": 4}, DeepSpeed 0.18
    "stage": 3    // wrong
    "stage": 2    // right
    ```
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
    raises = True
    title = Text("DeepSpeed's tensor parallelism is refused with ZeRO-3", "DeepSpeed 的张量并行不能与 ZeRO-3 搭配")
    refusal = Refusal(Pattern(r"compatibility between 'autotp' and 'zero_stage = 3' has not been validated"))

    keys = ("tensor_parallel.autotp_size",)
    stages = (3,)
    wrong = number(lambda size: size > 1)
    cause = Text(
        "{path} is {number} at ZeRO-3: DeepSpeed before 0.19.4 refuses the two together.",
        "{path} 为 {number}，同时使用 ZeRO-3：0.19.4 之前的 DeepSpeed 会拒绝。",
    )
    cure = (
        Text('Set "stage" to 1 or 2', "把 “stage” 设为 1 或 2"),
        Text('Or install "deepspeed>=0.19.4"', "或安装 “deepspeed>=0.19.4”"),
    )
    confirm = Text("Which DeepSpeed the run has", "运行所用的 DeepSpeed 版本")
    beside = ("zero_optimization.stage",)

    def around(self, at: Setting) -> Words | None:
        """The release is none of those that can do it."""
        return None if newer_than(at.run, ">=0.19.4") else {}

    def sureness(self, at: Setting) -> Certainty:
        """Certain where the release is known."""
        return Certainty.CERTAIN if newer_than(at.run, "<=0.19.3") else Certainty.POSSIBLE
