"""transformers-torch-below-minimum."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._pairs import refused_by_transformers
from gonogo.hazards.hazard import Hazard


class TransformersTorchBelowMinimum(Hazard):
    """transformers goes without a PyTorch that is older than it takes.

    ## What happens
    "Disabling PyTorch because PyTorch >= 2.4 is required but found 2.3.0", and then an ImportError: the class
    "requires the PyTorch library but it was not found in your environment". Some releases fail in the import instead:
    "module 'torch' has no attribute 'compiler'".

    ## Why
    torch is no hard dependency of transformers, so that `pip install -U transformers`, or a requirement without an
    upper limit, brings a transformers that the installed torch is too old for: 4.48 asks for 2.0, 4.52 for 2.1, 4.56
    for 2.2, 5.1 for 2.4.

    ## Cure
    Raise torch, or pin the transformers that goes with it.

    ## When it is safe
    Where torch is at least what transformers requires.

    ## Sources
    - https://github.com/alibaba-damo-academy/Lumos/issues/8: torch 2.3.0 beside transformers 5
    - https://github.com/jingyaogong/minimind/issues/588: torch 2.0.1; an older transformers settles it
    - https://github.com/huggingface/transformers/issues/37238: transformers 4.50 with torch 2.0: no attribute
      'compiler'
    """

    page_zh = """PyTorch 太旧时 transformers 会弃用它。

    ## 现象
    先是 “Disabling PyTorch because PyTorch >= 2.4 is required but found 2.3.0”，随后是 ImportError：某个类
    “requires the PyTorch library but it was not found in your environment”。有些版本直接在 import 中失败：“module
    'torch' has no attribute 'compiler'”。

    ## 原因
    torch 不是 transformers 的硬依赖，所以 `pip install -U transformers` 或没有上限的依赖会装上一个对现有 torch 来说
    太新的 transformers：4.48 要求 2.0，4.52 要求 2.1，4.56 要求 2.2，5.1 要求 2.4。

    ## 解决办法
    升级 torch，或固定与之相配的 transformers。

    ## 何时安全
    torch 不低于 transformers 的要求时。

    ## 来源
    - https://github.com/alibaba-damo-academy/Lumos/issues/8：torch 2.3.0 与 transformers 5
    - https://github.com/jingyaogong/minimind/issues/588：torch 2.0.1；降低 transformers 后解决
    - https://github.com/huggingface/transformers/issues/37238：transformers 4.50 与 torch 2.0：没有 'compiler' 属性
    """

    name = "transformers-torch-below-minimum"
    title = Text("PyTorch is older than this transformers takes", "PyTorch 比该版本 transformers 的要求旧")
    sources = (
        "https://github.com/alibaba-damo-academy/Lumos/issues/8",
        "https://github.com/jingyaogong/minimind/issues/588",
        "https://github.com/huggingface/transformers/issues/37238",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """torch below the lowest version that the told transformers takes."""
        effect = Text(
            "transformers goes without it, and its models and Trainer raise an ImportError",
            "transformers 会弃用它，模型与 Trainer 抛出 ImportError",
        )
        sure = environment.within("transformers", ">=4.50") is True
        yield from refused_by_transformers(self, environment, run, "torch", effect, sure=sure)
