from msgspec.structs import replace

from gonogo.hazards.config._keys import is_closed, known_to, limits_hold, rows
from gonogo.hazards.config._values import is_positive, wanted_instead
from gonogo.hazards.config._written import dotted, newer_than, span_in
from gonogo.hazards.facts.how_it_trains import as_json
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text

_SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
_POSITIVE = Text("a whole number above 0", "大于 0 的整数")
# Told by hazards of their own.
_OTHERS = (("zero_optimization", "stage"), ("zero_optimization", "stage3_prefetch_bucket_size"))


class DsConfigValueRefused(Hazard):
    """A value has a type or a size that DeepSpeed refuses.

    ## What happens
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig, reduce_bucket_size,
    Input should be greater than 0"; at the top level "Gradient accumulation steps: 0 has to be greater than 0".

    ## Why
    DeepSpeed checks zero_optimization, its offload sections, fp16, bf16 and the monitors by type and by limits. It
    takes 5e8 and "500000000" for whole numbers, and not "5e8", 1.5 or null.

    ## Cure
    Write a value of the type and within the limits that are named.

    ## When it is safe
    "auto" is dropped before the check.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: types and limits
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/precision_config.py: those of fp16 and
      bf16
    - https://www.deepspeed.ai/docs/config-json/: the keys with their types
    """

    name = "ds-config-value-refused"
    title = Text(en="DeepSpeed refuses a value of the config", zh="DeepSpeed 拒绝配置中的某个值")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Values in sections that are checked, and whole numbers above zero at the top level."""
        for keys, field, info, parent in rows(config):
            if info is None or not field.known or field.value == "auto" or info.type == "object" or keys in _OTHERS:
                continue
            if len(keys) == 1:
                wanted = _POSITIVE if keys[0] in _SIZES and not is_positive(field.value) else None
                closed: bool | None = True
            else:
                closed = is_closed(parent, run)
                now = wanted_instead(info, field.value) if closed is not False else None
                always = wanted_instead(replace(info, values=(), bounds={}), field.value) if now is not None else None
                hold = limits_hold(info, run)
                if hold is None and always is None:
                    closed = None
                wanted = always if hold is False else now
            if wanted is None or known_to(info, run) is False:
                continue
            # pydantic 1, before DeepSpeed 0.15, cut fractions off; newer ones refuse them.
            fraction = isinstance(field.value, float) and info.type == "int"
            if fraction and newer_than(run, ">=0.15") is False:
                continue
            sure = closed and (not fraction or newer_than(run, ">=0.15"))
            yield self.finding(
                Text(
                    en='"{key}" is {value}, and DeepSpeed takes {wanted}: the run stops at the start.',
                    zh="“{key}” 的值是 {value}，而 DeepSpeed 要求{wanted}：运行一开始就会停止。",
                ).format(key=dotted(keys), value=as_json(field.value), wanted=wanted),
                certainty=Certainty.CERTAIN if sure else Certainty.POSSIBLE if closed is None else Certainty.LIKELY,
                cure=(Text("Write {wanted}", "改写为{wanted}").format(wanted=wanted),),
                spans=(span_in(config, *keys),),
                confirm=() if sure else (Text("Which DeepSpeed the run has", "运行所用的 DeepSpeed 版本"),),
            )
