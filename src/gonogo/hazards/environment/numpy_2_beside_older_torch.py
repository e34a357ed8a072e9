from gonogo.hazards.version_rule import UnfitVersions
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Text


class Numpy2BesideOlderTorch(UnfitVersions):
    """numpy 2 beside a PyTorch that was compiled for numpy 1.
    ## What happens
    "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0 as it may crash", "Failed to initialize
    NumPy: _ARRAY_API not found", and at the first `tensor.numpy()` or `torch.from_numpy` "RuntimeError: Numpy is not
    available".
    ## Why
    numpy 2 changed its binary interface; PyTorch is compiled for it since 2.3. Older wheels name no upper limit, so
    that an unpinned numpy becomes 2.
    ## Example
    ```text
    torch==2.2.2
    numpy==2.0.1    # wrong
    numpy==1.26.4    # right
    ```
    ## Cure
    Pin numpy<2, or take PyTorch 2.3 or newer.
    ## When it is safe
    With PyTorch 2.3 or newer, or numpy 1.
    ## Sources
    - https://github.com/securefederatedai/openfederatedlearning/issues/999: Numpy is not available, with torch below
      2.3
    - https://github.com/pytorch/pytorch/issues/107302: PyTorch's support of numpy 2, from 2.3 on
    - https://github.com/TorchIO-project/torchio/pull/1183: numpy 2 beside PyTorch 2.2
    """

    name = "numpy-2-beside-older-torch"
    title = Text("This PyTorch was compiled for numpy 1", "该 PyTorch 是针对 numpy 1 编译的")
    refusal = Refusal(Pattern(r"RuntimeError: Numpy is not available"), Certainty.LIKELY)
    versions = (("numpy", ">=2"), ("torch", "<2.3"))
    install = ("numpy", "<2")
    cause = Text(
        "{torch} was compiled for numpy 1, and {numpy} is beside it: tensors can't become arrays, nor arrays tensors "
        "(“Numpy is not available”).",
        "{torch} 针对 numpy 1 编译，而一同安装的是 {numpy}：张量与数组无法互转（“Numpy is not available”）。",
    )
    cure = (Text("Or PyTorch 2.3 or newer", "或使用 PyTorch 2.3 及以上"),)
    label = ("torch", Text("compiled for numpy 1", "针对 numpy 1 编译"))
