"""stale-accelerate-default-config."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern
from gonogo.evidence.run import Run
from gonogo.finding import Certainty, Finding, Text
from gonogo.hazards.config._default_config import default_config_in_launch
from gonogo.hazards.facts.fsdp import asked_for_fsdp
from gonogo.hazards.hazard import Hazard

_WRAP = Pattern(r"Could not find the transformer layer (?:class|cls)")
_DEFAULT_FILE = Pattern(
    r"\.cache/(?:huggingface/)?(?:accelerate/)?default_config\s?\.ya?ml"
    r"|accelerate/default_config\.ya?ml"
)
_CURE = (
    Text(
        "Look at it, then delete it: cat ~/.cache/huggingface/accelerate/default_config.yaml; rm "
        "~/.cache/huggingface/accelerate/default_config.yaml (on every node)",
        "先查看再删除：cat ~/.cache/huggingface/accelerate/default_config.yaml；rm "
        "~/.cache/huggingface/accelerate/default_config.yaml（每个节点）",
    ),
    Text(
        "Name the configuration that is meant: accelerate launch --config_file my_config.yaml ...",
        "明确指定所用配置：accelerate launch --config_file my_config.yaml ...",
    ),
)


class StaleAccelerateDefaultConfig(Hazard):
    """accelerate takes settings from a default configuration that an earlier project left behind.

    ## What happens
    A run that does not use FSDP ends with "Could not find the transformer layer class to wrap in the model", or runs
    with another number of processes or precision than it was told.

    ## Why
    `accelerate launch` without `--config_file` reads `~/.cache/huggingface/accelerate/default_config.yaml`, which an
    `accelerate config` once wrote, for another model. It turns FSDP on by environment variables, and the training
    script follows them, whatever its own configuration says.

    ## Cure
    Delete that file, or always give `--config_file`.

    ## When it is safe
    Where the file does not exist, or says what this run wants.

    ## Sources
    - https://github.com/axolotl-ai-cloud/axolotl/issues/394: fsdp was false, the file in the cache turned it on
    """

    page_zh = """accelerate 读取了以前项目留下的默认配置。

    ## 现象
    没有使用 FSDP 的训练以 “Could not find the transformer layer class to wrap in the model” 结束，或进程数、
    精度与指定的不同。

    ## 原因
    `accelerate launch` 未给出 `--config_file` 时读取 `~/.cache/huggingface/accelerate/default_config.yaml`，
    那是以前为别的模型运行 `accelerate config` 写下的。它通过环境变量打开 FSDP，训练脚本随之启用，不管自己的配置如何。

    ## 解决办法
    删除该文件，或始终给出 `--config_file`。

    ## 何时安全
    该文件不存在，或其内容正是本次训练所要的。

    ## 来源
    - https://github.com/axolotl-ai-cloud/axolotl/issues/394：fsdp 为 false，缓存中的文件却打开了它
    """

    name = "stale-accelerate-default-config"
    title = Text("An old default configuration of accelerate turns FSDP on", "accelerate 的旧默认配置打开了 FSDP")
    sources = ("https://github.com/axolotl-ai-cloud/axolotl/issues/394",)

    def in_launch(self, launch: Launch, run: Run) -> Iterator[Finding]:
        """A launch that names no configuration, and so takes this machine's."""
        yield from default_config_in_launch(self, launch, run)

    log_words = ("Could not find the transformer layer", "default_config.y", "fsdp", "FSDP")

    def in_log(self, log: FailureLog) -> Iterator[Finding]:
        """FSDP's complaint about its layer class, in a run that does not ask for FSDP."""
        evidence = log.find(_WRAP)
        if evidence is None:
            return
        named = log.find(_DEFAULT_FILE)
        asked = asked_for_fsdp(log)
        if asked and named is None:
            return
        yield self.log_finding(
            evidence,
            Text(
                "FSDP wraps the model although this run does not ask for it: accelerate's default "
                "configuration, left by "
                "an earlier project, does.",
                "本次训练没有要求 FSDP，模型却被 FSDP 包装：是以前项目留下的 accelerate 默认配置打开的。",
            ),
            cure=_CURE,
            certainty=_certainty(asked, named is not None),
            also=(named,) if named else (),
            confirm=(
                Text(
                    "~/.cache/huggingface/accelerate/default_config.yaml exists and says distributed_type: FSDP",
                    "~/.cache/huggingface/accelerate/default_config.yaml 存在，且含 distributed_type: FSDP",
                ),
            ),
        )


def _certainty(asked: bool | None, named: bool) -> Certainty:
    """How sure it is: a run that doesn't ask for FSDP, in whose log the default file is named, leaves no doubt."""
    if named and not asked:
        return Certainty.CERTAIN
    return Certainty.LIKELY if named or asked is False else Certainty.POSSIBLE
