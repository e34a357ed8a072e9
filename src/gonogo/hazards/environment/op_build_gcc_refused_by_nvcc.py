from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class OpBuildGccRefusedByNvcc(LoggedHazard):
    """Operators are compiled by a gcc that this nvcc refuses.
    ## What happens
    "crt/host_config.h:138:2: error: #error -- unsupported GNU version! gcc versions later than 8 are not supported!"
    while an extension is built (apex, flash-attn, DeepSpeed's operators); or PyTorch's "The current installed version
    of g++ (4.8.5) is less than the minimum required version by CUDA 11.7 (6.0.0)".
    ## Why
    Each CUDA toolkit takes host compilers of a range: 10.1 up to gcc 8, 11.0 to 9, 11.8 to 11, 12.1 to 12, 12.4 to 13.
    A new distribution, or conda's gxx, brings a newer one.
    ## Example
    ```sh
    pip install --no-build-isolation flash-attn                                  # wrong: /usr/bin/gcc is 13, CUDA 11.8
    CC=gcc-11 CXX=g++-11 CUDAHOSTCXX=g++-11 pip install --no-build-isolation flash-attn    # right
    ```
    ## Cure
    Install a gcc that the toolkit takes beside the other, and name it: CC, CXX, CUDAHOSTCXX (or `-ccbin`), or
    `conda install gxx=11`. Or a newer toolkit of torch's CUDA. `-allow-unsupported-compiler` may compile what then
    crashes.
    ## When it is safe
    Where a wheel is installed that is already compiled.
    ## Sources
    - https://github.com/NVIDIA/apex/issues/1168: CUDA 10.1 and gcc later than 8
    - https://github.com/NVIDIA/apex/issues/278: apex, built by another gcc
    - https://github.com/Dao-AILab/flash-attention/issues/246: g++ 4.8.5, too old for CUDA 11.7; 9 works
    - https://docs.nvidia.com/cuda/cuda-installation-guide-linux/: the host compilers of each toolkit
    """

    name = "op-build-gcc-refused-by-nvcc"
    title = Text("Operators do not compile: nvcc refuses this gcc", "算子无法编译：nvcc 不接受该版本的 gcc")
    log_words = ("unsupported GNU version", "minimum required version by CUDA", "maximum required version by CUDA")
    anywhere = True
    signs = (
        Sign(Pattern(r"unsupported GNU version! gcc versions later than (?P<newest>\d+)"), Certainty.CERTAIN),
        Sign(
            Pattern(r"installed version of \S+ \(\S+\) is (?:less than the minimum|greater than the maximum) required "
                    r"version by CUDA"),
            Certainty.CERTAIN,
        ),
        Sign(Pattern(r"unsupported (?:clang|GNU) version!"), Certainty.CERTAIN),
    )  # fmt: skip
    cause = Text(
        "The CUDA toolkit's nvcc takes host compilers of certain versions only, and the gcc that it found is not one.",
        "CUDA 工具包的 nvcc 只接受某些版本的主机编译器，而找到的 gcc 不在其中。",
    )
    cures = (
        Text(
            "Install a gcc that it takes and name it: CC=gcc-11 CXX=g++-11 CUDAHOSTCXX=g++-11 (or conda install "
            "gxx=11)",
            "安装它接受的 gcc 并指定：CC=gcc-11 CXX=g++-11 CUDAHOSTCXX=g++-11（或 conda install gxx=11）",
        ),
        Text(
            "Or install a wheel that is already compiled for this torch, or a newer toolkit of torch's CUDA",
            "或安装已为该 torch 编译好的 wheel，或换用与 torch 的 CUDA 一致的较新工具包",
        ),
    )
    confirm = Text(
        "gcc --version is beyond what nvcc --version takes", "gcc --version 超出 nvcc --version 所支持的范围"
    )
