from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, number
from gonogo.hazards.facts.deepspeed_settings import ZERO, gib, span_in
from gonogo.hazards.rule import DeepSpeedConfig, Severity, Span, Text

_TWO = Text(" in each of two buffers (overlap_comm)", "，共两个缓冲区（overlap_comm）")


class DsReduceBucketHuge(ConfigHazard):
    """reduce_bucket_size makes buffers of more than 4 GiB on each GPU.
    ## What happens
    Memory runs out in the first backward pass, though the model would fit.
    ## Why
    ZeRO collects gradients in a buffer of that many elements, 2 bytes each in 16-bit training, and in two of them
    with overlap_comm at stage 1 and 2.
    ## Example
    ```json
    "reduce_bucket_size": 5e9    // wrong: 9.3 GiB
    "reduce_bucket_size": 5e8    // right: 0.9 GiB
    ```
    ## Cure
    5e8 (DeepSpeed's default) or less; "auto" under transformers takes hidden_size².
    ## When it is safe
    On GPUs with memory to spare.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/1302: memory measured against bucket sizes
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: the buffers
    - https://www.deepspeed.ai/docs/config-json/: reduce_bucket_size
    """

    name = "ds-reduce-bucket-huge"
    title = Text("The reduce bucket takes gigabytes of each GPU", "reduce bucket 占用每块 GPU 数 GiB 显存")

    keys = ("zero_optimization.reduce_bucket_size",)
    stages = (1, 2, 3)
    wrong = number(lambda size: size > 0)
    severity = Severity.WARNING
    cause = Text(
        "{key} is {number:,.0f} elements of 2 bytes{two}: that takes {taken} of every GPU.",
        "{key} 为 {number:,.0f} 个元素，每个 2 字节{two}：占用每块 GPU {taken}。",
    )
    cure = Text("Write 5e8 or less: {small}", "写 5e8 或更小：{small}")
    change = Change(Text("take 5e8", "改为 5e8"), to=500_000_000, safe=False)

    def around(self, at: Setting) -> Words | None:
        """The buffers' bytes, where they are more than 4 GiB."""
        twice = _twice(at.config)
        each = 4 if twice else 2
        taken = (at.field.number or 0) * each
        if taken <= 4 * 1024**3 or at.config.raw(ZERO, "contiguous_gradients").truth is False:
            return None
        return {"two": _TWO if twice else "", "taken": gib(taken), "small": gib(5e8 * each)}

    def spans_beside(self, at: Setting) -> tuple[Span | None, ...]:
        """What makes it two buffers."""
        return (span_in(at.config, ZERO, "overlap_comm") if _twice(at.config) else None,)


def _twice(config: DeepSpeedConfig) -> bool:
    return config.raw(ZERO, "overlap_comm").truth is True and config.zero_stage != 3
