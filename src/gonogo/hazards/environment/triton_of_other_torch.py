"""triton-of-other-torch."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.environment.environment import Environment
from gonogo.evidence.run import Run
from gonogo.finding import Finding, Text
from gonogo.hazards.environment._built_for import of_other_torch
from gonogo.hazards.hazard import Hazard


class TritonOfOtherTorch(Hazard):
    """triton is pinned to another release than PyTorch requires.

    ## What happens
    "ERROR: Cannot install torch==2.6.0 and triton==3.0.0 because these package versions have conflicting
    dependencies"; or, where it was installed all the same, torch.compile and Triton kernels (liger-kernel,
    DeepSpeed's) fail.

    ## Why
    PyTorch's wheels for Linux require one release of triton: 2.4 takes 3.0.0, 2.5 3.1.0, 2.6 3.2.0.

    ## Cure
    Take triton out of the requirements: torch brings its own.

    ## When it is safe
    On systems other than Linux, where torch requires none.

    ## Sources
    - https://github.com/QwenLM/Qwen3-VL/issues/1090: torch 2.6.0 and triton 3.0.0 in a fine-tuning project
    - https://github.com/S-LoRA/S-LoRA/issues/8: torch 2.0.1 requires triton 2.0.0
    """

    page_zh = """triton 固定的版本与 PyTorch 的要求不同。

    ## 现象
    “ERROR: Cannot install torch==2.6.0 and triton==3.0.0 because these package versions have conflicting
    dependencies”；若仍装上了，torch.compile 与 Triton kernel（liger-kernel、DeepSpeed）会失败。

    ## 原因
    PyTorch 的 Linux wheel 只接受一个 triton 版本：2.4 为 3.0.0，2.5 为 3.1.0，2.6 为 3.2.0。

    ## 解决办法
    从依赖中去掉 triton：torch 会自带。

    ## 何时安全
    Linux 以外的系统，torch 不要求 triton。

    ## 来源
    - https://github.com/QwenLM/Qwen3-VL/issues/1090：微调项目中的 torch 2.6.0 与 triton 3.0.0
    - https://github.com/S-LoRA/S-LoRA/issues/8：torch 2.0.1 要求 triton 2.0.0
    """

    name = "triton-of-other-torch"
    title = Text("triton does not fit the installed PyTorch", "triton 与已安装的 PyTorch 不匹配")
    sources = (
        "https://github.com/QwenLM/Qwen3-VL/issues/1090",
        "https://github.com/S-LoRA/S-LoRA/issues/8",
    )

    def in_environment(self, environment: Environment, run: Run) -> Iterator[Finding]:
        """A release for another torch than the one beside it."""
        effect = Text(
            "torch.compile and Triton kernels fail",
            "torch.compile 与 Triton kernel 会失败",
        )
        for package in ("triton",):
            yield from of_other_torch(self, environment, run, package, effect)
