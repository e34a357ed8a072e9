from gonogo.hazards.version_rule import BuiltForOtherTorch
from gonogo.hazards.rule import Text


class XformersOfOtherTorch(BuiltForOtherTorch):
    """xformers was built for another PyTorch.
    ## What happens
    "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for: PyTorch 2.3.0+cu121 (you have
    2.0.0+cu117)", then "No operator found for memory_efficient_attention_forward". Or pip replaces torch by the one
    that xformers pins.
    ## Why
    Each wheel of xformers up to 0.0.34 is compiled for, and pins, one release of PyTorch.
    ## Example
    ```text
    torch==2.5.1
    xformers==0.0.26.post1    # wrong: for torch 2.3.0
    xformers==0.0.28.post3    # right
    ```
    ## Cure
    Install the xformers of that PyTorch, or do without it: attn_implementation sdpa.
    ## When it is safe
    Where xformers is not used, the warning is harmless.
    ## Sources
    - https://github.com/facebookresearch/xformers/issues/1052: 0.0.26.post1 replaces torch 2.3.1 by 2.3.0
    - https://github.com/Doubiiu/DynamiCrafter/issues/86: the warning, built for 2.3.0 beside 2.0.0
    """

    name = "xformers-of-other-torch"
    title = Text("xformers does not fit the installed PyTorch", "xformers 与已安装的 PyTorch 不匹配")
    packages = ("xformers",)
    effect = Text(
        "its kernels are not loaded, and attention through it fails", "其 kernel 无法加载，使用它的注意力会失败"
    )
