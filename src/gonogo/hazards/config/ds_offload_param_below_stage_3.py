from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, given
from gonogo.hazards.facts.how_it_trains import as_json
from gonogo.hazards.rule import Severity, Text


class DsOffloadParamBelowStage3(ConfigHazard):
    """offload_param is set at a stage below 3.
    ## What happens
    The run starts and ignores `offload_param`: the whole model stays on every GPU, and memory runs out where the
    section was to save it.
    ## Why
    Only ZeRO-3 partitions parameters, and only partitioned parameters are offloaded.
    ## Example
    ```json
    // "offload_param": {"device": "cpu"}
    "stage": 2    // wrong: offload_param is ignored
    "stage": 3    // right
    ```
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
    title = Text("Parameters are offloaded below ZeRO-3, which has no effect", "在 ZeRO-3 以下设置参数卸载，不起作用")

    keys = (
        "zero_optimization.offload_param",
        "zero_optimization.cpu_offload_param",
        "zero_optimization.cpu_offload_params",
    )
    stages = (0, 1, 2)
    wrong = given
    severity = Severity.WARNING
    cause = Text(
        "{key} asks for {device} at stage {stage}, where parameters are not partitioned: it is ignored, and every GPU "
        "keeps the whole model.",
        "{key} 在 stage {stage} 要求 {device}，而此时参数并未切分：该设置会被忽略，每块 GPU 仍保留完整模型。",
    )
    cure = (
        Text('Set "stage": 3 to offload parameters', "若要卸载参数，设置 “stage”: 3"),
        Text("Or remove {key}", "或去掉 {key}"),
    )
    beside = ("zero_optimization.stage",)
    change = Change(Text("remove what is ignored", "去掉被忽略的设置"))

    def around(self, at: Setting) -> Words | None:
        """The device, unless it is none."""
        device = at.config.offload("param")
        return {"device": as_json(device.value)} if device.known and device.value != "none" else None
