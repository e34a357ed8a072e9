from gonogo.hazards.facts.deepspeed_settings import ZERO, read_by_json, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of, with_accelerate
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsZeroOptimizationBoolean(Hazard):
    """zero_optimization is true instead of an object.
    ## What happens
    DeepSpeed takes it for stage 1, and says that the form is deprecated. transformers and accelerate stop:
    "AttributeError: 'bool' object has no attribute 'get'".
    ## Why
    They look for keys below zero_optimization.
    ## Example
    ```json
    "zero_optimization": true            // wrong
    "zero_optimization": {"stage": 1}    // right
    ```
    ## Cure
    Write `{"stage": 1}`, or the stage that is meant.
    ## When it is safe
    With deepspeed.initialize alone.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py:
      `read_zero_config_deprecated`
    - https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/deepspeed.py: `find_config_node`
    """

    name = "ds-zero-optimization-boolean"
    raises = True
    title = Text(
        "zero_optimization is a yes or no, DeepSpeed's oldest form",
        "zero_optimization 写成了布尔值，这是 DeepSpeed 最早的写法",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The value true or false."""
        field = config.raw(ZERO)
        if not field.known or not isinstance(field.value, bool):
            return
        stops = bool(read_by_json(run) or with_accelerate(run))
        stage = int(field.value)
        yield self.finding(
            Text(
                "zero_optimization is {value}: DeepSpeed takes it for stage {stage}{more}.",
                "zero_optimization 的值是 {value}：DeepSpeed 当作 stage {stage}{more}。",
            ).format(
                value=as_json(field.value),
                stage=stage,
                more=Text(
                    ", and transformers and accelerate, which want an object, stop",
                    "，而 transformers 与 accelerate 需要对象，会停止",
                )
                if stops
                else "",
            ),
            severity=Severity.ERROR if stops else Severity.NOTE,
            cure=Text('Write {{"stage": {stage}}}', "写 {{“stage”: {stage}}}").format(stage=stage),
            spans=span_in(config, ZERO),
            fixes=fix_of(Text("write the object", "写成对象"), lambda: config.replacing(ZERO, value={"stage": stage})),
        )
