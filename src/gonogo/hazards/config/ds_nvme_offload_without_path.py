from gonogo.hazards.config._written import ZERO, span_in
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Run, Text


class DsNvmeOffloadWithoutPath(Hazard):
    """A section offloads to NVMe and names no folder for it.

    ## What happens
    For parameters: "AssertionError: "nvme_path" in DeepSpeed Config cannot be None if remote device is nvme". For
    the optimizer: "TypeError: expected str, bytes or os.PathLike object, not NoneType".

    ## Why
    The folder has no default. accelerate fills in "auto" from its own settings; nothing fills in a missing key.

    ## Cure
    Write `"nvme_path": "/local_nvme"`, a folder on a fast local disk, in that section.

    ## When it is safe
    With `"device": "cpu"` no folder is needed.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/2624: the assertion
    - https://www.deepspeed.ai/docs/config-json/: nvme_path of both sections
    """

    name = "ds-nvme-offload-without-path"
    title = Text(en="NVMe offload has no nvme_path", zh="NVMe 卸载没有 nvme_path")

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """A section with the device nvme and no path, at stage 3: below it nothing goes to NVMe."""
        if config.zero_stage not in (3, None):
            return
        for section in ("offload_optimizer", "offload_param"):
            device = config.get(ZERO, section, "device")
            path = config.raw(ZERO, section, "nvme_path")
            if device.value != "nvme" or not (path.absent or (path.known and path.value is None)):
                continue
            yield self.finding(
                Text(
                    en='{section} offloads to "nvme" and has no "nvme_path": DeepSpeed has no default folder.',
                    zh="{section} 要卸载到 “nvme”，却没有 “nvme_path”：DeepSpeed 没有默认目录。",
                ).format(section=section),
                certainty=Certainty.CERTAIN if config.zero_stage == 3 else Certainty.LIKELY,
                cure=(
                    Text(
                        'Write "nvme_path" in {section}: a folder on a fast disk of each node',
                        "在 {section} 中写 “nvme_path”：各节点快速本地磁盘上的目录",
                    ).format(section=section),
                    Text('Or offload to "cpu"', "或卸载到 “cpu”"),
                ),
                spans=(span_in(config, ZERO, section, "device"),),
            )
