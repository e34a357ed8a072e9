"""bitsandbytes-not-installed."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.field import Field
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._needs import bitsandbytes_use, not_installed
from gonogo.hazards.hazard import Hazard


class BitsandbytesNotInstalled(Hazard):
    """An 8-bit optimizer or a quantized model is asked for, and bitsandbytes is not installed.

    ## What happens
    "ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip install -U
    bitsandbytes`", or "Trainer tried to instantiate bnb optimizer but `bitsandbytes` is not installed!".

    ## Why
    Neither transformers nor peft requires it. load_in_4bit, load_in_8bit and optimizers such as adamw_bnb_8bit or
    paged_adamw_32bit are bitsandbytes'.

    ## Cure
    pip install bitsandbytes, or train without quantization and with adamw_torch.

    ## When it is safe
    Where the package is installed after the listing was made, or the listing is of another environment.

    ## Sources
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1306: the ImportError of 4-bit loading
    - https://github.com/SuperDataScience-Community/ai-engineering/issues/9: the same in newer words
    """

    page_zh = """启用了 8-bit 优化器或量化模型，但没有安装 bitsandbytes。

    ## 现象
    “ImportError: Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: `pip install
    -U bitsandbytes`”，或 “Trainer tried to instantiate bnb optimizer but `bitsandbytes` is not installed!”。

    ## 原因
    transformers 与 peft 都不依赖它。load_in_4bit、load_in_8bit 以及 adamw_bnb_8bit、paged_adamw_32bit 等优化器都来自
    bitsandbytes。

    ## 解决办法
    执行 pip install bitsandbytes，或不量化并使用 adamw_torch。

    ## 何时安全
    在列出清单之后才安装该包，或清单属于另一个环境时。

    ## 来源
    - https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1306：4-bit 加载时的 ImportError
    - https://github.com/SuperDataScience-Community/ai-engineering/issues/9：较新版本的同一报错
    """

    name = "bitsandbytes-not-installed"
    title = Text("bitsandbytes is needed and not installed", "需要 bitsandbytes 但没有安装")
    sources = (
        "https://github.com/bitsandbytes-foundation/bitsandbytes/issues/1306",
        "https://github.com/SuperDataScience-Community/ai-engineering/issues/9",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """Quantization or an 8-bit optimizer, and a complete listing without bitsandbytes."""
        asked = bitsandbytes_use(run)
        if asked is None:
            return
        yield from not_installed(
            self,
            environment,
            run,
            "bitsandbytes",
            asked,
            Text(
                "{value} is bitsandbytes', which is not among the installed packages.",
                "{value} 由 bitsandbytes 提供，而已安装的包中没有它。",
            ).format(value=_named(asked)),
            also=("bitsandbytes-npu-beta", "bitsandbytes-rocm", "bitsandbytes-cuda117"),
        )


def _named(asked: Field) -> str:
    """What asks for it, as it is written."""
    place = asked.place
    return str(asked.value) if place is None or isinstance(asked.value, str) else place.text[:60]
