from gonogo.hazards.facts.deepspeed_settings import ZERO, read_by_json, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of, with_accelerate
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsZeroOptimizationBoolean(Hazard):
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
