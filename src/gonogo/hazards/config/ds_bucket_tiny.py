from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, number
from gonogo.hazards.rule import Certainty, Severity, Text


class DsBucketTiny(ConfigHazard):
    """A bucket size counts elements, and holds fewer than a hundred thousand.
    ## What happens
    Each step makes thousands of small collectives, and most of the time goes into starting them.
    ## Why
    The sizes are numbers of elements, not megabytes: `"reduce_bucket_size": 500` are 500 numbers.
    ## Example
    ```json
    "reduce_bucket_size": 500    // wrong: 500 elements
    "reduce_bucket_size": 5e8    // right
    ```
    ## Cure
    Write 5e7 to 5e8 elements, or "auto" under transformers.
    ## When it is safe
    For tiny models in tests.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/724: the bucket size against communication time
    - https://www.deepspeed.ai/docs/config-json/: number of elements
    """

    name = "ds-bucket-tiny"
    title = Text("A bucket of ZeRO is so small that communication never stops", "ZeRO 的 bucket 过小，通信极其频繁")
    keys = ("zero_optimization.reduce_bucket_size", "zero_optimization.allgather_bucket_size")
    stages = (1, 2, 3)
    wrong = number(lambda size: 0 < size < 100_000)
    severity, certainty = Severity.WARNING, Certainty.LIKELY
    cause = Text(
        "{key} is {number:,.0f} elements (not bytes or MB): a model of 7 billion parameters makes {count:,.0f} "
        "collectives a step of it.",
        "{key} 为 {number:,.0f} 个元素（不是字节或 MB）：70 亿参数的模型每步需要 {count:,.0f} 次集合通信。",
    )
    cure = (Text("Write 5e7 to 5e8", "写 5e7 至 5e8"),)

    def around(self, at: Setting) -> Words | None:
        """How many collectives that makes; ZeRO-3 has no bucket for allgather."""
        unused = at.config.zero_stage == 3 and at.keys[-1] == "allgather_bucket_size"
        return None if unused else {"count": 7e9 / (at.field.number or 1)}
