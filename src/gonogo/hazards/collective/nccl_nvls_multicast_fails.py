from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class NcclNvlsMulticastFails(LoggedHazard):
    """NCCL sets up NVLink SHARP (multicast in the NVSwitches), and the machine refuses it.
    ## What happens
    "transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'" (or 'out of memory', 'system not yet
    initialized', 'operation not supported') on H100, H200, B200 machines, at the first collective of three ranks or
    more; PyTorch says "ncclUnhandledCudaError: Call to CUDA function failed".
    ## Why
    Multicast objects are handed out by the driver together with the fabric manager. They are refused where the fabric
    manager was restarted, or is of another version than the driver; in a container or virtual machine without access
    to the fabric; where the driver is older than this NCCL expects (2.26 with driver 535); and where multicast memory
    runs out.
    ## Example
    ```sh
    torchrun --nproc_per_node 8 train.py    # wrong on such a machine
    NCCL_NVLS_ENABLE=0 torchrun --nproc_per_node 8 train.py    # right: NVLink without multicast
    ```
    ## Cure
    NCCL_NVLS_ENABLE=0 on all ranks. For good: reboot the node, or stop all GPU processes and restart
    nvidia-fabricmanager of the driver's version; upgrade the driver.
    ## When it is safe
    Where nvidia-smi -q shows Fabric: State Completed, Status Success on all GPUs.
    ## Sources
    - https://github.com/NVIDIA/nccl/issues/976: the fabric manager was restarted; a reboot cures it
    - https://github.com/pytorch/pytorch/issues/150852: NCCL 2.26 on a driver of CUDA 12.2
    - https://github.com/NVIDIA/nccl/issues/1672: multicast fails while all else of NVLink works
    - https://github.com/vllm-project/vllm/issues/6732: eight H100 in vLLM
    """

    name = "nccl-nvls-multicast-fails"
    title = Text("NCCL's multicast in the NVSwitches (NVLS) is refused", "NCCL 的 NVSwitch 多播（NVLS）被拒绝")
    log_words = ("transport/nvls.cc",)
    anywhere = True
    signs = (
        Sign(
            Pattern(r"transport/nvls\.cc:\d+ NCCL WARN (?:Cuda failure|Failed to|.{0,40}(?:[Mm]ulticast|NVLS))"),
            Certainty.LIKELY,
        ),
        Sign(Pattern(r"NCCL INFO transport/nvls\.cc:\d+ -> [1-9]"), Certainty.LIKELY),
        Sign(Pattern(r"(?i)\bNVLS\b.{0,60}(?:fail|error|not permitted|invalid)|cuMulticast\w+.{0,60}(?:fail|error)")),
    )
    cause = Text(
        "NCCL asked for a multicast object of the NVSwitches (NVLS), and driver or fabric manager refused it.",
        "NCCL 申请 NVSwitch 的多播对象（NVLS），被驱动或 fabric manager 拒绝。",
    )
    cures = (
        Text("Set NCCL_NVLS_ENABLE=0 on all ranks", "在所有 rank 上设置 NCCL_NVLS_ENABLE=0"),
        Text(
            "For good: reboot the node, or restart nvidia-fabricmanager (the driver's version) while no process "
            "uses a GPU; "
            "upgrade an old driver",
            "根治：重启节点，或在没有进程使用 GPU 时重启 nvidia-fabricmanager（与驱动同版本）；升级旧驱动",
        ),
    )
    confirm = Text(
        "With NCCL_NVLS_ENABLE=0 the same collective runs; nvidia-smi -q shows the fabric's state",
        "设置 NCCL_NVLS_ENABLE=0 后同样的集合通信可以运行；nvidia-smi -q 显示 fabric 状态",
    )
