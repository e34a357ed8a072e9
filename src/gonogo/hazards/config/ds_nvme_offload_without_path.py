from gonogo.hazards.config_rule import ConfigHazard, Setting, Words, word
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Text


class DsNvmeOffloadWithoutPath(ConfigHazard):
    """A section offloads to NVMe and names no folder for it.
    ## What happens
    For parameters: "AssertionError: "nvme_path" in DeepSpeed Config cannot be None if remote device is nvme". For
    the optimizer: "TypeError: expected str, bytes or os.PathLike object, not NoneType".
    ## Why
    The folder has no default. accelerate fills in "auto" from its own settings; nothing fills in a missing key.
    ## Example
    ```json
    "offload_param": {"device": "nvme"}                                // wrong
    "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}    // right
    ```
    ## Cure
    Write `"nvme_path": "/local_nvme"`, a folder on a fast local disk, in that section.
    ## When it is safe
    With `"device": "cpu"` no folder is needed.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2624: the assertion
    - https://www.deepspeed.ai/docs/config-json/: nvme_path of both sections
    """

    name = "ds-nvme-offload-without-path"
    title = Text("NVMe offload has no nvme_path", "NVMe 卸载没有 nvme_path")
    refusal = Refusal(Pattern(r"in DeepSpeed Config cannot be None if remote device is nvme"))

    keys = ("zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device")
    stages = (3, None)
    wrong = word("nvme")
    fills_in_auto = True
    cause = Text(
        '{section} offloads to "nvme" and has no "nvme_path": DeepSpeed has no default folder.',
        "{section} 要卸载到 “nvme”，却没有 “nvme_path”：DeepSpeed 没有默认目录。",
    )
    cure = (
        Text(
            'Write "nvme_path" in {section}: a folder on a fast disk of each node',
            "在 {section} 中写 “nvme_path”：各节点快速本地磁盘上的目录",
        ),
        Text('Or offload to "cpu"', "或卸载到 “cpu”"),
    )

    def around(self, at: Setting) -> Words | None:
        """No path stands beside the device."""
        path = at.config.raw(*at.keys[:-1], "nvme_path")
        return {} if path.absent or (path.known and path.value is None) else None

    def sureness(self, at: Setting) -> Certainty:
        """Certain at stage 3: below it nothing goes to NVMe."""
        return Certainty.CERTAIN if at.config.zero_stage == 3 else Certainty.LIKELY
