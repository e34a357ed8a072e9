"""deepspeed-not-installed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._needs import not_installed
from gonogo.hazards.hazard import Hazard


class DeepspeedNotInstalled(Hazard):
    """The run uses DeepSpeed, and it is not installed.

    ## What happens
    "deepspeed: command not found", "ImportError: DeepSpeed is not available => install it using `pip3 install
    deepspeed` or build it from source", or "--deepspeed requires deepspeed".

    ## Why
    transformers, accelerate and the training frameworks install without it (`pip install llamafactory[deepspeed]`,
    `ms-swift[all]`).

    ## Cure
    pip install deepspeed, of a version that this transformers takes, in the environment that trains.

    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.

    ## Sources
    - https://github.com/lavoiems/DiscreteLatentCode/issues/1: the ImportError of accelerate
    - https://github.com/hiyouga/LlamaFactory/issues/4694: the same from LLaMA-Factory
    """

    page_zh = """训练使用 DeepSpeed，但没有安装它。

    ## 现象
    “deepspeed: command not found”、“ImportError: DeepSpeed is not available => install it using `pip3 install
    deepspeed` or build it from source”，或 “--deepspeed requires deepspeed”。

    ## 原因
    transformers、accelerate 与各训练框架默认都不安装它（需 `pip install llamafactory[deepspeed]`、
    `ms-swift[all]`）。

    ## 解决办法
    在训练环境中 pip install deepspeed，版本须被该 transformers 接受。

    ## 何时安全
    在列出清单之后才安装该包，或清单属于另一个环境时。

    ## 来源
    - https://github.com/lavoiems/DiscreteLatentCode/issues/1：accelerate 的 ImportError
    - https://github.com/hiyouga/LlamaFactory/issues/4694：LLaMA-Factory 中的同一报错
    """

    name = "deepspeed-not-installed"
    title = Text("DeepSpeed is used and not installed", "使用了 DeepSpeed 但没有安装")
    sources = (
        "https://github.com/lavoiems/DiscreteLatentCode/issues/1",
        "https://github.com/hiyouga/LlamaFactory/issues/4694",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """A launch with DeepSpeed, or a config of its, and a complete listing without it."""
        asked = _asks(run)
        if asked is None:
            return
        yield from not_installed(
            self,
            environment,
            run,
            "deepspeed",
            asked,
            Text(
                "The run uses DeepSpeed, which is not among the installed packages.",
                "该训练使用 DeepSpeed，而已安装的包中没有它。",
            ),
            also=("deepspeed-npu",),
        )


def _asks(run: Run) -> Field | None:
    """What asks for DeepSpeed: its launcher, or the name of a config."""
    if run.launch is None:
        return None
    if run.launch.launcher == "deepspeed":
        return Field.of("deepspeed", run.launch.place)
    if run.deepspeed_on and run.config_field.known:
        return run.config_field
    return None
