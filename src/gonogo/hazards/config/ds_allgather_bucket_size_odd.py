from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsAllgatherBucketSizeOdd(Hazard):
    """ZeRO-1 or 2 is given an odd allgather_bucket_size.

    ## What happens
    "AssertionError: allgather_bucket_size must be a multiple of nccl_start_alignment_factor, 2".

    ## Why
    Two 16-bit elements make the four bytes that NCCL's send buffers begin at.

    ## Cure
    Write an even number.

    ## When it is safe
    At stage 3 the key is not used.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: the assertion
    - https://www.deepspeed.ai/docs/config-json/: allgather_bucket_size
    """

    name = "ds-allgather-bucket-size-odd"
    title = Text(en="allgather_bucket_size is an odd number", zh="allgather_bucket_size 是奇数")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An odd size at stage 1 or 2."""
        size = config.raw(ZERO, "allgather_bucket_size").number
        if config.zero_stage not in (1, 2) or size is None or size % 2 != 1:
            return
        even = int(size) + 1
        yield self.finding(
            Text(
                en="allgather_bucket_size is {size:,}, and ZeRO-{stage} takes even numbers only.",
                zh="allgather_bucket_size 为 {size:,}，而 ZeRO-{stage} 只接受偶数。",
            ).format(size=int(size), stage=config.zero_stage),
            cure=(Text("Write {even}", "写 {even}").format(even=even),),
            spans=(span_in(config, ZERO, "allgather_bucket_size"),),
            fixes=fix_of(
                Text("make it even", "改为偶数"), lambda: config.replacing(ZERO, "allgather_bucket_size", value=even)
            ),
        )
