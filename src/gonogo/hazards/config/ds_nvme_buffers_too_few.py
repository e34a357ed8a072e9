from gonogo.hazards.config_rule import Change, ConfigHazard, Setting, Words, number
from gonogo.hazards.facts.deepspeed_settings import ZERO, optimizer_type
from gonogo.hazards.rule import Certainty, Text


class DsNvmeBuffersTooFew(ConfigHazard):
    """buffer_count of offload_optimizer is below four with Adam on NVMe.
    ## What happens
    A bare "AssertionError" in swap_in_optimizer_state at the second step: `assert pinned_buffers is not None`.
    ## Why
    A parameter of Adam is read into four buffers at once: parameter, gradient, momentum, variance.
    ## Example
    ```json
    // "offload_optimizer": {"device": "nvme", ...}
    "buffer_count": 2    // wrong: Adam needs 4
    "buffer_count": 4    // right
    ```
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
    title = Text("NVMe offload has fewer buffers than the optimizer has states", "NVMe 卸载的缓冲区少于优化器的状态数")

    keys = ("zero_optimization.offload_optimizer.buffer_count",)
    stages = (3,)
    wrong = number(lambda count: count < 4)
    cause = Text(
        "{key} is {number:.0f}, and Adam reads 4 tensors of a parameter at once from the NVMe: parameter, gradient, "
        "momentum, variance.",
        "{key} 为 {number:.0f}，而 Adam 需要从 NVMe 同时读入每个参数的 4 个张量：参数、梯度、动量、方差。",
    )
    cure = Text("Write 4 or more", "写 4 或更大")
    change = Change(Text("write 4", "改为 4"), to=4)

    def around(self, at: Setting) -> Words | None:
        """Adam on NVMe."""
        nvme = at.config.get(ZERO, "offload_optimizer", "device").value == "nvme"
        return {} if nvme and (optimizer_type(at.config) or "adam").lower() in ("adam", "adamw") else None

    def sureness(self, at: Setting) -> Certainty:
        """Certain where the config names the optimizer."""
        return Certainty.CERTAIN if optimizer_type(at.config) else Certainty.LIKELY
