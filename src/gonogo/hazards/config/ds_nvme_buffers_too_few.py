from gonogo.hazards.config._written import ZERO, optimizer_type, span_in
from gonogo.hazards.facts.how_it_trains import fix_of
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text

_STATES = 4


class DsNvmeBuffersTooFew(Hazard):
    """buffer_count of offload_optimizer is below four with Adam on NVMe.

    ## What happens
    A bare "AssertionError" in swap_in_optimizer_state at the second step: `assert pinned_buffers is not None`.

    ## Why
    A parameter of Adam is read into four buffers at once: parameter, gradient, momentum, variance.

    ## Cure
    Write `"buffer_count": 4`, the default, or more with pipeline_read.

    ## When it is safe
    With an optimizer of fewer states.

    ## Sources
    - https://www.deepspeed.ai/docs/config-json/: buffer_count: at least the number of states
    - https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/offload_config.py: Adam has 4
      states
    """

    name = "ds-nvme-buffers-too-few"
    title = Text(
        en="NVMe offload has fewer buffers than the optimizer has states", zh="NVMe 卸载的缓冲区少于优化器的状态数"
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Fewer than four buffers at stage 3 with the device nvme."""
        section = (ZERO, "offload_optimizer")
        count = config.raw(*section, "buffer_count").number
        if config.zero_stage != 3 or count is None or count >= _STATES:
            return
        name = (optimizer_type(config) or "").lower()
        if config.get(*section, "device").value != "nvme" or name not in ("", "adam", "adamw"):
            return
        yield self.finding(
            Text(
                en="buffer_count is {count}, and Adam reads {states} tensors of a parameter at once from the NVMe: "
                "parameter, gradient, momentum, variance.",
                zh="buffer_count 为 {count}，而 Adam 需要从 NVMe 同时读入每个参数的 {states} 个张量：参数、梯度、动量、"
                "方差。",
            ).format(count=int(count), states=_STATES),
            certainty=Certainty.CERTAIN if name else Certainty.LIKELY,
            cure=(Text("Write {states} or more", "写 {states} 或更大").format(states=_STATES),),
            spans=(span_in(config, *section, "buffer_count"),),
            fixes=fix_of(
                Text("write {states}", "改为 {states}").format(states=_STATES),
                lambda: config.replacing(*section, "buffer_count", value=_STATES),
            ),
        )
