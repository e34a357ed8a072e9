"""ds-nvme-offload-without-path."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.config.deepspeed import DeepSpeedConfig
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.config._written import ZERO, spot
from gonogo.hazards.hazard import Hazard


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

    page_zh = """某一段要卸载到 NVMe，却没有指定目录。

    ## 现象
    参数：“AssertionError: "nvme_path" in DeepSpeed Config cannot be None if remote device is nvme”；优化器：
    “TypeError: expected str, bytes or os.PathLike object, not NoneType”。

    ## 原因
    该目录没有默认值。accelerate 会用自己的设置填充 "auto"；缺失的键则没有人填写。

    ## 解决办法
    在该段中写 `"nvme_path": "/local_nvme"`，即快速本地磁盘上的目录。

    ## 何时安全
    `"device": "cpu"` 不需要目录。

    ## 来源
    - https://github.com/deepspeedai/DeepSpeed/issues/2624：该断言
    - https://www.deepspeed.ai/docs/config-json/：两段的 nvme_path
    """

    name = "ds-nvme-offload-without-path"
    title = Text(en="NVMe offload has no nvme_path", zh="NVMe 卸载没有 nvme_path")
    sources = (
        "https://github.com/deepspeedai/DeepSpeed/issues/2624",
        "https://www.deepspeed.ai/docs/config-json/",
    )

    def in_config(self, config: DeepSpeedConfig, run: Run) -> Iterator[Finding]:
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
                spans=(spot(config, ZERO, section, "device"),),
            )
