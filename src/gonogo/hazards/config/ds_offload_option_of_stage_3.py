from gonogo.hazards.facts.deepspeed_settings import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Finding, Findings, Hazard, Pattern, Refusal, Run, Severity, Text


class DsOffloadOptionOfStage3(Hazard):
    """offload_optimizer holds ratio or super_offload, which only stage 3 has.
    ## What happens
    `ratio` below 1: "Assertion failed, Partial offloading only supported for ZeRO Stage 3." `super_offload` is
    silently ignored below stage 3.
    ## Why
    Partial offload (Twin-Flow) and SuperOffload work on ZeRO-3's sub-groups.
    ## Example
    ```json
    // "offload_optimizer": {"device": "cpu", "ratio": 0.3}
    "stage": 2    // wrong
    "stage": 3    // right
    ```
    ## Cure
    Take stage 3, or remove the option.
    ## When it is safe
    `ratio` of 1.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: `offload_ratio_check`
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/offload_config.py: which options
      are only valid with stage 3
    """

    name = "ds-offload-option-of-stage-3"
    title = Text("An option of ZeRO-3's offload is set at another stage", "在其他 stage 设置了 ZeRO-3 卸载才有的选项")
    refusal = Refusal(Pattern(r"Partial offloading only supported for ZeRO Stage 3"))

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Either option at a stage that is known and not 3."""
        stage = config.zero_stage
        if stage is None or stage == 3:
            return
        ratio = config.raw(ZERO, "offload_optimizer", "ratio")
        if ratio.number is not None and 0 <= ratio.number < 1:
            yield self._found(
                config,
                "ratio",
                Text(
                    'offload_optimizer\'s "ratio" is {value} at stage {stage}: DeepSpeed offloads a part only at '
                    "stage 3, "
                    "and refuses the config.",
                    "offload_optimizer 的 “ratio” 为 {value}，而 stage 为 {stage}：DeepSpeed 只在 stage 3 支持部分卸载"
                    "，会拒绝此配置。",
                ).format(value=as_json(ratio.value), stage=stage),
                Severity.ERROR,
            )
        elif config.raw(ZERO, "offload_optimizer", "super_offload").truth:
            yield self._found(
                config,
                "super_offload",
                Text(
                    '"super_offload" is on at stage {stage}, and has an effect only at stage 3: the plain CPU '
                    "optimizer "
                    "runs.",
                    "stage 为 {stage} 时开启了 “super_offload”，它只在 stage 3 起作用：实际运行的是普通 CPU 优化器。",
                ).format(stage=stage),
                Severity.WARNING,
            )

    def _found(self, config: DeepSpeedConfig, key: str, cause: Text, severity: Severity) -> Finding:
        keys = (ZERO, "offload_optimizer", key)
        return self.finding(
            cause,
            severity=severity,
            cure=(Text('Set "stage": 3', "设置 “stage”: 3"), Text("Or remove {key}", "或去掉 {key}").format(key=key)),
            spans=(span_in(config, *keys), span_in(config, ZERO, "stage")),
            fixes=fix_of(
                Text("remove {key}", "去掉 {key}").format(key=key),
                lambda: config.removing(*keys),
                safe=severity is Severity.WARNING,
            ),
        )
