from gonogo.hazards.facts.on_windows import ON_WINDOWS
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_NO_NCCL = Pattern(r"Distributed package doesn't have NCCL ?built.in")


class NcclBackendOnWindows(LoggedHazard):
    """The nccl backend is asked for on Windows, which has none.
    ## What happens
    "RuntimeError: Distributed package doesn't have NCCL built in" on Windows or macOS, with a GPU that works.
    ## Why
    NCCL exists for Linux. PyTorch's builds for Windows have the gloo backend only (and MPI where compiled with it), and
    scripts, DeepSpeed, Trainer and accelerate choose nccl wherever CUDA is there.
    ## Example
    ```python
    dist.init_process_group("nccl")                                         # wrong on Windows
    dist.init_process_group("gloo" if os.name == "nt" else "nccl")          # right
    ```
    ## Cure
    WSL2 or Linux, for several GPUs. For one GPU start without a launcher (`python train.py`), which needs no process
    group. Else gloo: `--ddp_backend gloo` (Trainer), `PL_TORCH_DISTRIBUTED_BACKEND=gloo` (Lightning).
    ## When it is safe
    In WSL2, which is Linux.
    ## Sources
    - https://github.com/tatsu-lab/stanford_alpaca/issues/291: torchrun on Windows 11
    - https://github.com/OFA-Sys/Chinese-CLIP/issues/279: one GPU on Windows; gloo, better Linux
    - https://github.com/Alpha-VLLM/LLaMA2-Accessory/issues/166: gloo instead, and what that lacks
    """

    name = "nccl-backend-on-windows"
    title = Text("Windows has no NCCL", "Windows 上没有 NCCL")
    log_words = ("NCCL built in", "NCCL bulit in")
    anywhere = True
    signs = (Sign(_NO_NCCL, Certainty.CERTAIN, beside=ON_WINDOWS), Sign(_NO_NCCL, Certainty.POSSIBLE, outside=("/",)))
    cause = Text(
        "The process group is to use NCCL, which PyTorch has on Linux only.",
        "进程组要使用 NCCL，而 PyTorch 只在 Linux 上提供它。",
    )
    cures = (
        Text(
            "Train in WSL2 or on Linux; with one GPU start it by plain python, which needs no process group",
            "在 WSL2 或 Linux 上训练；只有一张 GPU 时直接用 python 启动，不需要进程组",
        ),
        Text(
            'Or the gloo backend, slower: dist.init_process_group("gloo"), --ddp_backend gloo (Trainer)',
            '或使用较慢的 gloo 后端：dist.init_process_group("gloo")、--ddp_backend gloo（Trainer）',
        ),
    )
    confirm = Text("It runs on Windows or macOS", "程序运行在 Windows 或 macOS 上")
