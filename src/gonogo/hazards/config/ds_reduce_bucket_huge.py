from gonogo.hazards.config._written import ZERO, gib, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_ALLOWED = 4 * 1024**3


class DsReduceBucketHuge(Hazard):
    """reduce_bucket_size makes buffers of more than 4 GiB on each GPU.

    ## What happens
    Memory runs out in the first backward pass, though the model would fit.

    ## Why
    ZeRO collects gradients in a buffer of that many elements, 2 bytes each in 16-bit training, and in two of them
    with overlap_comm at stage 1 and 2.

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
    title = Text(en="The reduce bucket takes gigabytes of each GPU", zh="reduce bucket 占用每块 GPU 数 GiB 显存")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The buffers' bytes at a stage that is known."""
        stage = config.zero_stage
        size = config.raw(ZERO, "reduce_bucket_size").number
        if not stage or size is None or config.raw(ZERO, "contiguous_gradients").truth is False:
            return
        overlap = config.raw(ZERO, "overlap_comm").truth is True
        buffers = 2 if overlap and stage < 3 else 1
        taken = size * 2 * buffers
        if taken <= _ALLOWED:
            return
        yield self.finding(
            Text(
                en="reduce_bucket_size is {size:,.0f} elements: {buffers} buffer(s) of 2 bytes each take {taken} of "
                "every GPU.",
                zh="reduce_bucket_size 为 {size:,.0f} 个元素：{buffers} 个缓冲区、每元素 2 字节，占用每块 GPU {taken}"
                "。",
            ).format(size=size, buffers=buffers, taken=gib(taken)),
            severity=Severity.WARNING,
            cure=(Text("Write 5e8 or less: {small}", "写 5e8 或更小：{small}").format(small=gib(5e8 * 2 * buffers)),),
            spans=(
                span_in(config, ZERO, "reduce_bucket_size"),
                span_in(config, ZERO, "overlap_comm") if buffers == 2 else None,
            ),
            fixes=fix_of(
                Text("take 5e8", "改为 5e8"),
                lambda: config.replacing(ZERO, "reduce_bucket_size", value=500000000),
                safe=False,
            ),
        )
