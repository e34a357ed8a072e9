from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class NcclCumemHostPeerAccess(LoggedHazard):
    """NCCL 2.24 and later keep host buffers in cuMem, which fails on PCIe GPUs without peer access.
    ## What happens
    `transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'`, then
    `unhandled cuda error`, at the first collective on L4, T4, A10, RTX and other PCIe cards.
    ## Why
    The buffer of the SHM transport is allocated by cuMem on the host and mapped by both GPUs; some drivers ask for
    peer-to-peer for that. The older path goes through /dev/shm.
    ## Example
    ```sh
    torchrun --nproc_per_node 2 train.py                               # wrong on 2 x L4 with NCCL 2.27
    NCCL_CUMEM_HOST_ENABLE=0 torchrun --nproc_per_node 2 train.py      # right
    ```
    ## Cure
    export NCCL_CUMEM_HOST_ENABLE=0 on all ranks (with Ray in the runtime env). Give the container enough /dev/shm
    (--shm-size or --ipc=host), which it then uses; or a newer driver and NCCL.
    ## When it is safe
    With NVLink or peer access, or an NCCL before 2.24.
    ## Sources
    - https://github.com/NVIDIA/nccl/issues/1838: 4 x L4, NCCL 2.27.3, and the variable
    - https://github.com/ray-project/ray/pull/64109: T4 machines
    - https://github.com/NVIDIA/nccl/pull/2388: what each rank decides by itself
    """

    name = "nccl-cumem-host-peer-access"
    title = Text(
        "NCCL's shared-memory transport asks for peer access that these GPUs lack",
        "NCCL 的共享内存传输需要这些 GPU 没有的对等访问",
    )
    log_words = ("peer access is not supported", "Cuda failure 217")
    traces = ("unhandled cuda error (run with NCCL_DEBUG",)
    anywhere = True
    signs = (
        Sign(
            says=Pattern(r"shm\.cc:\d+.{0,40}(?:Cuda failure 217|peer access is not supported)"),
            certainty=Certainty.CERTAIN,
        ),
        Sign(
            says=Pattern(r"Cuda failure 217|peer access is not supported between these two devices"),
            unless=Pattern(r"p2p\.cc|CUDA IPC handle|enable_peer|custom_all_reduce|cudaDeviceEnablePeerAccess"),
        ),
        Sign(
            says=Pattern(r"Cuda failure 217|peer access is not supported between these two devices"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "NCCL could not map a host buffer of its SHM transport: it is allocated by cuMem, and these GPUs "
        "have no peer access.",
        "NCCL 无法映射其 SHM 传输的主机缓冲：它由 cuMem 分配，而这些 GPU 没有对等访问。",
    )
    cures = (
        Text(
            "export NCCL_CUMEM_HOST_ENABLE=0 on all ranks (with Ray in the runtime env)",
            "在所有 rank 上 export NCCL_CUMEM_HOST_ENABLE=0（Ray 写入 runtime env）",
        ),
        Text(
            "Give the container enough /dev/shm (--shm-size or --ipc=host), which it then uses; or a newer "
            "driver and NCCL",
            "为容器提供足够的 /dev/shm（--shm-size 或 --ipc=host），此时会用到；或使用更新的驱动与 NCCL",
        ),
    )
    confirm = Text(
        "NCCL_DEBUG=INFO shows transport/shm.cc with Cuda failure 217",
        "NCCL_DEBUG=INFO 显示 transport/shm.cc 的 Cuda failure 217",
    )
