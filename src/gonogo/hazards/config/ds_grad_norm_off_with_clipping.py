from gonogo.hazards.config._written import ZERO, dotted, key_spot, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import DeepSpeedConfig, Findings, Hazard, Run, Text


class DsGradNormOffWithClipping(Hazard):
    """compute_grad_norm is false, and clipping, offload or the stage needs the norm.

    ## What happens
    "ValueError: zero_optimization.compute_grad_norm=false requires gradient_clipping=0", or "… is supported only
    with ZeRO Stage 1 or 2".

    ## Why
    Clipping divides by the norm. The Trainer clips at 1.0 unless told otherwise.

    ## Cure
    Remove the key, or set gradient_clipping to 0.

    ## When it is safe
    At stage 1 and 2 without clipping and without offload.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py: clipping and
      offload
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/config.py: the stages
    """

    name = "ds-grad-norm-off-with-clipping"
    title = Text(en="The gradient norm is switched off, and something needs it", zh="关闭了梯度范数，而有设置需要它")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """The switch off beside what DeepSpeed refuses with it."""
        if config.raw(ZERO, "compute_grad_norm").truth is not False:
            return
        clipping, device = config.get("gradient_clipping"), config.offload("optimizer")
        beside: tuple[str, ...]
        if config.zero_stage in (0, 3):
            beside = (ZERO, "stage")
        elif clipping.number:
            beside = ("gradient_clipping",)
        elif device.known and device.value != "none":
            beside = (ZERO, "offload_optimizer")
        else:
            return
        yield self.finding(
            Text(
                en="compute_grad_norm is false, which DeepSpeed refuses together with {beside}.",
                zh="compute_grad_norm 为 false，DeepSpeed 不允许它与 {beside} 同时使用。",
            ).format(beside=dotted(beside)),
            cure=(Text("Remove compute_grad_norm", "去掉 compute_grad_norm"),),
            spans=(span_in(config, ZERO, "compute_grad_norm"), key_spot(config, *beside)),
            fixes=fix_of(Text("compute the norm", "计算该范数"), lambda: config.removing(ZERO, "compute_grad_norm")),
        )
