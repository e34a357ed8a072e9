from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, true
from gonogo.hazards.rule import Pattern, Refusal, Text


class Ds16bitMasterWeightsWithoutOffload(ConfigHazard):
    """fp16_master_weights_and_grads is on without optimizer offload.
    ## What happens
    "AssertionError: Master weights feature requires ZeRO-2 Offload with DeepSpeedCPUAdam"; without ZeRO
    "Fp16_master_weights_and_grads is only supported with ZeRO Stage …".
    ## Why
    Only DeepSpeedCPUAdam updates fp16 master weights; releases before 0.18 know the feature at stage 2 alone.
    ## Example
    ```json
    "fp16": {"enabled": true, "fp16_master_weights_and_grads": true},
    "zero_optimization": {"stage": 2}                                           // wrong
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}   // right
    ```
    ## Cure
    Offload the optimizer to the CPU, or remove the key.
    ## When it is safe
    With `offload_optimizer` and DeepSpeed's Adam.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py: the stages
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: offload with
      DeepSpeedCPUAdam is required
    """

    name = "ds-16bit-master-weights-without-offload"
    raises = True
    title = Text("16-bit master weights need the optimizer on the CPU", "16 位主权重要求优化器在 CPU 上")
    refusal = Refusal(
        Pattern(
            r"Master weights feature requires ZeRO-2 Offload|[Ff]p16_master_weights_and_grad\w* is onl"
            r"y supported with ZeRO"
        )
    )
    keys = ("fp16.fp16_master_weights_and_grads",)
    stages = (0, 1, 2, 3)
    wrong = true
    cause = Text(
        "{key} is on, at ZeRO stage {stage} with the optimizer on {device}: it works only with ZeRO and the optimizer "
        "on the CPU.",
        "开启了 {key}，而 ZeRO stage 为 {stage}，优化器位于 {device}：它只能与 ZeRO 及 CPU 上的优化器搭配。",
    )
    cure = (
        Text(
            'Write "offload_optimizer": {{"device": "cpu"}} at stage 2',
            "在 stage 2 写 “offload_optimizer”: {{“device”: “cpu”}}",
        ),
        Text("Or remove {key}", "或去掉 {key}"),
    )
    beside = ("zero_optimization.stage",)
    change = Change(Text("remove the key", "去掉该键"), safe=False)

    def around(self, at: Setting) -> Words | None:
        """Where the optimizer is, unless ZeRO keeps it on the CPU or that is not known."""
        device = at.config.offload("optimizer")
        if not device.known or (at.config.zero_stage and device.value != "none"):
            return None
        return {"device": Text("the GPU", "GPU") if device.value == "none" else device.value}
