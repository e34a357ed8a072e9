from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, number
from gonogo.hazards.rule import Pattern, Refusal, Text


class DsAllgatherBucketSizeOdd(ConfigHazard):
    """ZeRO-1 or 2 is given an odd allgather_bucket_size.
    ## What happens
    "AssertionError: allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2".
    ## Why
    Two 16-bit elements make the four bytes that NCCL's send buffers begin at.
    ## Example
    ```json
    "allgather_bucket_size": 199999999   // wrong
    "allgather_bucket_size": 200000000   // right
    ```
    ## Cure
    Write an even number.
    ## When it is safe
    At stage 3 the key is not used.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: the assertion
    - https://www.deepspeed.ai/docs/config-json/: allgather_bucket_size
    """

    name = "ds-allgather-bucket-size-odd"
    raises = True
    title = Text("allgather_bucket_size is an odd number", "allgather_bucket_size 是奇数")
    refusal = Refusal(Pattern(r"allgather_bucket_size must be a multiple of nccl_start_alignment_factor"))
    keys = ("zero_optimization.allgather_bucket_size",)
    stages = (1, 2)
    wrong = number(lambda size: size % 2 == 1)
    cause = Text(
        "{key} is {number:,.0f}, and ZeRO-{stage} takes even numbers only.",
        "{key} 为 {number:,.0f}，而 ZeRO-{stage} 只接受偶数。",
    )
    cure = (Text("Write {even}", "写 {even}"),)
    change = Change(Text("make it even", "改为偶数"), "{even}")

    def around(self, at: Setting) -> Words | None:
        """The next even number."""
        return {"even": int(at.field.number or 0) + 1}
