"""torchvision-of-other-torch."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._built_for import of_other_torch
from gonogo.hazards.hazard import Hazard


class TorchvisionOfOtherTorch(Hazard):
    """torchvision or torchaudio was built for another PyTorch.

    ## What happens
    "RuntimeError: operator torchvision::nms does not exist", often shown as "Failed to import
    transformers.models.auto.processing_auto because of the following error": transformers imports torchvision
    wherever it is installed, also for language models.

    ## Why
    Both have C++ operators that are compiled for one PyTorch: torchvision 0.N goes with torch 2.(N-15), torchaudio
    has torch's own number. Raising torch alone leaves them behind.

    ## Cure
    Install the three together, from one index; or uninstall what is not used.

    ## When it is safe
    Where the pair is that of PyTorch's table.

    ## Sources
    - https://github.com/meta-llama/llama-cookbook/issues/710: operator torchvision::nms does not exist, in
      fine-tuning
    - https://github.com/vllm-project/vllm-ascend/pull/479: torchvision held to the one of its torch
    - https://github.com/pytorch/vision#installation: which torchvision goes with which torch
    """

    page_zh = """torchvision 或 torchaudio 是针对另一个 PyTorch 编译的。

    ## 现象
    “RuntimeError: operator torchvision::nms does not exist”，常显示为 “Failed to import
    transformers.models.auto.processing_auto because of the following error”：只要装了 torchvision，transformers 就
    会导入它，语言模型也不例外。

    ## 原因
    两者都有针对某个 PyTorch 编译的 C++ 算子：torchvision 0.N 对应 torch 2.(N-15)，torchaudio 与 torch 同号。只升级
    torch 就会落下它们。

    ## 解决办法
    从同一个源一起安装三者；不用的可以卸载。

    ## 何时安全
    组合与 PyTorch 的对应表一致时。

    ## 来源
    - https://github.com/meta-llama/llama-cookbook/issues/710：微调中的 operator torchvision::nms does not exist
    - https://github.com/vllm-project/vllm-ascend/pull/479：把 torchvision 限定为与 torch 对应的版本
    - https://github.com/pytorch/vision#installation：torchvision 与 torch 的对应关系
    """

    name = "torchvision-of-other-torch"
    title = Text(
        "torchvision or torchaudio does not fit the installed PyTorch",
        "torchvision 或 torchaudio 与已安装的 PyTorch 不匹配",
    )
    sources = (
        "https://github.com/meta-llama/llama-cookbook/issues/710",
        "https://github.com/vllm-project/vllm-ascend/pull/479",
        "https://github.com/pytorch/vision#installation",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """A release for another torch than the one beside it."""
        effect = Text(
            "importing it ends with an error of its operators, in transformers too",
            "导入时其算子会报错，transformers 也会因此失败",
        )
        for package in ("torchvision", "torchaudio"):
            yield from of_other_torch(self, environment, run, package, effect)
