from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class CudnnSublibraryNotLoaded(LoggedHazard):
    """Another cuDNN is on the library path, or the installed one is incomplete.
    ## What happens
    `CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED`, `CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH`, `Unable to load any of
    {libcudnn_graph.so.9...}` or `Could not load library libcudnn_cnn_train.so.8`, at the first convolution or fused
    attention.
    ## Why
    cuDNN is split into libraries that load each other by name. With `LD_LIBRARY_PATH` naming a system cuDNN, or
    with torch's wheel and another package's `nvidia-cudnn` of different versions, one finds a stranger.
    ## Example
    ```sh
    export LD_LIBRARY_PATH=/usr/local/cuda/lib64    # wrong: its cuDNN comes before torch's own
    unset LD_LIBRARY_PATH                           # right
    ```
    ## Cure
    Unset LD_LIBRARY_PATH (or put torch's nvidia/cudnn/lib first), and reinstall the cuDNN that torch asks for: pip
    install --force-reinstall nvidia-cudnn-cu12==<as pip show torch says>. In Transformer Engine: build it against
    that cuDNN, or NVTE_FUSED_ATTN=0.
    ## When it is safe
    Where one cuDNN alone is found, the one that torch was built with.
    ## Sources
    - https://github.com/NVIDIA/Megatron-LM/issues/1882: fused attention of Transformer Engine
    - https://github.com/pytorch/pytorch/issues/188892: a system cuDNN beside the one of torch's wheel
    - https://github.com/pytorch/pytorch/issues/185512: the same, told by LD_DEBUG=libs
    - https://github.com/pytorch/pytorch/pull/189043: why a stranger is found
    """

    name = "cudnn-sublibrary-not-loaded"
    title = Text("cuDNN cannot load one of its own libraries", "cuDNN 无法加载自己的某个库")
    log_words = ("CUDNN_STATUS_SUBLIBRARY", "libcudnn")
    ends_at = (("cpp_extensions/fused_attn.py", "fused_attn_fwd("),)
    anywhere = True
    signs = (
        Sign(says=Pattern(r"CUDNN_STATUS_SUBLIBRARY_(?:LOADING_FAILED|VERSION_MISMATCH)"), certainty=Certainty.CERTAIN),
        Sign(says=Pattern(r"(?:Unable to load any of|Could not load library) .{0,10}libcudnn")),
        Sign(says=Pattern(r"libcudnn\w*\.so\S*: (?:cannot open shared object file|undefined symbol|version)")),
        Sign(says=Pattern(r"Invalid handle\. Cannot load symbol cudnn\w+")),
    )
    cause = Text(
        "cuDNN could not load one of its sub-libraries: the one that it found is missing, or of another version.",
        "cuDNN 无法加载某个子库：找到的库缺失，或版本不同。",
    )
    cures = (
        Text(
            "Unset LD_LIBRARY_PATH (or put torch's nvidia/cudnn/lib first), and reinstall the cuDNN that "
            "torch asks for: pip install --force-reinstall nvidia-cudnn-cu12==<as pip show torch says>",
            "取消 LD_LIBRARY_PATH（或把 torch 的 nvidia/cudnn/lib 放在最前），并重装 torch 要求的 cuDNN：pip "
            "install --force-reinstall nvidia-cudnn-cu12==<见 pip show torch>",
        ),
        Text(
            "In Transformer Engine: build it against that cuDNN, or NVTE_FUSED_ATTN=0",
            "Transformer Engine：针对该 cuDNN 构建，或设 NVTE_FUSED_ATTN=0",
        ),
    )
    confirm = Text(
        "LD_DEBUG=libs python train.py shows libcudnn loaded from two places",
        "LD_DEBUG=libs python train.py 显示 libcudnn 从两处加载",
    )
