from gonogo.hazards.config._written import ZERO, key_spot, span_in
from gonogo.hazards.facts.how_it_trains import as_json, fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Severity, Text


class DsOffloadParamBelowStage3(Hazard):
    """offload_param is set at a stage below 3.

    ## What happens
    The run starts and ignores `offload_param`: the whole model stays on every GPU, and memory runs out where the
    section was to save it.

    ## Why
    Only ZeRO-3 divides parameters, and only divided parameters are offloaded.

    ## Cure
    Take stage 3, or remove `offload_param`. At stage 2 `offload_optimizer` frees the most.

    ## When it is safe
    `"device": "none"`.

    ## Sources
    - https://www.deepspeed.ai/docs/config-json/: offload_param: valid only with stage 3
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: `offload_param`: "Valid
      only with stage 3"
    """

    name = "ds-offload-param-below-stage-3"
    title = Text(
        en="Parameters are offloaded below ZeRO-3, which has no effect", zh="在 ZeRO-3 以下设置参数卸载，不起作用"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """An offload device for parameters at a stage that is known and not 3."""
        stage = config.zero_stage
        if stage is None or stage == 3:
            return
        device = config.offload("param")
        if not device.known or device.value == "none":
            return
        keys = ("offload_param", "cpu_offload_param", "cpu_offload_params")
        key = next((key for key in keys if config.raw(ZERO, key).known), keys[0])
        yield self.finding(
            Text(
                en="{key} asks for {device} at stage {stage}, where parameters are not divided: it is ignored, and "
                "every GPU keeps the whole model.",
                zh="{key} 在 stage {stage} 要求 {device}，而此时参数并未切分：该设置会被忽略，每块 GPU 仍保留完整模型"
                "。",
            ).format(key=key, device=as_json(device.value), stage=stage),
            severity=Severity.WARNING,
            cure=(
                Text('Set "stage": 3 to offload parameters', "若要卸载参数，设置 “stage”: 3"),
                Text("Or remove {key}", "或去掉 {key}").format(key=key),
            ),
            spans=(key_spot(config, ZERO, key), span_in(config, ZERO, "stage")),
            fixes=fix_of(Text("remove what is ignored", "去掉被忽略的设置"), lambda: config.removing(ZERO, key)),
        )
