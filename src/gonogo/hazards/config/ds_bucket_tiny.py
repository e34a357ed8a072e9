from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_TOO_SMALL = 100_000


class DsBucketTiny(Hazard):
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
    title = Text(
        en="A bucket of ZeRO is so small that communication never stops", zh="ZeRO 的 bucket 过小，通信极其频繁"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Bucket sizes that their stage uses and that are far too small."""
        stage = config.zero_stage
        keys = (
            ()
            if not stage
            else ("reduce_bucket_size",)
            if stage == 3
            else ("reduce_bucket_size", "allgather_bucket_size")
        )
        for key in keys:
            size = config.raw(ZERO, key).number
            if size is None or not 0 < size < _TOO_SMALL:
                continue
            yield self.finding(
                Text(
                    en="{key} is {size:,.0f} elements (not bytes or MB): a model of 7 billion parameters makes "
                    "{count:,.0f} collectives a step of it.",
                    zh="{key} 为 {size:,.0f} 个元素（不是字节或 MB）：70 亿参数的模型每步需要 {count:,.0f} 次集合通信"
                    "。",
                ).format(key=key, size=size, count=7e9 / size),
                severity=Severity.WARNING,
                certainty=Certainty.LIKELY,
                cure=(Text("Write 5e7 to 5e8", "写 5e7 至 5e8"),),
                spans=(span_in(config, ZERO, key),),
            )
