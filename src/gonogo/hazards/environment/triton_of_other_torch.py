from gonogo.hazards.version_rule import BuiltForOtherTorch
from gonogo.hazards.rule import Text


class TritonOfOtherTorch(BuiltForOtherTorch):
    """triton is pinned to another release than PyTorch requires.
    ## What happens
    "ERROR: Cannot install torch==2.6.0 and triton==3.0.0 because these package versions have conflicting
    dependencies"; or, where it was installed all the same, torch.compile and Triton kernels (liger-kernel,
    DeepSpeed's) fail.
    ## Why
    PyTorch's wheels for Linux require one release of triton: 2.4 takes 3.0.0, 2.5 3.1.0, 2.6 3.2.0.
    ## Example
    ```text
    torch==2.6.0
    triton==3.0.0    # wrong: torch 2.6 brings 3.2.0; leave the line out
    ```
    ## Cure
    Take triton out of the requirements: torch brings its own.
    ## When it is safe
    On systems other than Linux, where torch requires none.
    ## Sources
    - https://github.com/QwenLM/Qwen3-VL/issues/1090: torch 2.6.0 and triton 3.0.0 in a fine-tuning project
    - https://github.com/S-LoRA/S-LoRA/issues/8: torch 2.0.1 requires triton 2.0.0
    """

    name = "triton-of-other-torch"
    title = Text("triton does not fit the installed PyTorch", "triton 与已安装的 PyTorch 不匹配")
    packages = ("triton",)
    effect = Text("torch.compile and Triton kernels fail", "torch.compile 与 Triton kernel 会失败")
