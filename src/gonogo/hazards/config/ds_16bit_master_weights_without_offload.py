from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class Ds16bitMasterWeightsWithoutOffload(Hazard):
    """fp16_master_weights_and_grads is on without optimizer offload.

    ## What happens
    "AssertionError: Master weights feature requires ZeRO-2 Offload with DeepSpeedCPUAdam"; without ZeRO
    "Fp16_master_weights_and_grads is only supported with ZeRO Stage …".

    ## Why
    Only DeepSpeedCPUAdam updates fp16 master weights; releases before 0.18 know the feature at stage 2 alone.

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
    title = Text(en="16-bit master weights need the optimizer on the CPU", zh="16 位主权重要求优化器在 CPU 上")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The key without ZeRO or without offload, where both are known."""
        keys = ("fp16", "fp16_master_weights_and_grads")
        if config.raw(*keys).truth is not True or config.zero_stage is None:
            return
        stage, device = config.zero_stage, config.offload("optimizer")
        if not device.known or (stage and device.value != "none"):
            return
        yield self.finding(
            Text(
                en="fp16_master_weights_and_grads is on, at ZeRO stage {stage} with the optimizer on {device}: it "
                "works only with ZeRO and the optimizer on the CPU.",
                zh="开启了 fp16_master_weights_and_grads，而 ZeRO stage 为 {stage}，优化器位于 {device}：它只能与 ZeRO "
                "及 CPU 上的优化器搭配。",
            ).format(
                stage=stage,
                device=Text("the GPU", "GPU") if device.value == "none" else Text(str(device.value), str(device.value)),
            ),
            cure=(
                Text(
                    'Write "offload_optimizer": {{"device": "cpu"}} at stage 2',
                    "在 stage 2 写 “offload_optimizer”: {{“device”: “cpu”}}",
                ).format(),
                Text("Or remove fp16_master_weights_and_grads", "或去掉 fp16_master_weights_and_grads"),
            ),
            spans=(span_in(config, *keys), span_in(config, ZERO, "stage")),
            fixes=fix_of(Text("remove the key", "去掉该键"), lambda: config.removing(*keys), safe=False),
        )
