from gonogo.hazards.facts.deepspeed_settings import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Finding, Findings, Hazard, Run, Severity, Text


class DsOffloadOptionOfStage3(Hazard):
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
