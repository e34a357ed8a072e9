from gonogo.hazards.config._written import is_on, newer_than, span_in, version_words
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsGradAccumDtypeWithoutZero(Hazard):
    """grad_accum_dtype differs from what bf16 without ZeRO supports.

    ## What happens
    "NotImplementedError: unsupported mix of model_dtype=torch.bfloat16 and grad_accum_dtype=torch.float32" from
    0.17.6 on; up to 0.17.0 "Bfloat16 wrapper must use a gradient accumulation type of fp32".

    ## Why
    Without ZeRO the 16-bit wrapper has one accumulation type only, and which one has changed.

    ## Cure
    Take stage 1 (both types work), or remove grad_accum_dtype.

    ## When it is safe
    With ZeRO.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: `_do_optimizer_sanity_check`
    - https://www.deepspeed.ai/docs/config-json/: data_types
    """

    name = "ds-grad-accum-dtype-without-zero"
    title = Text(
        en="bf16 without ZeRO can't accumulate gradients in that type", zh="不用 ZeRO 的 bf16 不能以该类型累积梯度"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """bf16 on, ZeRO off, and a type that the release refuses."""
        if config.zero_stage != 0 or not is_on(config, "bf16"):
            return
        written = (config.raw("data_types", "grad_accum_dtype").string or "").lower()
        short = {"float32": "fp32", "torch.float32": "fp32", "bfloat16": "bf16", "torch.bfloat16": "bf16"}
        dtype = short.get(written, written)
        refused = (dtype == "fp32" and newer_than(run, ">=0.17.6")) or (dtype == "bf16" and newer_than(run, "<=0.17.0"))
        if not refused:
            return
        yield self.finding(
            Text(
                en="bf16 is on without ZeRO and grad_accum_dtype is {dtype}: {version} does not support that mix.",
                zh="开启了 bf16 而没有用 ZeRO，grad_accum_dtype 为 {dtype}：{version} 不支持这种组合。",
            ).format(dtype=dtype, version=version_words(run)),
            cure=(
                Text('Set ZeRO\'s "stage" to 1', "把 ZeRO 的 “stage” 设为 1"),
                Text("Or remove grad_accum_dtype", "或去掉 grad_accum_dtype"),
            ),
            spans=(span_in(config, "data_types", "grad_accum_dtype"), span_in(config, "bf16", "enabled")),
            fixes=fix_of(
                Text("remove grad_accum_dtype", "去掉 grad_accum_dtype"),
                lambda: config.removing("data_types", "grad_accum_dtype"),
                safe=False,
            ),
        )
