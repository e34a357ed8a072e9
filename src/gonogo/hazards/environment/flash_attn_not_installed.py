"""flash-attn-not-installed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._machine import asks_for_flash_attention
from gonogo.hazards.environment._needs import not_installed
from gonogo.hazards.hazard import Hazard


class FlashAttnNotInstalled(Hazard):
    """FlashAttention is asked for, and its package is not installed.

    ## What happens
    "ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package
    flash_attn seems to be not installed."

    ## Why
    transformers does not require flash-attn: it is compiled for one PyTorch, CUDA and Python, and installed by hand.
    A config that was written elsewhere keeps asking for it.

    ## Cure
    Install it (pip install flash-attn --no-build-isolation), or take attn_implementation="sdpa", which PyTorch
    brings.

    ## When it is safe
    Newer transformers may fetch a ready kernel from the hub (package kernels) in its place.

    ## Sources
    - https://github.com/hiyouga/EasyR1/issues/384: the ImportError, and how to do without
    - https://github.com/Dao-AILab/flash-attention#installation-and-features: how it is installed
    """

    page_zh = """启用了 FlashAttention，但没有安装它的包。

    ## 现象
    “ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package
    flash_attn seems to be not installed.”

    ## 原因
    transformers 不依赖 flash-attn：它针对特定的 PyTorch、CUDA 与 Python 编译，需手动安装。从别处拿来的配置会继续要求
    它。

    ## 解决办法
    安装它（pip install flash-attn --no-build-isolation），或改用 PyTorch 自带的 attn_implementation="sdpa"。

    ## 何时安全
    较新的 transformers 可从 hub 获取现成的 kernel（kernels 包）来代替。

    ## 来源
    - https://github.com/hiyouga/EasyR1/issues/384：该 ImportError，以及如何不使用它
    - https://github.com/Dao-AILab/flash-attention#installation-and-features：安装方法
    """

    name = "flash-attn-not-installed"
    title = Text("flash-attn is asked for and not installed", "启用了 flash-attn 但没有安装")
    sources = (
        "https://github.com/hiyouga/EasyR1/issues/384",
        "https://github.com/Dao-AILab/flash-attention#installation-and-features",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """An attention that needs flash-attn, and a complete listing without it."""
        asked = asks_for_flash_attention(run)
        if asked is None or run.framework == "llamafactory":
            return  # LLaMA-Factory warns, and goes on without
        yield from not_installed(
            self,
            environment,
            run,
            "flash-attn",
            asked,
            Text(
                "FlashAttention is asked for ({value}), and flash-attn is not among the installed packages: loading "
                "the model ends with an ImportError.",
                "启用了 FlashAttention（{value}），而已安装的包中没有 flash-attn：加载模型时以 ImportError 结束。",
            ).format(value=asked.value),
            also=("kernels", "flash-attn-3", "torch-npu", "flash-attn-4"),
            cure=(Text('Or attn_implementation="sdpa"', '或使用 attn_implementation="sdpa"'),),
        )
