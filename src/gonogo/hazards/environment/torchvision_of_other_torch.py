from gonogo.hazards.version_rule import BuiltForOtherTorch
from gonogo.hazards.rule import Text


class TorchvisionOfOtherTorch(BuiltForOtherTorch):
    """torchvision or torchaudio was built for another PyTorch.
    ## What happens
    "RuntimeError: operator torchvision::nms does not exist", often shown as "Failed to import
    transformers.models.auto.processing_auto because of the following error": transformers imports torchvision
    wherever it is installed, also for language models.
    ## Why
    Both have C++ operators that are compiled for one PyTorch: torchvision 0.N goes with torch 2.(N-15), torchaudio
    has torch's own number. Raising torch alone leaves them behind.
    ## Example
    ```text
    torch==2.6.0
    torchvision==0.20.1    # wrong: for torch 2.5.1
    torchvision==0.21.0    # right
    ```
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

    name = "torchvision-of-other-torch"
    title = Text(
        "torchvision or torchaudio does not fit the installed PyTorch",
        "torchvision 或 torchaudio 与已安装的 PyTorch 不匹配",
    )
    packages = ("torchvision", "torchaudio")
    effect = Text(
        "importing it ends with an error of its operators, in transformers too",
        "导入时其算子会报错，transformers 也会因此失败",
    )
