from gonogo.hazards.rule import Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class TritonKernelsNewerThanDriver(LoggedHazard):
    """Triton compiles its kernels with its own ptxas, and the NVIDIA driver is older than that CUDA.
    ## What happens
    "RuntimeError: Triton Error [CUDA]: device kernel image is invalid", at the first Triton kernel: a compiled
    model (`backend='inductor' raised`), unsloth, Mamba, fla, Liger, fused MoE. torch's own operators run.
    ## Why
    A torch for CUDA 11.8 or 12.x works with an older driver of the same major release. Triton brings an assembler
    of a newer CUDA (12.1, 12.3 and later) in its own wheel, whatever CUDA torch was built for; the driver does not
    read the newer form of its kernels.
    ## Example
    ```sh
    python train.py                                                  # wrong with driver 470 (CUDA 11.4)
    TRITON_PTXAS_PATH=/usr/local/cuda-11.8/bin/ptxas python train.py  # right
    ```
    ## Cure
    A newer driver. Or TRITON_PTXAS_PATH, set to the ptxas of a CUDA toolkit that the driver can read. Or the older
    torch and triton that came with a ptxas of the driver's time; or do without Triton (no torch.compile, eager or
    sdpa attention). Remove ~/.triton/cache afterwards.
    ## When it is safe
    Where `nvidia-smi` names a CUDA as new as Triton's ptxas (`ptxas --version` in its package).
    ## Sources
    - https://github.com/triton-lang/triton/issues/3001: cured by driver 535 in place of 470
    - https://github.com/pytorch/pytorch/issues/119054: Triton's ptxas is of CUDA 12.3; TRITON_PTXAS_PATH
    - https://github.com/triton-lang/triton/issues/2971: driver 470; an older Triton works
    - https://github.com/triton-lang/triton/issues/1955: Triton built from source with another CUDA's ptxas
    - https://github.com/vllm-project/vllm/issues/5713: since torch 2.2 with driver 515
    """

    name = "triton-kernels-newer-than-driver"
    title = Text(
        "Triton's kernels are of a newer CUDA than the driver reads", "Triton 的内核所属的 CUDA 比驱动能识别的更新"
    )
    log_words = ("device kernel image is invalid",)
    anywhere = True
    signs = (Sign(Pattern(r"Triton Error \[CUDA\]: device kernel image is invalid")),)
    cause = Text(
        "Triton compiled a kernel with its own ptxas, of a CUDA release that the installed NVIDIA driver does not "
        "read.",
        "Triton 用自带的 ptxas 编译内核，其 CUDA 版本是已安装的 NVIDIA 驱动无法识别的。",
    )
    cures = (
        Text("Install a newer NVIDIA driver", "安装更新的 NVIDIA 驱动"),
        Text(
            "Or export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas of a CUDA toolkit no newer than nvidia-smi's CUDA "
            "Version, and remove ~/.triton/cache",
            "或 export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas，取自不高于 nvidia-smi 所示 CUDA Version 的工具包，"
            "并删除 ~/.triton/cache",
        ),
        Text(
            "Or the older torch and triton of the driver's time, or the same run without torch.compile and Triton's "
            "kernels",
            "或使用与驱动同期的旧版 torch 与 triton，或不用 torch.compile 与 Triton 内核",
        ),
    )
    confirm = Text(
        "nvidia-smi names an older CUDA Version than the ptxas --version in triton's package",
        "nvidia-smi 显示的 CUDA Version 低于 triton 包内 ptxas --version 的版本",
    )
