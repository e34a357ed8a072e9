from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, word
from gonogo.hazards.facts.deepspeed_settings import is_on, newer_than, version_words
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Text

_FP32 = ("fp32", "float32", "torch.float32")
_BF16 = ("bf16", "bfloat16", "torch.bfloat16")


class DsGradAccumDtypeWithoutZero(ConfigHazard):
    """grad_accum_dtype differs from what bf16 without ZeRO supports.
    ## What happens
    "NotImplementedError: unsupported mix of model_dtype=torch.bfloat16 and grad_accum_dtype=torch.float32" from
    0.17.6 on; up to 0.17.0 "Bfloat16 wrapper must use a gradient accumulation type of fp32".
    ## Why
    Without ZeRO the 16-bit wrapper has one accumulation type only, and which one has changed.
    ## Example
    ```json
    "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {"stage": 0}   // wrong with DeepSpeed 0.17.6 and newer
    "zero_optimization": {"stage": 1}   // right
    ```
    ## Cure
    Take stage 1 (both types work), or remove grad_accum_dtype.
    ## When it is safe
    With ZeRO.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py: `_do_optimizer_sanity_check`
    - https://www.deepspeed.ai/docs/config-json/: data_types
    """

    name = "ds-grad-accum-dtype-without-zero"
    raises = True
    title = Text("bf16 without ZeRO can't accumulate gradients in that type", "不用 ZeRO 的 bf16 不能以该类型累积梯度")
    refusal = Refusal(
        Pattern(
            r"unsupported mix of model_dtype=|Bfloat16 wrapper must use a gradient accumulation type o"
            r"f fp32"
        ),
        Certainty.LIKELY,
    )

    keys = ("data_types.grad_accum_dtype",)
    stages = (0,)
    wrong = word(*_FP32, *_BF16)
    cause = Text(
        "bf16 is on without ZeRO and {key} is {dtype}: {version} does not support that mix.",
        "开启了 bf16 而没有用 ZeRO，{key} 为 {dtype}：{version} 不支持这种组合。",
    )
    cure = (Text('Set ZeRO\'s "stage" to 1', "把 ZeRO 的 “stage” 设为 1"), Text("Or remove {key}", "或去掉 {key}"))
    beside = ("bf16.enabled",)
    change = Change(Text("remove {key}", "去掉 {key}"), safe=False)

    def around(self, at: Setting) -> Words | None:
        """bf16 is on, and the release refuses the type beside it."""
        fp32 = str(at.field.value).lower() in _FP32
        refused = is_on(at.config, "bf16") and newer_than(at.run, ">=0.17.6" if fp32 else "<=0.17.0")
        return {"dtype": "fp32" if fp32 else "bf16", "version": version_words(at.run)} if refused else None
