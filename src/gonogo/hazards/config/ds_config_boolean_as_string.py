from functools import partial

from gonogo.hazards.facts.deepspeed_settings import dotted, newer_than, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of, with_trainer
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Severity, Text

_TOP_LEVEL = (
    *("wall_clock_breakdown", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "prescale_gradients"),
    *("memory_breakdown", "dump_state", "disable_allgather"),
)
_REFUSED = Text("the run stops at the start, since it is not the boolean", "它不是布尔值，运行一开始就会停止")
_TAKEN_FOR_TRUE = Text(
    "a string counts as true, so it switches on what it should switch off", "字符串一律视为真，想关闭的反而被开启"
)
_ONLY_BY_CHANCE = Text("it counts as true only because every string does", "它被视为真，只是因为任何字符串都如此")


class DsConfigBooleanAsString(Hazard):
    """true or false is written in quotes where nothing turns it into a boolean.
    ## What happens
    With transformers: "Please correct the following DeepSpeed config values that mismatch TrainingArguments values:
    - ds bf16.enabled=true vs hf bf16|bf16_full_eval=True". With DeepSpeed before 0.17.2 `"enabled": "false"`
    switches fp16 on, and "bfloat16 and fp16 modes cannot be simultaneously enabled".
    ## Why
    In Python every string but the empty one is true. Only the sections that DeepSpeed checks with pydantic turn
    "false" into false.
    ## Example
    ```json
    "fp16": {"enabled": "false"}   // wrong: a string counts as true
    "fp16": {"enabled": false}     // right
    ```
    ## Cure
    Take the quotes off.
    ## When it is safe
    In zero_optimization.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/3493: bf16 and fp16 with quoted values
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py: values are taken as they are
    """

    name = "ds-config-boolean-as-string"
    title = Text("A yes or no in the DeepSpeed config is a string", "DeepSpeed 配置中的布尔值写成了字符串")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Quoted booleans at the top level and in fp16's and bf16's switch."""
        for keys in (("bf16", "enabled"), ("fp16", "enabled"), *((name,) for name in _TOP_LEVEL)):
            field = config.raw(*keys)
            word = field.string.strip().lower() if field.string else ""
            if word not in ("true", "false"):
                continue
            switch = keys[-1] == "enabled"
            if switch and (with_trainer(run) or newer_than(run, ">=0.17.2")):
                continue  # transformers' comparison is told elsewhere; newer releases read the string as it is meant
            refused = keys == ("wall_clock_breakdown",)
            wrong = word == "false"
            certainty = Certainty.CERTAIN if refused else Certainty.LIKELY
            severity = Severity.ERROR if refused or wrong else Severity.WARNING
            value = word == "true"
            yield self.finding(
                Text('"{key}" is the string {text}: {consequence}.', "“{key}” 是字符串 {text}：{consequence}。").format(
                    key=dotted(keys),
                    text=as_json(field.value),
                    consequence=_REFUSED if refused else _TAKEN_FOR_TRUE if wrong else _ONLY_BY_CHANCE,
                ),
                certainty=certainty,
                severity=severity,
                cure=Text("Write {word} without quotes", "写成不带引号的 {word}").format(word=word),
                spans=span_in(config, *keys),
                fixes=fix_of(
                    Text("take the quotes off", "去掉引号"),
                    partial(config.replacing, *keys, value=value),
                    safe=not wrong,
                ),
            )
